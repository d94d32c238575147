"""What a page in a browser needs of the server: CORS, preflights, HEAD, and answers of errors that it may read."""

from collections.abc import Iterator

import httpx
import pytest

from tests.support.api import Api, pop_path
from tests.support.processes import Server, open_folder
from tests.support.servers import serving_database
from tests.support.sockets import PATH

PAGE = {"Origin": "https://dashboard.example.org"}


@pytest.fixture(scope="module")
def careful(server: Server) -> Iterator[Server]:
    """A second instance on the same database, which looks at where pages come from."""
    with open_folder() as folder, serving_database(server.dsn, folder, QUEEN_CORS_ORIGINS="auto") as running:
        yield running


def preflight(method: str) -> dict[str, str]:
    return {
        **PAGE,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization, content-type",
    }


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/api/v1/push", "POST"),
        ("/api/v1/resources/queues/a%2Fb", "DELETE"),
        ("/api/v1/messages", "GET"),
        ("/api/queues", "POST"),
    ],
)
async def test_a_preflight_is_answered_with_what_the_page_may_do(api: Api, path: str, method: str) -> None:
    response = await api.http.options(path, headers=preflight(method))
    assert response.status_code == 200
    assert response.content == b""
    assert response.headers["access-control-allow-origin"] == "*"
    assert method in response.headers["access-control-allow-methods"]
    assert response.headers["access-control-allow-headers"] == "authorization, content-type"
    assert int(response.headers["access-control-max-age"]) > 0


async def test_answers_good_and_bad_may_be_read_by_a_page(api: Api, queue: str) -> None:
    good = await api.http.get("/api/v1/resources/queues", headers=PAGE)
    bad = await api.http.get(pop_path(queue), params={"batch": "x"}, headers=PAGE)
    unknown = await api.http.get("/no/such/path", headers=PAGE)
    empty = await api.http.get(pop_path(queue), headers=PAGE)
    answers = [good, bad, unknown, empty]
    assert [answer.status_code for answer in answers] == [200, 400, 404, 204]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["access-control-expose-headers"] == "Retry-After, X-Request-Id"


async def test_who_is_no_page_gets_no_headers_for_pages(api: Api) -> None:
    response = await api.http.get("/health")
    assert [name for name in response.headers if name.startswith("access-control")] == []


async def test_options_say_what_a_path_answers(api: Api) -> None:
    pop = await api.http.options("/api/v1/pop")
    listing = await api.http.options("/api/v1/resources/queues")
    assert set(pop.headers["allow"].split(", ")) == {"GET"}
    assert set(listing.headers["allow"].split(", ")) == {"GET", "HEAD"}
    assert (await api.http.options("/no/such/path")).status_code == 404


@pytest.mark.parametrize(
    "path",
    ["/health", "/health/live", "/api/v1/resources/overview", "/metrics", "/openapi.json", "/docs", "/docs/docs.js"],
)
async def test_head_is_get_without_the_body(api: Api, path: str) -> None:
    head, get = await api.http.head(path), await api.http.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


async def test_head_of_what_is_not_there_is_404(api: Api, queue: str) -> None:
    head = await api.http.head(f"/api/v1/resources/queues/{queue}")
    assert (head.status_code, head.content) == (404, b"")


async def test_head_takes_no_message(api: Api, queue: str) -> None:
    await api.push(queue, 1)
    assert (await api.http.head(pop_path(queue))).status_code == 405
    assert (await api.pop(queue)).data == [1]


async def test_a_wrong_method_says_which_are_right(api: Api) -> None:
    response = await api.http.get("/api/v1/push")
    assert response.status_code == 405
    assert set(response.headers["allow"].split(", ")) == {"OPTIONS", "POST"}


@pytest.fixture(scope="module")
def choosy_server(server: Server) -> Iterator[Server]:
    """A second instance on the same database, for pages of one origin only."""
    with (
        open_folder() as folder,
        serving_database(server.dsn, folder, "--workers", "1", QUEEN_CORS_ORIGINS="https://ops.example.org") as running,
    ):
        yield running


def test_pages_of_other_origins_may_be_shut_out(choosy_server: Server) -> None:
    url = f"http://127.0.0.1:{choosy_server.port}/health"
    own = httpx.get(url, headers={"Origin": "https://ops.example.org"})
    other = httpx.get(url, headers=PAGE)
    assert own.headers["access-control-allow-origin"] == "https://ops.example.org"
    assert "access-control-allow-origin" not in other.headers
    assert other.status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [("https://ops.example.org", 101), ("https://evil.example", 403), ("null", 403), (None, 101), ("", 101)],
)
def test_sockets_of_pages_of_other_origins_are_shut_out_too(
    choosy_server: Server, origin: str | None, status: int
) -> None:
    """Of the origin "", which stands for the server's own."""
    own = f"http://127.0.0.1:{choosy_server.port}"
    headers = {} if origin is None else {"Origin": origin or own}
    assert handshake(own, headers) == status


def test_sockets_of_pages_of_every_origin_are_let_in_where_no_origin_is_named(server: Server) -> None:
    assert handshake(f"http://127.0.0.1:{server.port}", PAGE) == 101


@pytest.mark.parametrize(
    "headers",
    [
        {**PAGE, "Content-Type": "text/plain"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", **PAGE},
        {"Host": "rebound.example:6632", "Origin": "http://rebound.example:6632"},
        {"Host": "rebound.example:6632"},
    ],
)
def test_without_tokens_no_page_of_others_reads_or_changes_anything(careful: Server, headers: dict[str, str]) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{careful.port}", headers=headers) as page:
        answers = [
            page.post("/api/v1/push", content=b'{"items":[{"queue":"stolen","payload":1}]}'),
            page.get(pop_path("stolen")),
            page.get("/api/v1/messages"),
            page.delete("/api/v1/resources/queues/stolen"),
        ]
    assert [answer.status_code for answer in answers] == [403] * 4
    assert not [answer for answer in answers if "access-control-allow-origin" in answer.headers]
    assert "docs/security.md" in answers[0].json()["detail"]


def test_without_tokens_no_page_of_others_opens_a_socket(careful: Server) -> None:
    assert handshake(f"http://127.0.0.1:{careful.port}", PAGE) == 403


def handshake(url: str, headers: dict[str, str]) -> int:
    """The status of the answer to the handshake of a WebSocket."""
    wants = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    with httpx.stream("GET", url + PATH, headers=wants | headers) as answer:
        return answer.status_code
