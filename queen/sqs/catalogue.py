"""The routes of SQS: one for all actions, and one for the URLs of queues."""

from typing import Any

from queen.http.access import READ_ONLY
from queen.http.operation import Answer, Operation, Parameter, Signatures, Topic
from queen.sqs.access import is_signed
from queen.sqs.actions import ACTIONS
from queen.sqs.addresses import ROOT
from queen.sqs.serving import JSON, XML, refuse, serve

_DESCRIPTION = (
    "Actions, parameters, answers and errors are those of the API reference of AWS SQS, which its SDKs know "
    "(docs/sqs.md). The access level is that of the action: this one or a higher one. A request may be signed (AWS "
    "Signature V4) instead of carrying a token."
)
_SIGNATURES = Signatures(is_signed, refuse)
_STATUSES = (400, 401, 403, 404, 413, 429, 500, 503)
_NAMES = {"enum": sorted(ACTIONS)}
_ACTION = Parameter("Action", "Name of the action", {"type": "string", **_NAMES}, required=True)
_TARGET = Parameter(
    "X-Amz-Target",
    "`AmazonSQS.` and the name of the action, with a body in AWS JSON 1.0. Without it the body is a form of the query "
    "protocol, and the answer is XML",
    {"type": "string"},
    place="header",
)
_QUEUE = Parameter(
    "queue", "Account and name of the queue", {"type": "string"}, place="path", required=True, slashes=True
)
_XML: tuple[tuple[Any, str], ...] = ((str, XML),)
_BOTH: tuple[tuple[Any, str], ...] = ((dict[str, Any], JSON), *_XML)


def _operation(method: str, path: str, name: str, summary: str) -> Operation:
    kinds = _BOTH if method == "POST" else _XML
    answers = [Answer("The result of the action", kind, 200, media) for kind, media in kinds]
    answers += [Answer("An error of AWS", kind, status, media) for status in _STATUSES for kind, media in kinds]
    parameters = [*([_QUEUE] if path != ROOT else []), _TARGET if method == "POST" else _ACTION]
    return Operation(
        method, path, name, summary, READ_ONLY, answers, (), serve, _DESCRIPTION, parameters, signatures=_SIGNATURES
    )


SQS = Topic(
    "SQS",
    "The protocol of AWS SQS, for its SDKs.",
    [
        _operation("POST", ROOT, "sqs", "Any action of SQS"),
        _operation("GET", ROOT, "sqsQuery", "Any action of SQS, as a query"),
        _operation("POST", f"{ROOT}/{{queue}}", "sqsOfQueue", "An action of SQS on a queue"),
        _operation("GET", f"{ROOT}/{{queue}}", "sqsQueryOfQueue", "An action of SQS on a queue, as a query"),
    ],
    prefix="Sqs",
)
