"""Which requests of pages in a browser are let through."""

from typing import Any

import pytest

from queen.config import from_environment
from queen.core.addresses import is_own_name
from queen.core.errors import ForbiddenError
from queen.http.origins import Pages, pages_of
from queen.http.request import QueenRequest

HOST = "127.0.0.1:6632"


def request(headers: dict[str, str]) -> QueenRequest:
    async def receive() -> Any:
        raise AssertionError("nobody asks")

    raw = [(name.lower().encode(), value.encode()) for name, value in {"Host": HOST, **headers}.items()]
    scope = {
        "type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": raw, "http_version": "1.1",
        "scheme": "http", "server": ("127.0.0.1", 6632), "client": ("127.0.0.1", 1), "root_path": "",
    }  # fmt: skip
    return QueenRequest(scope, receive)


def admits(headers: dict[str, str], **variables: str) -> bool:
    pages = pages_of(from_environment({"QUEEN_CORS_ORIGINS": "auto", **variables}))
    try:
        if pages is not None:
            pages.check(request(headers))
    except ForbiddenError:
        return False
    return True


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
        ({"Host": "localhost:6632"}, True),
        ({"Host": "[::1]:6632"}, True),
        ({"Host": "rebound.example", "Origin": "http://rebound.example"}, False),
        ({"Host": "rebound.example"}, False),
    ],
)
def test_without_tokens_on_this_machine(headers: dict[str, str], admitted: bool) -> None:
    assert admits(headers) is admitted


def test_a_server_for_other_machines_has_a_name_that_it_does_not_know() -> None:
    assert admits({"Host": "queen:6632"}, HOST="0.0.0.0")
    assert not admits({"Host": "queen:6632", "Origin": "https://evil.example"}, HOST="0.0.0.0")


def test_what_the_settings_allow_is_let_through() -> None:
    allowed = {"QUEEN_CORS_ORIGINS": "https://ops.example.org"}
    assert admits({"Origin": "https://ops.example.org", "Sec-Fetch-Site": "cross-site"}, **allowed)
    assert admits({"Host": "ops.example.org"}, **allowed)
    assert not admits({"Origin": "https://evil.example"}, **allowed)
    assert admits({"Origin": "https://evil.example"}, QUEEN_CORS_ORIGINS="*")
    assert not admits({"Origin": "https://evil.example"}, QUEEN_CORS_ORIGINS="")


def test_where_only_tokens_open_anything_every_page_may_come() -> None:
    assert pages_of(from_environment({"QUEEN_CORS_ORIGINS": "auto", "JWT_ENABLED": "1"})) is None
    assert isinstance(pages_of(from_environment({"QUEEN_CORS_ORIGINS": "auto"})), Pages)
    assert pages_of(from_environment({})) is None, "as the original"


@pytest.mark.parametrize(
    ("authority", "own"),
    [
        ("127.0.0.1", True), ("127.0.0.1:6632", True), ("10.0.0.1:80", True), ("[::1]", True), ("[::1]:80", True),
        ("localhost", True), ("LOCALHOST:1", True), ("localhost.:1", True), ("queen.localhost:6632", True),
        ("notlocalhost", True), ("localhost.evil.example", False), ("127.0.0.1.evil.example:6632", False),
        ("evil.example:127", False), ("evil.example.", False), ("my-machine:6632", True), ("x", True), ("a.b:c", False),
    ],
)  # fmt: skip
def test_names_that_nobody_else_can_point_at_this_machine(authority: str, own: bool) -> None:
    assert is_own_name(authority) is own
