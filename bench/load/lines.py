"""The lines that k6 scripts write with JOURNAL=1: one call each, with unparsed request and answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from queen.core.errors import QueenError
from spark_validation.journal.schema import Outcome


class LoadError(QueenError):
    """The record of a run of k6 cannot be read."""

    code = "bench_load"


class Line(Struct, frozen=True):
    """One call as a script records it; times in milliseconds."""

    op: str
    vu: int
    sent: int
    answered: int
    status: int
    request: dict[str, Any] | None
    response: Raw

    @property
    def outcome(self) -> Outcome:
        """Whether the call may have taken effect: it has no answer, or one that says that the outcome is unknown."""
        if 200 <= self.status < 300:
            return "ok"
        return "fail" if 400 <= self.status < 500 else "unknown"


def answer_of(line: Line, type_: type[Any]) -> Any:  # noqa: ANN401 - of that type
    """The decoded answer; ``None`` if there was none, or a refusal.

    Raises:
        LoadError: it does not conform to the interface.
    """
    if line.outcome != "ok" or line.status == 204:
        return None
    try:
        return msgspec.json.decode(line.response, type=type_)
    except msgspec.DecodeError as problem:
        raise LoadError(f"The answer to {line.op} does not conform to the interface: {problem}") from problem


def read(path: Path) -> Iterator[Line]:
    """The lines of a file, without an incomplete last one.

    Raises:
        LoadError: a line cannot be read.
    """
    decoder = msgspec.json.Decoder(Line)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                try:
                    yield decoder.decode(line)
                except msgspec.DecodeError as problem:
                    raise LoadError(f"{path}, line {number}: the answer to a call was not JSON: {problem}") from problem
