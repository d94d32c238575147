"""The queues of SQS that workers of an instance have used, so that each worker knows them while PostgreSQL is down."""

import logging
from contextlib import suppress

import msgspec
from msgspec import Struct

from queen.core.errors import SpoolError
from queen.simple_mq.sqs_requests import SqsQueue
from queen.spool.spool import Spool

log = logging.getLogger("queen.spool")

#: About 50,000 queues; workers know only their own beyond that.
_FILE_BYTES_MAX = 16 << 20
#: Up to this size the list may have lines of queues that are gone, and older lines of others.
_SHORTEN_BYTES = 1 << 20


class _Line(Struct, frozen=True):
    """A queue as a worker has found it; ``None``: there is none of the name."""

    name: str
    queue: SqsQueue | None


_decoder = msgspec.json.Decoder(_Line)


class UsedQueues:
    """The list of one worker, and the file of all."""

    def __init__(self) -> None:
        self._mine: dict[str, SqsQueue] = {}
        self._all: dict[str, SqsQueue | None] = {}
        self._read: int | None = 0
        self._shorten_at = _SHORTEN_BYTES
        self._full = False

    def note(self, spool: Spool, name: str, queue: SqsQueue | None) -> None:
        """Notes what PostgreSQL has said of a name."""
        self._read = None  # since it is reachable, the list may be another one of the same size
        if self._mine.get(name) == queue:
            return
        if queue is None:
            del self._mine[name]
        else:
            self._mine[name] = queue
        with suppress(OSError, SpoolError):  # then other workers refuse its messages during an outage
            self._shorten(spool)
            if spool.sqs_queues_size < _FILE_BYTES_MAX:
                spool.note_sqs_queue(msgspec.json.encode(_Line(name, queue)))
            elif not self._full:
                self._full = True
                log.warning(
                    "The list of SQS queues beside the spool is full (%s MiB): while PostgreSQL is down, a worker "
                    "refuses messages for queues that it has not used itself. A restart of the server empties the list",
                    _FILE_BYTES_MAX >> 20,
                )

    def _shorten(self, spool: Spool) -> None:
        """Keeps the last line of each queue that is there, once they are less than half of the list, or it is full."""
        if self._full or spool.sqs_queues_size <= min(self._shorten_at, _FILE_BYTES_MAX - 1):
            return
        rest = 0

        def shortened(content: bytes) -> bytes:
            nonlocal rest
            short = b"".join(
                b"\n" + msgspec.json.encode(_Line(name, queue)) for name, queue in _decoded(content).items() if queue
            )
            rest = len(short)
            full = len(content) >= _FILE_BYTES_MAX > rest + _SHORTEN_BYTES
            return short if full or 2 * rest < len(content) else content

        spool.shorten_sqs_queues(shortened)
        self._shorten_at = max(_SHORTEN_BYTES, 2 * rest)

    def find(self, spool: Spool, name: str) -> SqsQueue | None:
        """The queue of a name, as a worker has noted it last; ``None``: none has, or it is gone."""
        with suppress(OSError):
            size = spool.sqs_queues_size
            if size != self._read:
                self._all = _decoded(spool.sqs_queues())
                self._read = size
        return self._all.get(name, self._mine.get(name))


def _decoded(content: bytes) -> dict[str, SqsQueue | None]:
    """The last line of each name; a line that a crash has cut off does not count."""
    found = {}
    for line in content.split(b"\n"):
        with suppress(msgspec.MsgspecError):
            read = _decoder.decode(line)
            found[read.name] = read.queue
    return found
