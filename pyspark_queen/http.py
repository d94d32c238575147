"""Calls of a server over HTTP, repeated while it is down or busy."""

import re
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import httpx

from .errors import SourceError, UnreachableError

_LATER = frozenset({429, 502, 503, 504})
_PAUSE_S, _PAUSE_MAX_S = 0.1, 2.0


class Http:
    """A server. Calls may be repeated although they were answered, so they must be such that this does no harm."""

    def __init__(self, url: str, token: str | None, timeout_s: int) -> None:
        # A proxy may want a password, which no error has.
        self.name, self._timeout_s = re.sub("//[^/]*@", "//", url), timeout_s
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx.Client(base_url=url, headers=headers, timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()

    def call(
        self, method: str, path: str, what: str, then: str, content: bytes | None = None, **params: str | int
    ) -> httpx.Response:
        """The successful answer.

        Args:
            method: HTTP's.
            path: of the operation.
            what: what the server is to do, for errors: "store messages".
            then: what is true after an error.
            content: the body.
            params: of the query.

        Raises:
            SourceError: the server refuses.
            UnreachableError: no answer in time.
        """
        deadline, pause = time.monotonic() + self._timeout_s, _PAUSE_S
        while True:
            answer = self._try(method, path, what, content, params)
            if isinstance(answer, httpx.Response):
                return answer
            if time.monotonic() + pause > deadline:
                raise UnreachableError(f"{self.name} did not {what} in {self._timeout_s} s: {answer}. {then}")
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)

    def _try(
        self, method: str, path: str, what: str, content: bytes | None, params: Mapping[str, str | int]
    ) -> httpx.Response | str:
        """The answer, or why there is none now."""
        try:
            answer = self._client.request(method, path, content=content, params=params or None)
        except (httpx.LocalProtocolError, UnicodeEncodeError):
            # Its text may have the token.
            raise SourceError(f"{self.name} cannot be asked to {what}: the token or the body is not for HTTP") from None
        except httpx.TransportError as problem:
            return str(problem) or type(problem).__name__
        if answer.status_code in _LATER:
            return f"{answer.status_code} {_error(answer)}"
        if not answer.is_success:
            hint = ". Give a token, option token" if answer.status_code == 401 else ""
            raise SourceError(f"{self.name} refuses to {what}: {answer.status_code} {_error(answer)}{hint}")
        return answer


def _error(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]
