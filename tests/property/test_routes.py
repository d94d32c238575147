"""The route table: every method of every route has a level."""

from typing import Any

import falcon
import falcon.asgi
import pytest

from queen.http.access import Access
from queen.http.routes import Route, add_routes
from tests.support.route_table import route_table


class Resource:
    async def on_get(self, _req: Any, _resp: Any) -> None: ...

    async def on_post_batch(self, _req: Any, _resp: Any) -> None: ...


def test_every_method_of_every_route_has_a_level() -> None:
    table = route_table()
    add_routes(falcon.asgi.App(), table)
    paths = [route.path for route in table]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize(
    ("access", "suffix"),
    [({}, None), ({"GET": Access.ADMIN, "PUT": Access.ADMIN}, None), ({"GET": Access.ADMIN}, "batch")],
)
def test_a_route_whose_levels_and_methods_differ_is_refused(access: dict[str, Access], suffix: str | None) -> None:
    with pytest.raises(ValueError, match="/x answers"):
        add_routes(falcon.asgi.App(), [Route("/x", Resource(), access, suffix)])


def test_levels_rise() -> None:
    rising = list(Access)
    assert [[high.includes(low) for low in rising] for high in rising] == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]
