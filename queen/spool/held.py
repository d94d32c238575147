"""The partitions that the spool holds back, as one small file tells all workers. Pure."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from queen.core.errors import QueenError

#: Queue and name.
Partition = tuple[str, str]

#: Why a partition is held back in which nothing failed.
BEHIND = "behind: a request to it has other partitions, too, or was sent together with one that has"


class Held(Struct, frozen=True):
    """A partition that is held back.

    Attributes:
        since: seconds since 1970.
        reason: why its first request is not stored yet: the code of an error, a colon, and the error.
    """

    queue: str
    partition: str
    since: float
    reason: str

    @property
    def code(self) -> str:
        """The code of the error alone, which names no queue."""
        return self.reason.partition(":")[0]


_decoder = msgspec.json.Decoder(list[Held])


def reason_of(problem: Exception) -> str:
    """Why a request is not stored yet."""
    return f"{problem.code if isinstance(problem, QueenError) else 'internal'}: {problem}"


def encode_held(held: Iterable[Held]) -> bytes:
    """The content of the file."""
    return msgspec.json.encode(list(held))


def decode_held(content: bytes) -> Mapping[Partition, Held]:
    """The partitions by queue and name; none if this is no such file: a start makes it anew."""
    try:
        return {(each.queue, each.partition): each for each in _decoder.decode(content)}
    except msgspec.MsgspecError:
        return {}
