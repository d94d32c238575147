"""Calls in the form of the k6 scripts, for `bench.load.journal`: unparsed requests and answers."""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

_MS = 1_000_000


class Entry(Struct, frozen=True):
    """A call; times in nanoseconds of a monotonic clock."""

    op: str
    client: int
    sent: int
    answered: int
    status: int
    request: bytes
    response: bytes


def write(path: Path, entries: Iterable[Entry], wall_ns: int) -> None:
    """Writes one line per call, in the order of their ends; ``wall_ns`` converts their times to times since 1970."""
    with path.open("wb") as file:
        for each in sorted(entries, key=lambda entry: entry.answered):
            # An end is rounded up, so that a call precedes another in the journal only if it did.
            file.write(
                b'{"op":"%b","vu":%d,"sent":%d,"answered":%d,"status":%d,"request":%b,"response":%b}\n'
                % (
                    each.op.encode(), each.client, (each.sent + wall_ns) // _MS, (each.answered + wall_ns) // _MS + 1,
                    each.status, each.request, each.response or b"null",
                )
            )  # fmt: skip
