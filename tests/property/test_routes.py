"""The routes: every method has a level, and a path with names names its operation."""

import re
from typing import Any

import falcon
import falcon.asgi
import httpx
import pytest

from queen.http.access import Access
from queen.http.operation import Operation, Parameter, operation
from queen.http.routes import add_routes, routes_of
from tests.support.route_table import route_table


def test_every_method_of_every_route_has_a_level() -> None:
    table = route_table()
    add_routes(falcon.asgi.App(), table)
    paths = [route.path for route in table]
    assert len(paths) == len(set(paths))


async def _answer(server: list[Any], _req: Any, resp: Any, **names: str) -> None:
    server.append(names)
    resp.media = names


def declared(path: str, access: Access = Access.ADMIN, method: str = "GET", **slashes: bool) -> Operation:
    names = re.findall(r"\{(\w+)\}", path)
    parameters = [Parameter(name, "", {}, "path", required=True, slashes=slashes.get(name, False)) for name in names]
    return operation(method, path, path, "", access=access, answers=[], errors=[], parameters=parameters)(_answer)


def test_operations_of_one_route_and_method_have_one_level() -> None:
    pair = [declared("/x/{name}", Access.ADMIN, name=True), declared("/x/{name}/y", Access.PUBLIC, name=True)]
    with pytest.raises(ValueError, match="different access levels"):
        routes_of(pair, [])


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/x/a", {"name": "a"}),
        ("/x/a/b%2Fc", {"name": "a/b/c"}),
        ("/x/a/y", {"of_name": "a"}),
        ("/x/a%2Fy", {"name": "a/y"}),
        ("/x/a/y/b/y", {"of_name": "a/y/b"}),
        ("/x/a/parts/b/c", {"name": "a", "part": "b/c"}),
        ("/x/", {"name": ""}),
    ],
)
async def test_a_path_names_the_operation_with_the_longest_template_that_matches(
    path: str, names: dict[str, str]
) -> None:
    app = falcon.asgi.App()
    operations = [
        declared("/x/{name}", name=True),
        declared("/x/{ofName}/y", ofName=True),
        declared("/x/{name}/parts/{part}", name=True, part=True),
    ]
    add_routes(app, routes_of(operations, []))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://queen") as http:
        assert (await http.get(path)).json() == names


def test_levels_rise() -> None:
    rising = list(Access)
    assert [[high.includes(low) for low in rising] for high in rising] == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]
