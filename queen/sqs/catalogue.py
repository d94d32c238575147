"""The routes of SQS: one for all actions, and one for the URLs of queues."""

from typing import Any

from queen.http.access import READ_ONLY
from queen.http.operation import Answer, Operation, Parameter, Signatures, Topic
from queen.sqs.access import is_signed
from queen.sqs.addresses import ROOT
from queen.sqs.serving import JSON, XML, refuse, serve

_DESCRIPTION = (
    "`GET` and `POST` take the query protocol of AWS and answer XML; `POST` with `X-Amz-Target` takes and answers AWS "
    "JSON 1.0. Actions, parameters and errors are those of the API reference of AWS SQS, which SDKs know: see "
    "docs/sqs.md. The access level is that of the action: this one or a higher one. A request may be signed (AWS "
    "Signature V4) instead of carrying a token."
)
_SIGNATURES = Signatures(is_signed, refuse)
_STATUSES = (400, 401, 403, 404, 413, 429, 500, 503)
_QUEUE = Parameter(
    "queue", "Account and name of the queue", {"type": "string"}, place="path", required=True, slashes=True
)


def _operation(method: str, path: str, name: str, summary: str) -> Operation:
    answers = [Answer("The result of the action", kind, 200, media) for kind, media in _KINDS]
    answers += [Answer("An error of AWS", kind, status, media) for status in _STATUSES for kind, media in _KINDS]
    return Operation(
        method, path, name, summary, READ_ONLY, answers, (), serve, _DESCRIPTION,
        parameters=[_QUEUE] if "{" in path else [], signatures=_SIGNATURES,
    )  # fmt: skip


_KINDS: tuple[tuple[Any, str], ...] = ((dict[str, Any], JSON), (str, XML))

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
