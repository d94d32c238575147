"""The contract against the code: the routes, the structs, the parameters that handlers read; and in itself."""

import ast
import gzip
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Any, get_args

import falcon.asgi
import msgspec
import pytest
from openapi_spec_validator import validate

from queen import operations, simple_mq
from queen.catalogue import TOPICS
from queen.http import pops
from queen.http.openapi import schemas
from queen.http.routes import Route, add_routes
from tests.contract.__main__ import rendered
from tests.contract.contract import OPERATIONS, make_document, pointer_of, problems_of, route_table
from tests.contract.tour import unvisited


@pytest.fixture(scope="module")
def table() -> Iterator[list[Route]]:
    with route_table() as routes:
        yield routes


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return make_document()


def test_the_document_is_openapi(document: dict[str, Any]) -> None:
    validate(document)
    assert document["openapi"].startswith("3.1.")


def test_the_file_is_up_to_date_and_part_of_the_specification() -> None:
    page = (files("spec") / "openapi.yaml").read_text(encoding="utf-8")
    assert page == rendered(), "run `python -m tests.contract`"


def test_every_operation_has_a_name_of_its_own() -> None:
    assert len(OPERATIONS) == sum(len(topic.operations) for topic in TOPICS)


def test_a_request_to_the_path_of_an_operation_is_routed_as_it_says(table: list[Route]) -> None:
    app = falcon.asgi.App()
    add_routes(app, table)
    for operation in OPERATIONS.values():
        _resource, _methods, _parameters, template = app._router.find(re.sub(r"\{\w+\}", "x", operation.path))
        assert template == operation.served_by, operation.name


def test_parameters_of_paths_are_those_between_braces() -> None:
    for operation in OPERATIONS.values():
        described = [parameter.name for parameter in operation.parameters if parameter.place == "path"]
        assert described == re.findall(r"\{(\w+)\}", operation.path), operation.name


# ---------------------------------------------------------------- the structs


def operation_modules() -> Iterator[Any]:
    for package in (operations, simple_mq):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def test_every_body_that_an_operation_decodes_is_described_and_none_else() -> None:
    internal = {"_Windowed", "PostgresAnswer", "_Line"}  # of the databases and of files
    decoded = {
        part.__name__
        for module in operation_modules()
        for decoder in vars(module).values()
        if isinstance(decoder, msgspec.json.Decoder)
        for part in structs(decoder.type)
    }
    described = {
        part.__name__ for operation in OPERATIONS.values() if operation.body for part in structs(operation.body)
    }
    assert decoded - internal == described


def structs(body: Any) -> Iterator[type[msgspec.Struct]]:
    for part in get_args(body) if isinstance(body, UnionType) else (body,):
        if inspect.isclass(part) and issubclass(part, msgspec.Struct):
            yield part


def test_fields_of_bodies_and_answers_are_those_of_their_structs(document: dict[str, Any]) -> None:
    components = document["components"]["schemas"]
    seen = set()
    for operation in OPERATIONS.values():
        bodies = [operation.body, *[answer.body for answer in operation.answers]]
        prefix = (
            "SimpleMq" if "simple-mq" in document["paths"][operation.path][operation.method.lower()]["tags"] else ""
        )
        for struct in [each for body in bodies if body for each in structs(body)]:
            schema = components[prefix + struct.__name__]
            fields = {*struct.__struct_encode_fields__}
            assert {*schema["properties"]} - {"type"} == fields - {"type"}, struct
            needed = {field.encode_name for field in msgspec.structs.fields(struct) if field.required}
            assert needed <= {*schema["required"]}, struct
            seen.add(struct)
    assert len(seen) > 60


def test_docstrings_describe_fields_that_exist() -> None:
    class Described(msgspec.Struct, rename="camel"):
        """A thing, with ``code``.

        Attributes:
            one_field: goes over
                two lines: here.
            other: no more.
        """

        one_field: int
        other: str = "x"

    component = schemas.Schemas()
    component.of_request(Described)
    assert component.components["Described"] == {
        "type": "object",
        "description": "A thing, with `code`.",
        "properties": {
            "oneField": {"type": "integer", "description": "goes over two lines: here."},
            "other": {"type": "string", "description": "no more.", "default": "x"},
        },
        "required": ["oneField"],
    }


