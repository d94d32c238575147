"""The gate before all resources: every route, level and token, in one process and without a database."""

from collections.abc import AsyncIterator
from typing import Any

import falcon.asgi
import httpx
import pytest

from queen.config import from_environment
from queen.core.errors import QueenError
from queen.core.rate_limit import RateLimit
from queen.http import problems
from queen.http.access import Access, Levels
from queen.http.gate import Gate, SkippedPaths
from queen.http.request import QueenRequest
from queen.http.routes import WEBSOCKET, add_routes
from queen.security.authentication import role_names, verifier_of
from spec.guarantees import Level, checks
from tests.support.route_table import requests_of_all_routes, route_table
from tests.support.tokens import AUDIENCE, ISSUER, SECRET, bad_tokens, pem, rsa_key, token

#: What each role may do, said here once more: not asked of the server's code.
ROLES = {
    None: {Access.PUBLIC},
    "read-only": {Access.PUBLIC, Access.READ_ONLY},
    "read-write": {Access.PUBLIC, Access.READ_ONLY, Access.READ_WRITE},
    "admin": set(Access),
}
PASSED = 299


class Passed:
    """Stands behind the gate in place of the real resources, and answers that a request has got through."""

    async def process_resource(
        self, _req: falcon.asgi.Request, resp: falcon.asgi.Response, _resource: Any, _params: Any
    ) -> None:
        resp.status = PASSED
        resp.complete = True


@pytest.fixture
def rate_limit() -> RateLimit | None:
    return None


@pytest.fixture
async def http(rate_limit: RateLimit | None) -> AsyncIterator[httpx.AsyncClient]:
    environment = {
        "JWT_ENABLED": "1", "JWT_ALGORITHM": "auto", "JWT_SECRET": SECRET, "JWT_PUBLIC_KEY": pem(rsa_key()),
        "JWT_ISSUER": ISSUER, "JWT_AUDIENCE": AUDIENCE,
    }  # fmt: skip
    settings, table = from_environment(environment), route_table()
    levels, skipped = Levels(role_names(settings)), SkippedPaths(settings.jwt.skip_paths)
    gate = Gate(table, verifier_of(settings), levels, skipped, None, rate_limit)
    app = falcon.asgi.App(middleware=[gate, Passed()], request_type=QueenRequest)
    app.add_error_handler(QueenError, problems.on_queen_error)
    add_routes(app, table)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://queen") as client:
        yield client


async def _statuses(http: httpx.AsyncClient, text: str | None) -> dict[tuple[str, str], tuple[int, Access]]:
    headers = {"Authorization": f"Bearer {text}"} if text else {}
    return {
        (method, path): ((await http.request(method, path, headers=headers)).status_code, needed)
        for method, path, needed in requests_of_all_routes()
    }


def test_all_interfaces_and_levels_are_in_the_table() -> None:
    found = requests_of_all_routes()
    paths = {path for _, path, _ in found}
    assert len(found) > 60
    assert {"/api/v1/push", "/api/queues", "/internal/api/notify", "/actuator/health", "/auth/me"} <= paths
    assert {level for _, _, level in found} == set(Access)


def test_ack_and_pop_need_the_same_level() -> None:
    levels = {(method, path): needed for method, path, needed in requests_of_all_routes()}
    pops = {needed for (_, path), needed in levels.items() if path.startswith("/api/v1/pop")}
    assert {levels["POST", "/api/v1/ack/batch"]} == pops


def test_public_routes_are_listed_here() -> None:
    """A new route that everybody may use is a decision."""
    assert {path for _, path, level in requests_of_all_routes() if level is Access.PUBLIC} == {
        "/health", "/health/live", "/health/ready", "/metrics", "/metrics/prometheus", "/actuator/prometheus",
        "/actuator/health", "/actuator/info", "/actuator/metrics", "/internal/api/notify", "/api/v1/subscribe",
        "/docs", "/docs/asset", "/openapi.json", "/", "/dashboard/a/b",
    }  # fmt: skip
    sockets = {route.path: route.access[WEBSOCKET] for route in route_table() if WEBSOCKET in route.access}
    assert sockets == {"/api/v1/subscribe": Access.READ_WRITE}


@checks("G-SEC-1", level=Level.MODEL)
@pytest.mark.parametrize("role", ROLES)
async def test_every_route_answers_the_levels_that_it_is_for(http: httpx.AsyncClient, role: str | None) -> None:
    for place, (status, needed) in (await _statuses(http, token(role))).items():
        assert status == (PASSED if needed in ROLES[role] else 403), place


@checks("G-SEC-1", level=Level.MODEL)
async def test_every_route_that_needs_a_token_says_so(http: httpx.AsyncClient) -> None:
    for place, (status, needed) in (await _statuses(http, None)).items():
        assert status == (PASSED if needed is Access.PUBLIC else 401), place


@checks("G-SEC-2", level=Level.MODEL)
@pytest.mark.parametrize(("what", "text"), bad_tokens().items(), ids=bad_tokens())
async def test_every_route_refuses_a_bad_token(http: httpx.AsyncClient, what: str, text: str) -> None:
    for place, (status, needed) in (await _statuses(http, text)).items():
        assert status == (PASSED if needed is Access.PUBLIC else 401), f"{place} with {what}"


async def test_routes_without_a_level_are_for_administrators(http: httpx.AsyncClient) -> None:
    async def put(role: str) -> int:
        return (await http.put("/api/v1/push", headers={"Authorization": f"Bearer {token(role)}"})).status_code

    assert (await put("read-write"), await put("admin")) == (403, PASSED)
    assert (await http.put("/api/v1/push")).status_code == 401
    assert (await http.options("/api/v1/push")).status_code == PASSED


@pytest.mark.parametrize("rate_limit", [RateLimit(2)])
async def test_token_guessing_is_limited_by_address_and_does_not_lock_others_out(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queen.http.gate.time.monotonic", lambda: 0.0)

    async def ask(headers: dict[str, str]) -> int:
        return (await http.get("/api/v1/status", headers=headers)).status_code

    good, low = {"Authorization": f"Bearer {token()}"}, {"Authorization": f"Bearer {token('guest', sub='bob')}"}
    assert [await ask({"Authorization": f"Bearer guess{number}.a.b"}) for number in range(4)] == [401, 401, 429, 429]
    assert [await ask(good) for _ in range(3)] == [PASSED, PASSED, 429]
    assert [await ask(low) for _ in range(3)] == [403, 403, 429]


def test_skipped_paths_are_those_and_what_lies_below() -> None:
    skipped = SkippedPaths(["/health", "/"])
    assert [path in skipped for path in ("/health", "/health/live", "/", "/healthy", "/api", "//", "")] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip
