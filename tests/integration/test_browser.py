"""What a page in a browser needs of the server: CORS, preflights, HEAD, and answers of errors that it may read."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.support.api import Api, open_client, pop_path
from tests.support.processes import Server, open_folder
from tests.support.servers import serving_database
from tests.support.sockets import PATH

PAGE = {"Origin": "https://dashboard.example.org"}


@pytest.fixture(scope="module")
def open_server(server: Server) -> Iterator[Server]:
    """A second instance on the same database, for pages of every origin."""
    with open_folder() as folder, serving_database(server.dsn, folder, QUEEN_CORS_ORIGINS="*") as running:
        yield running


@pytest.fixture
async def open_api(open_server: Server) -> AsyncIterator[Api]:
    async with open_client(open_server.port) as http:
        yield Api(http)


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
async def test_a_preflight_is_answered_with_what_the_page_may_do(open_api: Api, path: str, method: str) -> None:
    response = await open_api.http.options(path, headers=preflight(method))
    assert response.status_code == 200
    assert response.content == b""
    assert response.headers["access-control-allow-origin"] == "*"
    assert method in response.headers["access-control-allow-methods"]
    assert response.headers["access-control-allow-headers"] == "authorization, content-type"
    assert int(response.headers["access-control-max-age"]) > 0


async def test_answers_good_and_bad_may_be_read_by_a_page(open_api: Api, queue: str) -> None:
    good = await open_api.http.get("/api/v1/resources/queues", headers=PAGE)
    bad = await open_api.http.get(pop_path(queue), params={"batch": "x"}, headers=PAGE)
    unknown = await open_api.http.get("/no/such/path", headers=PAGE)
    empty = await open_api.http.get(pop_path(queue), headers=PAGE)
    answers = [good, bad, unknown, empty]
    assert [answer.status_code for answer in answers] == [200, 400, 404, 204]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["access-control-expose-headers"] == "Retry-After, X-Request-Id"


async def test_requests_without_origin_get_no_cors_headers(api: Api) -> None:
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
    assert (own.status_code, other.status_code) == (200, 403)


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


def test_sockets_of_pages_of_every_origin_are_let_in_where_that_is_wanted(open_server: Server) -> None:
    assert handshake(f"http://127.0.0.1:{open_server.port}", PAGE) == 101


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
def test_by_default_no_page_of_others_reads_or_changes_anything(server: Server, headers: dict[str, str]) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as own:
        own.post("/api/v1/push", json={"items": [{"queue": "kept", "payload": 1}]}).raise_for_status()
        with httpx.Client(base_url=own.base_url, headers=headers) as page:
            answers = [
                page.post("/api/v1/push", content=b'{"items":[{"queue":"kept","payload":2}]}'),
                page.get(pop_path("kept")),
                page.get("/api/v1/messages"),
                page.delete("/api/v1/resources/queues/kept"),
                page.delete("/api/v1/dlq?queue=kept"),
            ]
        left = own.get(pop_path("kept"), params={"autoAck": "true", "batch": 10}).json()["messages"]
    assert [message["data"] for message in left] == [1]
    assert [answer.status_code for answer in answers] == [403] * 5
    assert {answer.headers["content-type"] for answer in answers} == {"application/problem+json"}
    assert not [answer for answer in answers if "access-control-allow-origin" in answer.headers]
    setting = "QUEEN_HOSTS=rebound.example" if "Host" in headers else "QUEEN_CORS_ORIGINS"
    assert all(setting in answer.json()["detail"] for answer in answers)


@pytest.mark.parametrize("path", ["/health", "/metrics/prometheus", "/", "/openapi.json"])
def test_by_default_what_is_public_may_be_linked_to_and_not_read(server: Server, path: str) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
        assert client.get(path, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}).is_success
        for headers in (PAGE, {"Host": "rebound.example"}):
            answer = client.get(path, headers=headers)
            assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (403, False)
        assert client.options(path, headers=preflight("GET")).status_code == 403


def test_by_default_pages_of_the_server_itself_do_everything(server: Server) -> None:
    own = {"Origin": f"http://localhost:{server.port}", "Sec-Fetch-Site": "same-origin"}
    with httpx.Client(base_url=f"http://localhost:{server.port}", headers=own) as page:
        assert page.post("/api/v1/push", json={"items": [{"queue": "own", "payload": 1}]}).status_code == 201
        assert page.delete("/api/v1/resources/queues/own").status_code == 200


@pytest.mark.parametrize("headers", [PAGE, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}])
def test_by_default_no_page_of_others_opens_a_socket(server: Server, headers: dict[str, str]) -> None:
    with httpx.stream("GET", f"http://127.0.0.1:{server.port}{PATH}", headers=UPGRADE | headers) as answer:
        answer.read()
    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    assert answer.json()["status"] == 403
    assert "QUEEN_CORS_ORIGINS" in answer.json()["detail"]


UPGRADE = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


def handshake(url: str, headers: dict[str, str]) -> int:
    """The status of the answer to the handshake of a WebSocket."""
    with httpx.stream("GET", url + PATH, headers=UPGRADE | headers) as answer:
        return answer.status_code
