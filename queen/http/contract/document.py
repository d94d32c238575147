"""The document: OpenAPI 3.1.1 (https://spec.openapis.org/oas/v3.1.1.html) of the route table and the operations."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import msgspec

from queen.http import problems
from queen.http.access import Access
from queen.http.contract import consumer_groups, delivery, messages, queues, simple_mq, status, streams, system
from queen.http.contract.operation import ERRORS, Operation, Parameter, Topic
from queen.http.contract.schemas import COMPONENTS, Schemas

Json = dict[str, Any]

TOPICS: Sequence[Topic] = (
    delivery.TOPIC,
    queues.TOPIC,
    messages.MESSAGES,
    messages.DEAD_LETTERS,
    consumer_groups.TOPIC,
    messages.TRACES,
    streams.TOPIC,
    status.TOPIC,
    system.TOPIC,
    simple_mq.TOPIC,
)
_DESCRIPTION = """A message queue on PostgreSQL.

Errors are problem documents (RFC 9457) that also carry `error`, which older clients read; `field` names the part of the
request at fault. Unknown fields of a body and unknown parameters are ignored. A parameter that is empty counts as not
sent. `HEAD` is answered wherever `GET` only reads, `OPTIONS` everywhere. `x-access-level` is the role that an operation
will needs where the server asks for tokens (`JWT_ENABLED`): `public`, `read-only`, `read-write`, `admin`.

Where the default of a parameter is a setting of the server, its name stands in capitals."""

_PROBLEM: Json = {problems.PROBLEM_JSON: {"schema": {"$ref": f"{COMPONENTS}{problems.Problem.__name__}"}}}

#: What a gate may say to any operation: a page or a name that does not belong here.
_REFUSALS = (403,)
#: What it may also say where the operation is not public: no good token, too many requests.
_REFUSALS_OF_SENDERS = (401, *_REFUSALS, 429)

#: Levels of the methods of routes, by path.
Levels = Mapping[str, Mapping[str, Access]]


def operations() -> Iterator[Operation]:
    """All operations."""
    for topic in TOPICS:
        yield from topic.operations


def document(levels: Levels) -> Json:
    """The whole document, for a server with these levels."""
    examples: Json = msgspec.json.decode((files(__package__) / "examples.json").read_bytes())
    paths: Json = {}
    errors = Schemas()
    errors.of_answer(problems.Problem)
    components: Json = errors.components
    for topic in TOPICS:
        schemas = Schemas(topic.prefix)
        for operation in topic.operations:
            level = _level(levels, operation)
            rendered = _operation(topic, operation, schemas, level, examples.get(operation.name, {}))
            paths.setdefault(operation.path, {})[operation.method.lower()] = rendered
        components |= schemas.components
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Queen for Python",
            "version": version("queen-for-python"),
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The server that serves this document"}],
        "tags": [{"name": topic.name, "description": topic.description} for topic in TOPICS],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
            "responses": {f"Error{number}": _error(number, text) for number, text in ERRORS.items()},
        },
    }


def _level(levels: Levels, operation: Operation) -> Access:
    methods = levels[operation.served_by]
    return methods["WEBSOCKET" if operation.websocket else operation.method]


def _operation(topic: Topic, operation: Operation, schemas: Schemas, level: Access, examples: Json) -> Json:
    rendered: Json = {
        "operationId": operation.name,
        "tags": [topic.name],
        "summary": operation.summary,
        "x-access-level": level.value,
        "security": [{}] if level is Access.PUBLIC else [{}, {"token": []}],
    }
    if operation.description:
        rendered["description"] = operation.description
    if operation.parameters:
        sent = examples.get("parameters", {})
        rendered["parameters"] = [_parameter(each, sent) for each in operation.parameters]
    if operation.body:
        content = {"schema": schemas.of_request(operation.body)} | _example(examples, "body")
        rendered["requestBody"] = {"required": operation.needs_body, "content": {"application/json": content}}
    refusals = _REFUSALS if level is Access.PUBLIC else _REFUSALS_OF_SENDERS
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
            content = {"schema": schemas.of_answer(answer.body)} | _example(examples, str(answer.status))
            response.setdefault("content", {})[answer.media_type] = content
    # What needs the database may find it down, and may be too slow for it.
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
        error["headers"] = {"Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}}
    return error
