"""What all processes of an instance know of the spool, in one small file that is read and written under the lock.

It survives the death of any process, but not that of the machine: recovery makes it anew from the files.
"""

import struct

import msgspec
from msgspec import Struct

_FORMAT = struct.Struct("<4s6QdQd")
_MAGIC = b"QNL1"


class Ledger(Struct, frozen=True):
    """Figures of what waits to be replayed.

    Attributes:
        current: number of the file that is being written; 0 for none.
        end: bytes of it that are whole and on the disk. What stands behind was left by a writer that died.
        current_requests: push requests in it.
        requests, messages, size: of everything that waits; ``size`` in bytes.
        oldest_at: when the oldest of it was written, in seconds since 1970.
        replayed: messages replayed so far.
        rate: messages replayed a second, lately.
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
    """The ledger, or ``None`` if this is none."""
    if len(content) != _FORMAT.size or content[:4] != _MAGIC:
        return None
    return Ledger(*_FORMAT.unpack(content)[1:])
