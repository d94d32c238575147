"""The server as commands speak to it: requests, and one line for each way in which they fail."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from msgspec import Struct

from queen.cli.output import fail

T = TypeVar("T")
#: Of a query; what is ``None`` is left out, and a list is a parameter that is there several times.
Parameters = Mapping[str, str | int | bool | Sequence[str] | None]

DEFAULT_URL = "http://127.0.0.1:6632"
_CONNECT_S = 10.0
#: Longer than a server takes for what does not wait.
ANSWER_S = 60.0
_ADVICE = {
    401: "give a token with --token or QUEEN_TOKEN",
    403: "this needs a token of a higher level",
}


class FailedError(Exception):
    """Something that ends a command; ``str()`` is a line for people."""

    exit_code = 1


class UsageError(FailedError):
    """What was asked for makes no sense, so that it was not sent."""

    exit_code = 2


class UnreachableError(FailedError):
    """There is no answer, or not one of such a server: the request may have been carried out or not."""

    exit_code = 2


class RefusedError(FailedError):
    """The server's answer is no."""

    def __init__(self, status: int, detail: str, retry_after: str = "") -> None:
        self.status, self.detail = status, detail
        later = f"; try again in {retry_after} s" if retry_after else ""
        advice = f": {_ADVICE[status]}" if status in _ADVICE else ""
        super().__init__(f"{detail} ({status}{later}){advice}")


class _Problem(Struct):
    """An error answer, as far as it is shown."""

    detail: str


def at(template: str, *names: str) -> str:
    """A path with names in the places of ``{}``, whatever characters they have.

    Raises:
        UsageError: a name is empty or not UTF-8.
    """
    return template.format(*[_quoted(name) for name in names])


def _quoted(name: str) -> str:
    if not name:
        raise UsageError("a name has at least one character")
    # A path of dots alone would be another one.
    return quote(_utf8(name), safe="").replace(".", "%2E")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{text!r} is not UTF-8") from None


class Server:
    """A connection to a server; every method raises FailedError."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = _checked(url)
        headers = {"Authorization": f"Bearer {_header(token)}"} if token else {}
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=ANSWER_S)
        except (httpx.HTTPError, OSError, ValueError) as problem:
            raise UsageError(f"no connection can be made as the environment asks for it: {problem}") from None

    def close(self) -> None:
        """Closes its connection."""
        self._http.close()

    def get(self, kind: type[T], path: str, parameters: Parameters | None = None, timeout_s: float = ANSWER_S) -> T:
        """The answer to a GET."""
        return self.decoded(kind, self.send("GET", path, parameters, timeout_s=timeout_s))

    def post(self, kind: type[T], path: str, body: object, timeout_s: float = ANSWER_S) -> T:
        """The answer to a POST."""
        return self.decoded(kind, self.send("POST", path, body=body, timeout_s=timeout_s))

    def delete(self, kind: type[T], path: str, parameters: Parameters | None = None) -> T:
        """The answer to a DELETE."""
        return self.decoded(kind, self.send("DELETE", path, parameters))

    def send(
        self,
        method: str,
        path: str,
        parameters: Parameters | None = None,
        body: object = None,
        timeout_s: float = ANSWER_S,
    ) -> httpx.Response:
        """An answer that is not an error."""
        query = {name: _query(value) for name, value in (parameters or {}).items() if value is not None}
        timeout = httpx.Timeout(timeout_s, connect=_CONNECT_S)
        try:
            content = msgspec.json.encode(body) if body is not None else None
            answer = self._http.request(method, path, params=query or None, content=content, timeout=timeout)
        except UnicodeEncodeError as problem:
            raise UsageError(f"{problem.object!r} is not UTF-8") from None
        except httpx.ConnectTimeout:
            raise UnreachableError(f"{self.url} cannot be reached: no connection within {_CONNECT_S:g} s") from None
        except httpx.ConnectError as problem:
            advice = "is a server running there? --url or QUEEN_URL names another"
            raise UnreachableError(f"{self.url} cannot be reached: {problem}; {advice}") from None
        except httpx.TimeoutException:
            raise UnreachableError(f"{self.url} does not answer within {timeout_s:g} s") from None
        except httpx.HTTPError as problem:
            raise UnreachableError(f"{self.url} gives no answer: {problem}") from None
        if not answer.is_success:
            raise self._refusal(answer)
        return answer

    def _refusal(self, answer: httpx.Response) -> FailedError:
        try:
            problem = msgspec.json.decode(answer.content, type=_Problem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._stranger(answer)
        return RefusedError(answer.status_code, problem.detail, answer.headers.get("Retry-After", ""))

    def decoded(self, kind: type[T], answer: httpx.Response) -> T:
        """The body of an answer."""
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._stranger(answer) from None

    def _stranger(self, answer: httpx.Response) -> UnreachableError:
        kind = answer.headers.get("Content-Type", "nothing")
        return UnreachableError(f"{self.url} answers {answer.status_code} with {kind}, unlike a Queen server")


@contextmanager
def connected(url: str, token: str | None) -> Iterator[Server]:
    """The server for the length of the block; what fails in it ends the command with a line."""
    try:
        server = Server(url, token)
        try:
            yield server
        finally:
            server.close()
    except FailedError as problem:
        fail(problem, problem.exit_code)
    except RecursionError:
        fail("an answer is nested more deeply than can be read")


def _checked(url: str) -> str:
    """The URL as it may be shown: without a password."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError) as problem:
        raise UsageError(f"--url {url!r} is no URL: {problem}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(f"--url {url!r} is no URL of a server: write it as {DEFAULT_URL}")
    return str(parsed.copy_with(username="", password="") if parsed.userinfo else parsed)


def _header(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("the token holds characters that no token has: is --token or QUEEN_TOKEN cut off, or quoted?")
    return token


def _query(value: Any) -> str | list[str]:  # noqa: ANN401 - see Parameters
    if isinstance(value, list):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)
