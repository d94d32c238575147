"""The connection of commands to a server: requests, and one-line errors."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from msgspec import Struct

from queen.cli.errors import ExitCode, FailedError, UsageError

T = TypeVar("T")
#: Parameters of a query; ``None`` is omitted, and a list becomes one parameter per element.
Parameters = Mapping[str, str | int | bool | Sequence[str] | None]

DEFAULT_URL = "http://127.0.0.1:6632"
_CONNECT_S = 10.0
_PORT_MAX = 65_535
#: More than a server needs for any request except long polls.
ANSWER_S = 60.0
_ADVICE = {
    401: "give a token with --token or QUEEN_TOKEN",
    403: "this needs a token with a higher access level",
}


class UnreachableError(FailedError):
    """No answer, or not one of a Queen server; the outcome of the request is unknown."""

    exit_code = ExitCode.IMPOSSIBLE


class RefusedError(FailedError):
    """The server refused the request."""

    def __init__(self, status: int, detail: str, retry_after: str = "") -> None:
        self.status, self.detail = status, detail
        later = f"; try again in {retry_after} s" if retry_after else ""
        advice = f": {_ADVICE[status]}" if status in _ADVICE else ""
        super().__init__(f"{detail} ({status}{later}){advice}")


class _Problem(Struct):
    """An error answer, with the fields that are shown."""

    detail: str


def at(template: str, *names: str) -> str:
    """A path with encoded names for ``{}``.

    Raises:
        UsageError: a name is empty or not UTF-8.
    """
    return template.format(*[_quoted(name) for name in names])


def _quoted(name: str) -> str:
    if not name:
        raise UsageError("a name must have at least one character")
    # HTTP clients resolve a segment of dots.
    return quote(_utf8(name), safe="").replace(".", "%2E")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{text!r} is not UTF-8") from None


class Server:
    """A connection to a server; every method raises FailedError."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url, self.has_token = checked(url), bool(token)
        headers = {"Authorization": f"Bearer {_header(token)}"} if token else {}
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=ANSWER_S)
        except (httpx.HTTPError, OSError, ValueError) as problem:
            raise UsageError(
                f"no connection is possible with the proxy or TLS variables of the environment: {problem}"
            ) from None

    def close(self) -> None:
        """Closes the connection."""
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
        also: Collection[int] = (),
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Sends a request; the answer is not an error, or has one of the statuses ``also``."""
        query = {name: _query(value) for name, value in (parameters or {}).items() if value is not None}
        answer = self._answer(method, path, query, body, timeout_s, headers)
        if not answer.is_success and answer.status_code not in also:
            raise self._refusal(answer)
        return answer

    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | list[str]],
        body: object,
        timeout_s: float,
        headers: Mapping[str, str] | None,
    ) -> httpx.Response:
        timeout = httpx.Timeout(timeout_s, connect=_CONNECT_S)
        try:
            content = msgspec.json.encode(body) if body is not None else None
            return self._http.request(
                method, path, params=dict(query) or None, content=content, timeout=timeout, headers=headers
            )
        except UnicodeEncodeError as problem:
            raise UsageError(f"{problem.object!r} is not UTF-8") from None
        except httpx.ConnectTimeout:
            raise UnreachableError(f"{self.url} is unreachable: no connection within {_CONNECT_S:g} s") from None
        except httpx.ConnectError as problem:
            advice = "is a server running there? --url or QUEEN_URL names another"
            raise UnreachableError(f"{self.url} is unreachable: {problem}; {advice}") from None
        except httpx.TimeoutException:
            raise UnreachableError(f"{self.url} did not answer within {timeout_s:g} s") from None
        except httpx.HTTPError as problem:
            raise UnreachableError(f"{self.url} sent no answer: {problem}") from None

    def _refusal(self, answer: httpx.Response) -> FailedError:
        try:
            problem = msgspec.json.decode(answer.content, type=_Problem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._stranger(answer)
        return RefusedError(answer.status_code, problem.detail, answer.headers.get("Retry-After", ""))

    def decoded(self, kind: type[T], answer: httpx.Response) -> T:
        """The decoded body of an answer."""
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._stranger(answer) from None

    def _stranger(self, answer: httpx.Response) -> UnreachableError:
        kind = answer.headers.get("Content-Type", "nothing")
        return UnreachableError(f"{self.url} answered {answer.status_code} with {kind}: this is not a Queen server")


def checked(url: str) -> str:
    """The URL without its password."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError) as problem:
        raise UsageError(f"--url {url!r} is not a URL: {problem}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(f"--url {url!r} is not the URL of a server: write it like {DEFAULT_URL}")
    if parsed.port is not None and not 0 < parsed.port <= _PORT_MAX:
        raise UsageError(f"--url {url!r} has port {parsed.port}: a port is from 1 to {_PORT_MAX}")
    return str(parsed.copy_with(username="", password="") if parsed.userinfo else parsed)


def _header(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("the token has invalid characters: is --token or QUEEN_TOKEN cut off, or quoted?")
    return token


def _query(value: Any) -> str | list[str]:  # noqa: ANN401 - see Parameters
    if isinstance(value, list):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)
