"""The queues of SQS that workers of an instance have used, so that each worker knows them while PostgreSQL is down."""

import logging
from contextlib import suppress

import msgspec
from msgspec import Struct

from queen.simple_mq.sqs_requests import SqsQueue
from queen.spool.spool import Spool

log = logging.getLogger("queen.spool")

#: About 50,000 queues, or changes of their attributes; workers know only their own beyond that.
_FILE_BYTES_MAX = 16 << 20


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
        self._read = 0
        self._full = False

    def note(self, spool: Spool, name: str, queue: SqsQueue | None) -> None:
        """Notes what PostgreSQL has said of a name."""
        if self._mine.get(name) == queue:
            return
        if queue is None:
            del self._mine[name]
        else:
            self._mine[name] = queue
        with suppress(OSError):  # then other workers refuse its messages during an outage
            if spool.sqs_queues_size < _FILE_BYTES_MAX:
                spool.note_sqs_queue(msgspec.json.encode(_Line(name, queue)))
            elif not self._full:
                self._full = True
                log.warning(
                    "The list of SQS queues beside the spool is full (%s MiB): while PostgreSQL is down, a worker "
                    "refuses messages for queues that it has not used itself. A restart of the server empties the list",
                    _FILE_BYTES_MAX >> 20,
                )

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