# ---------------------------------------------------------------- parameters of the query

_READERS = {"get_param", "get", "name", "names", "choice", "moment", "flag", "_flag"}
_SHORTHANDS = {
    "queries.page": {"limit", "offset"},
    "queries.sorted_page": {"limit", "offset", "order", "reverse"},
    "queries.partitions": {"partition", "search", "limit", "offset", "order", "reverse"},
    "error_text": {"error"},
    "queries.page_of_series": {"limit", "offset"},
    "queries.period": {"from", "to"},
    "queries.queue_filter": {"queue", "namespace", "task"},
    "queries.worker_filter": {"hostname", "workerId"},
}


def test_parameters_are_those_that_the_handlers_read() -> None:
    described: dict[str, set[str]] = {}
    for operation in OPERATIONS.values():
        names = {parameter.name for parameter in operation.parameters if parameter.place == "query"}
        described.setdefault(operation.handler.__module__, set()).update(names)
    read = {name: found for module in operation_modules() if (found := read_by(module)) for name in [module.__name__]}
    read["queen.operations.pop"] |= read_by(pops)
    read["queen.sqs.serving"] = {"Action"}
    assert {name: found for name, found in described.items() if found} == read


def test_a_pop_in_a_body_has_the_parameters_of_the_query_and_of_the_path() -> None:
    assert set(pops.PopBody.__struct_fields__) == read_by(pops) | {"queue", "partition", "namespace", "task"}


def read_by(module: Any) -> set[str]:
    """The names of parameters that stand in the source of a module, where parameters are read."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if isinstance(node.func, ast.Attribute) and called == "get":
            continue
        if shorthand := _SHORTHANDS.get(ast.unparse(node.func)):
            found |= shorthand
        elif called in _READERS:
            found |= {
                part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)
            }
    return found


# ---------------------------------------------------------------- examples


def test_every_operation_has_examples_that_are_what_the_schemas_say(document: dict[str, Any]) -> None:
    without = []
    for operation in OPERATIONS.values():
        pointer = pointer_of(operation)
        described = document["paths"][operation.path][operation.method.lower()]
        examples = 0
        for place, media in contents(described):
            if "example" in media:
                examples += 1
                assert not problems_of(media["example"], f"{pointer}{place}/schema"), f"{operation.name} {place}"
        for number, parameter in enumerate(described.get("parameters", ())):
            if "example" in parameter:
                examples += 1
                found = problems_of(parameter["example"], f"{pointer}/parameters/{number}/schema")
                # What is sent is text: a switch stands there as one.
                assert not found, f"{operation.name} {parameter['name']}: {found}"
        if not examples:
            without.append(operation.name)
    no_json = {
        "subscribe",
        "notify",
        "getContract",
        "getDocumentation",
        "getDashboard",
        "getPrometheusMetrics",
        "getActuatorPrometheus",
    }
    assert set(without) == no_json


def contents(described: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for kind, media in described.get("requestBody", {}).get("content", {}).items():
        yield f"/requestBody/content/{kind.replace('/', '~1')}", media
    for status, answer in described["responses"].items():
        for kind, media in answer.get("content", {}).items():
            yield f"/responses/{status}/content/{kind.replace('/', '~1')}", media


def test_examples_are_of_operations_that_exist() -> None:
    examples = msgspec.json.decode((files("queen.http.openapi") / "examples.json").read_bytes())
    assert examples.keys() <= OPERATIONS.keys()
    assert unvisited(examples) == []


# ---------------------------------------------------------------- the page


def test_the_page_takes_everything_from_this_server() -> None:
    assets = files("queen.http") / "assets"
    page = assets.joinpath("docs.html").read_text(encoding="utf-8")
    linked = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert sorted(linked) == [
        "data:,", "docs/docs.js", "docs/swagger-ui-bundle.js", "docs/swagger-ui.css", "openapi.json",
    ]  # fmt: skip
    style = gzip.decompress(assets.joinpath("swagger-ui", "swagger-ui.css.gz").read_bytes()).decode()
    assert not [url for url in re.findall(r"url\(([^)]*)\)", style) if not url.strip("\"'").startswith("data:")]
    assert "validatorUrl: null" in assets.joinpath("docs.js").read_text(encoding="utf-8")
