"""The contract as tests see it: the document, its operations, and whether an answer is what it says."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from queen.catalogue import TOPICS, routes
from queen.config import Settings
from queen.engine.handle import EngineHandle
from queen.http.openapi.document import document
from queen.http.operation import Operation
from queen.http.routes import Route
from queen.http.socket.sockets import Sockets

OPERATIONS: Mapping[str, Operation] = {operation.name: operation for topic in TOPICS for operation in topic.operations}
_URI = "queen:contract"


@contextmanager
def route_table() -> Iterator[list[Route]]:
    """The routes of a server whose engine never starts."""

    async def assemble(_answer: Any) -> Any:
        raise AssertionError("not started")

    loop = asyncio.new_event_loop()
    yield list(routes(Settings(), EngineHandle(assemble, lambda: loop), Sockets(1)))
    loop.close()


def make_document() -> dict[str, Any]:
    """The document that a server serves."""
    return document(TOPICS)


@cache
def _closed() -> dict[str, Any]:
    """The document, where an answer with a field that no schema names is wrong."""
    found = make_document()
    for schema in found["components"]["schemas"].values():
        schema["additionalProperties"] = False
    return found


@cache
def _registry() -> Any:
    return Registry().with_resource(_URI, Resource(_closed(), DRAFT202012))


def problems_of(value: Any, pointer: str) -> list[str]:
    """What contradicts the schema at a place of the document."""
    schema = {"$ref": f"{_URI}#{pointer}"}
    validator = Draft202012Validator(schema, registry=_registry(), format_checker=Draft202012Validator.FORMAT_CHECKER)
    return [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(value)]


def escaped(part: str) -> str:
    """A part of a JSON pointer (RFC 6901)."""
    return part.replace("~", "~0").replace("/", "~1")


def pointer_of(operation: Operation) -> str:
    """Where an operation stands in the document."""
    return f"/paths/{escaped(operation.path)}/{operation.method.lower()}"


def assert_as_promised(operation: Operation, response: httpx.Response) -> None:
    """Fails for a status, a media type or a body that the contract does not name."""
    where = f"{operation.name}: {response.request.method} {response.request.url} answered {response.status_code}"
    promised = _closed()["paths"][operation.path][operation.method.lower()]["responses"]
    status = str(response.status_code)
    assert status in promised, f"{where}, which is not promised: {response.text[:500]}"
    pointer = f"{pointer_of(operation)}/responses/{status}"
    answer = promised[status]
    if "$ref" in answer:
        pointer = answer["$ref"].removeprefix("#")
        answer = _closed()["components"]["responses"][f"Error{status}"]
    if "content" not in answer:
        assert response.content == b"", f"{where} with a body"
        return
    kind = response.headers["content-type"]
    assert kind in answer["content"], f"{where} with {kind}"
    value = response.json() if "json" in kind else response.text
    found = problems_of(value, f"{pointer}/content/{escaped(kind)}/schema")
    assert not found, f"{where}: {found[:5]}\n{response.text[:1000]}"
