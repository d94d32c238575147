"""The transcript of the original, replayed: each recorded request is sent to this server, and the answers are compared.

Ids of the recording are replaced by those that this server gave for the same thing. What is compared is the meaning:
status, fields, types, and values that are neither ids nor times. A difference is a short text such as
`status 200 → 204` or `value $.messages[].data`.
"""

import http.client
import json
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from tests.support.processes import ROOT

TRANSCRIPT = ROOT / "tests" / "data" / "transcript-cpp-queen.jsonl"

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?")
#: Times so short that a busy machine would miss them are longer here; `pass_time` lets them pass without a wait.
_HURRY = re.compile(r'"(leaseTime|delayedProcessing|windowBuffer|maxWaitTimeSeconds)": [123]\b')
_UNHURRIED = r'"\1": 60'
#: Figures of the moment: their values say nothing, only their types do.
_FIGURES = re.compile(r"/health|/metrics|/api/v1/(status|analytics|stats|resources/(overview|namespaces|tasks))")
_TIMEOUT_S = 60


class Answer(Struct, frozen=True):
    """An answer.

    Attributes:
        status: 0 if there was no answer.
        body: a text where it is no JSON, `None` where there is none.
        is_whole: whether all of the body was recorded.
    """

    status: int
    body: Any
    is_whole: bool = True


class Record(Struct, frozen=True):
    """One request of the recording, and what the original answered."""

    number: int
    section: str
    note: str
    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes
    answer: Answer


def records(path: Path = TRANSCRIPT) -> Iterator[Record]:
    """The recording, in its order."""
    for line in path.read_text(encoding="utf-8").splitlines():
        found = json.loads(_HURRY.sub(_UNHURRIED, line))
        request, response = found["request"], found["response"]
        content = json.dumps(request["body"]) if "body" in request else request.get("body_text", "")
        yield Record(
            found["n"],
            found["section"],
            found["note"],
            request["method"],
            request["path"],
            {name: value for name, value in request.get("headers", {}).items() if value is not None},
            # What was no text was written down byte for byte.
            content.encode("latin-1" if request["method"] == "RAW" else "utf-8"),
            Answer(
                response.get("status") or 0,
                response.get("body", response.get("body_text") or None),
                is_whole="body_cut" not in response,
            ),
        )


class Replay:
    """A recording against a server; keeps which id of the one is which of the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ids: dict[str, str] = {}

    def play(self, record: Record) -> list[str]:
        """Sends a request; the differences of the answers."""
        answer = self._send(record)
        self._learn(record.answer.body, answer.body)
        return sorted(set(differences(record, answer)))

    def _send(self, record: Record) -> Answer:
        if record.method == "RAW":
            return self._send_raw(record.content)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        try:
            path = quote(self._translated(record.path), safe="/?&=%;',:+-._~*()!$@")
            content = self._translated(record.content.decode()).encode()
            connection.request(record.method, path, content or None, dict(record.headers))
            return _answer(connection.getresponse())
        finally:
            connection.close()

    def _send_raw(self, content: bytes) -> Answer:
        with socket.create_connection(("127.0.0.1", self._port), _TIMEOUT_S) as connection:
            connection.sendall(content)
            response = http.client.HTTPResponse(connection)
            try:
                response.begin()
                return _answer(response)
            except (http.client.HTTPException, ConnectionError):
                return Answer(0, None)

    def _translated(self, text: str) -> str:
        return _UUID.sub(lambda found: self._ids.get(found[0], found[0]), text)

    def _learn(self, recorded: Any, own: Any) -> None:
        match recorded, own:
            case dict(), dict():
                for name in recorded.keys() & own.keys():
                    self._learn(recorded[name], own[name])
            case list(), list():
                for each in zip(recorded, own, strict=False):
                    self._learn(*each)
            case str(), str() if _UUID.fullmatch(recorded):
                self._ids.setdefault(recorded, own)


def _answer(response: http.client.HTTPResponse) -> Answer:
    content = response.read().decode()
    try:
        return Answer(response.status, json.loads(content) if content else None)
    except json.JSONDecodeError:
        return Answer(response.status, content)


# ---------------------------------------------------------------- comparing


def differences(record: Record, own: Answer) -> Iterator[str]:
    """In what an answer differs from the recorded one."""
    recorded = record.answer
    if recorded.status != own.status:
        yield f"status {recorded.status or 'none'} → {own.status or 'none'}"
    if recorded.is_whole:
        yield from _compare(recorded.body, own.body, "$", exact=not _FIGURES.match(record.path))


def _compare(recorded: Any, own: Any, place: str, *, exact: bool) -> Iterator[str]:
    match recorded, own:
        case dict(), dict():
            for name in sorted(recorded.keys() - own.keys()):
                yield f"without {place}.{name}"
            for name in sorted(own.keys() - recorded.keys()):
                yield f"with {place}.{name}"
            for name in recorded.keys() & own.keys():
                yield from _compare(recorded[name], own[name], f"{place}.{name}", exact=exact)
        case list(), list():
            if len(recorded) != len(own) and exact:
                yield f"length {place}"
            for each in zip(recorded, own, strict=False):
                yield from _compare(*each, f"{place}[]", exact=exact)
        case (None, _) | (_, None) if not exact and place != "$":
            return  # Nothing of the kind had happened when the one or the other was asked.
        case _ if _kind(recorded) != _kind(own):
            yield f"type {place}: {_kind(recorded)} → {_kind(own)}"
        case (str(), str()) if exact and recorded != own and not (_is_made(recorded) and _is_made(own)):
            yield f"value {place}"
        case (bool(), bool()) | (int() | float(), int() | float()) if exact and recorded != own:
            yield f"value {place}"


def _kind(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            return "list"
        case _:
            return "object"


def _is_made(text: str) -> bool:
    """Whether a text is an id or a time: those are made again every time."""
    return bool(_UUID.fullmatch(text) or _TIME.fullmatch(text))
