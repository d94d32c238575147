"""Which requests of web pages are accepted."""

from typing import Any

import pytest

from queen.config import from_environment
from queen.core.addresses import is_own_name
from queen.core.errors import ForbiddenError
from queen.http.origins import Pages, pages_of
from queen.http.request import QueenRequest

HOST = "127.0.0.1:6632"
#: Stands for a header that is not sent.
NONE = "-"


def request(headers: dict[str, str]) -> QueenRequest:
    async def receive() -> Any:
        raise AssertionError("the body was read")

    raw = [
        (name.lower().encode(), value.encode()) for name, value in {"Host": HOST, **headers}.items() if value != NONE
    ]
    scope = {
        "type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": raw, "http_version": "1.1",
        "scheme": "http", "server": ("127.0.0.1", 6632), "client": ("127.0.0.1", 1), "root_path": "",
    }  # fmt: skip
    return QueenRequest(scope, receive)


def refusal(headers: dict[str, str], *, harmless: bool = False, **variables: str) -> str:
    """What is said to who is refused, else nothing."""
    pages = pages_of(from_environment(variables))
    try:
        if pages is not None:
            pages.check(request(headers), harmless=harmless)
    except ForbiddenError as problem:
        return str(problem)
    return ""


def admits(headers: dict[str, str], **variables: str) -> bool:
    return not refusal(headers, **variables)


@pytest.mark.parametrize(
    ("headers", "admitted"),
    [
        ({}, True),
        ({"Origin": f"http://{HOST}"}, True),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://behind.a.proxy"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:8000"}, False),
        ({"Origin": "http://127.0.0.1:8000"}, False),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Origin": "http://["}, False),
        ({"Origin": "null", "Host": NONE}, False),
        ({"Origin": "null", "Host": ""}, False),
        ({"Host": NONE}, True),
        ({"Sec-Fetch-Site": "none", "Origin": "chrome-extension://abc"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": f"https://{HOST}"}, False),
        ({"Content-Type": "text/plain", "Origin": "https://evil.example"}, False),
        ({"Content-Type": "text/plain"}, True),
        ({"Host": "localhost:6632"}, True),
        ({"Host": "[::1]:6632"}, True),
        ({"Host": "rebound.example", "Origin": "http://rebound.example"}, False),
        ({"Host": "rebound.example"}, False),
    ],
)
def test_without_tokens_on_this_machine(headers: dict[str, str], admitted: bool) -> None:
    assert admits(headers) is admitted


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_names_of_the_server_are_local_ones_and_those_of_the_settings(host: str) -> None:
    assert admits({"Host": "queen:6632"}, HOST=host)
    assert admits({"Host": "10.1.2.3:6632"}, HOST=host)
    assert not admits({"Host": "queen:6632", "Origin": "https://evil.example"}, HOST=host)
    named = {"HOST": host, "QUEEN_HOSTS": "Queen.example.org, mq.internal"}
    for name in ("queen.example.org", "QUEEN.example.org.:6632", "mq.internal:80"):
        assert not admits({"Host": name}, HOST=host)
        assert admits({"Host": name}, **named)
        assert admits({"Host": name, "Origin": f"http://{name}"}, **named)
    assert not admits({"Host": "evil.queen.example.org"}, **named)
    assert not admits({"Host": "example.org"}, **named)


def test_a_refusal_names_the_setting_that_would_allow_it() -> None:
    assert "QUEEN_CORS_ORIGINS" in refusal({"Origin": "https://ops.example.org"})
    assert "https://ops.example.org" in refusal({"Origin": "https://ops.example.org"})
    assert "QUEEN_CORS_ORIGINS" in refusal({"Sec-Fetch-Site": "cross-site"})
    assert "QUEEN_HOSTS=queen.example.org" in refusal({"Host": "queen.example.org:6632"})
    assert len(refusal({"Host": "x." * 10_000})) < 500


@pytest.mark.parametrize(
    ("headers", "admitted"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, True),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, False),
        ({"Origin": "https://evil.example"}, False),
        ({"Host": "rebound.example"}, False),
    ],
)
def test_what_is_public_can_be_linked_to_and_not_read_by_other_pages(headers: dict[str, str], admitted: bool) -> None:
    assert (refusal(headers, harmless=True) == "") is admitted


def test_allowed_requests_are_admitted() -> None:
    allowed = {"QUEEN_CORS_ORIGINS": "https://ops.example.org"}
    assert admits({"Origin": "https://ops.example.org", "Sec-Fetch-Site": "cross-site"}, **allowed)
    assert admits({"Host": "ops.example.org"}, **allowed)
    assert admits({"Host": "ops.example.org:6632"}, **allowed)
    assert not admits({"Origin": "https://evil.example"}, **allowed)
    assert admits({"Origin": "https://evil.example"}, QUEEN_CORS_ORIGINS="*")
    assert not admits({"Origin": "https://evil.example"}, QUEEN_CORS_ORIGINS="")


def test_with_tokens_all_origins_and_host_names_are_allowed() -> None:
    assert pages_of(from_environment({"JWT_ENABLED": "1"})) is None
    assert isinstance(pages_of(from_environment({})), Pages)
    some = {"JWT_ENABLED": "1", "QUEEN_CORS_ORIGINS": "https://ops.example.org"}
    assert admits({"Host": "queen.example.org"}, **some)
    assert not admits({"Origin": "https://evil.example"}, **some)


@pytest.mark.parametrize(
    ("authority", "own"),
    [
        ("127.0.0.1", True), ("127.0.0.1:6632", True), ("10.0.0.1:80", True), ("[::1]", True), ("[::1]:80", True),
        ("localhost", True), ("LOCALHOST:1", True), ("localhost.:1", True), ("queen.localhost:6632", True),
        ("notlocalhost", True), ("localhost.evil.example", False), ("127.0.0.1.evil.example:6632", False),
        ("evil.example:127", False), ("evil.example.", False), ("my-machine:6632", True), ("x", True), ("a.b:c", False),
    ],
)  # fmt: skip
def test_names_that_others_cannot_point_at_this_machine(authority: str, own: bool) -> None:
    assert is_own_name(authority) is own
