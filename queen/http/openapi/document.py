"""Builds the OpenAPI 3.1.1 document (https://spec.openapis.org/oas/v3.1.1.html) from the operations."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec

from queen.core.version import VERSION
from queen.http import problems
from queen.http.access import PUBLIC
from queen.http.openapi.schemas import COMPONENTS, Schemas
from queen.http.operation import Operation, Parameter, Topic

Json = dict[str, Any]

#: What each error status means, whatever the operation.
ERRORS: Mapping[int, str] = {
    400: "The request is invalid. `field` names the invalid part, `detail` says what is wrong.",
    401: "The server requires a token (`JWT_ENABLED`), and this request has no valid one.",
    403: "The role of the token does not allow this. On a server without authentication: the request comes from "
    "a page of another origin, or names a host that is not the server's (`QUEEN_CORS_ORIGINS`, "
    "`QUEEN_HOSTS`). Between instances: the signature is missing or wrong.",
    404: "The object of the request does not exist.",
    409: "Not possible in the current state; repeating the request does not help.",
    413: "The body, or a message in it, is too large.",
    415: "The content type is not JSON.",
    422: "PostgreSQL rejected the data of the request; nothing was stored.",
    426: "This path is a WebSocket.",
    429: "A limit of size, number or rate is reached. Try again later (`Retry-After`).",
    501: "This worker cannot hold another long poll (worker classes `gthread` and `meinheld`). Send the pop "
    "without `wait`.",
    503: "Temporarily unavailable: PostgreSQL is down or slow, or the server is full or shutting down. Try again "
    "later (`Retry-After`).",
    504: "PostgreSQL did not complete this request within its time limit, although it ran alone. Send it in "
    "smaller parts.",
}
_DESCRIPTION = (
    "A message queue on PostgreSQL.\n\nErrors are problem documents (RFC 9457). They also have `error`, which "
    "older clients read; `field` names the invalid\npart of the request. Unknown fields of a body and unknown "
    "parameters are ignored. An empty parameter counts as not\ngiven. `HEAD` is supported wherever `GET` only "
    "reads, `OPTIONS` everywhere. `x-access-level` is the role that an operation\nrequires if the server has "
    "authentication (`JWT_ENABLED`): `public`, `read-only`, `read-write`, `admin`. `x-guarantees` names what\nthis "
    "server promises beyond the interface of Queen MQ; of a server over several databases,\n"
    "`x-guarantees-per-database` names what it keeps on each of them alone.\n\nIf the default of a "
    "parameter is a setting of the server, it is given by name, in capitals."
)

#: What this server promises beyond the interface of Queen MQ (docs/guarantees.md): `queen verify` judges it here.
GUARANTEES = ("G-ACK-8", "G-IDEM-4", "G-LEASE-7", "G-POP-2", "G-RET-8")
#: What a server over several databases keeps on each of them alone (docs/shards.md).
PER_DATABASE = (
    "G-DUR-4", "G-POP-2", "G-POP-3", "G-POP-4", "G-RET-8", "G-STR-1", "G-STR-2", "G-TIM-1", "G-TIM-2",
    "G-TIM-3", "G-TXN-1", "G-TXN-2", "G-TXN-3",
)  # fmt: skip
_PROBLEM: Json = {problems.PROBLEM_JSON: {"schema": {"$ref": f"{COMPONENTS}{problems.Problem.__name__}"}}}

#: Answers of the gate to any operation: a foreign page or host name.
_REFUSALS = (403,)
#: Answers of the gate to operations that are not public: no valid token, too many requests.
_REFUSALS_OF_SENDERS = (401, *_REFUSALS, 429)


def document(topics: Sequence[Topic], *, over_several: bool = False) -> Json:
    """The document of these operations, of a server over one database or several."""
    examples: Json = msgspec.json.decode((files(__package__) / "examples.json").read_bytes())
    paths: Json = {}
    errors = Schemas()
    errors.of_answer(problems.Problem)
    components: Json = errors.components
    for topic in topics:
        schemas = Schemas(topic.prefix)
        for operation in topic.operations:
            rendered = _operation(topic, operation, schemas, examples.get(operation.name, {}))
            paths.setdefault(operation.path, {})[operation.method.lower()] = rendered
        components |= schemas.components
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Queen for Python",
            "version": VERSION,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "x-guarantees": list(GUARANTEES),
        **({"x-guarantees-per-database": list(PER_DATABASE)} if over_several else {}),
        "servers": [{"url": "/", "description": "The server that serves this document"}],
        "tags": [{"name": topic.name, "description": topic.description} for topic in topics],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
            "responses": {f"Error{number}": _error(number, text) for number, text in ERRORS.items()},
        },
    }


def _operation(topic: Topic, operation: Operation, schemas: Schemas, examples: Json) -> Json:
    rendered: Json = {
        "operationId": operation.name,
        "tags": [topic.name],
        "summary": operation.summary,
        "x-access-level": operation.access.value,
        "security": [{}] if operation.access is PUBLIC else [{}, {"token": []}],
    }
    if operation.description:
        rendered["description"] = operation.description
    if operation.parameters:
        sent = examples.get("parameters", {})
        rendered["parameters"] = [_parameter(each, sent) for each in operation.parameters]
    if operation.body:
        content = {"schema": schemas.of_request(operation.body)} | _example(examples, "body")
        rendered["requestBody"] = {"required": operation.needs_body, "content": {"application/json": content}}
    refusals = _REFUSALS if operation.access is PUBLIC else _REFUSALS_OF_SENDERS
    rendered["responses"] = _responses(operation, refusals, schemas, examples.get("answers", {}))
    return rendered


def _parameter(parameter: Parameter, sent: Json) -> Json:
    rendered: Json = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }
    if parameter.place == "query" and parameter.may_be_empty and not parameter.required:
        rendered["allowEmptyValue"] = True
    return rendered | _example(sent, parameter.name)


def _example(examples: Json, name: str) -> Json:
    return {"example": examples[name]} if name in examples else {}


def _responses(operation: Operation, refusals: Sequence[int], schemas: Schemas, examples: Json) -> Json:
    responses: Json = {}
    for answer in operation.answers:
        response = responses.setdefault(str(answer.status), {"description": answer.description})
        if answer.body:
            # An example is JSON.
            sample = _example(examples, str(answer.status)) if "json" in answer.media_type else {}
            content = {"schema": schemas.of_answer(answer.body)} | sample
            response.setdefault("content", {})[answer.media_type] = content
    # PostgreSQL may be unavailable or too slow.
    slow = (504,) if 503 in operation.errors else ()
    for number in map(str, sorted({*operation.errors, *refusals, *slow})):
        if number in responses:
            responses[number]["content"] |= _PROBLEM
        else:
            responses[number] = {"$ref": f"#/components/responses/Error{number}"}
    return dict(sorted(responses.items()))


def _error(number: int, description: str) -> Json:
    error: Json = {"description": description, "content": _PROBLEM}
    if number in {429, 503}:
        error["headers"] = {
            "Retry-After": {"description": "Seconds to wait before the next attempt", "schema": {"type": "integer"}}
        }
    return error
