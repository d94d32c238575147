"""Counts of the spool for all processes of an instance, in a small file that is read and written under the lock.

It survives the crash of a process, but not of the machine: recovery rebuilds it from the files.
"""

import struct

import msgspec
from msgspec import Struct

_FORMAT = struct.Struct("<4s6QdQd")
_MAGIC = b"QNL1"


class Ledger(Struct, frozen=True):
    """Counts of the messages to replay.

    Attributes:
        current: number of the file that is being written; 0 for none.
        end: bytes of it that are complete and durable. Bytes after them were left by a writer that died.
        current_requests: push requests in it.
        requests, messages, size: of all waiting files; ``size`` in bytes.
        oldest_at: when the oldest message was written, in seconds since 1970.
        replayed: messages replayed so far.
        rate: recent replay rate, in messages per second.
    """

    current: int = 0
    end: int = 0
    current_requests: int = 0
    requests: int = 0
    messages: int = 0
    size: int = 0
    oldest_at: float = 0.0
    replayed: int = 0
    rate: float = 0.0

    def changed(self, **fields: float) -> "Ledger":
        """A copy with other values."""
        return msgspec.structs.replace(self, **fields)


def encode(ledger: Ledger) -> bytes:
    """The content of the file."""
    return _FORMAT.pack(_MAGIC, *msgspec.structs.astuple(ledger))


def decode(content: bytes) -> Ledger | None:
    """The ledger, or ``None`` if the content is invalid."""
    if len(content) != _FORMAT.size or content[:4] != _MAGIC:
        return None
    return Ledger(*_FORMAT.unpack(content)[1:])
