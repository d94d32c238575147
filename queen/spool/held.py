"""The partitions that the spool holds back, in a small file that all workers read. Pure."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from queen.core.errors import QueenError

#: Queue and partition.
Partition = tuple[str, str]

#: The reason for a partition that is held back although nothing failed in it.
BEHIND = (
    "behind: one of its requests also has messages for a partition that is held back, or was sent together with "
    "one that has"
)


class Held(Struct, frozen=True):
    """A partition that is held back.

    Attributes:
        since: seconds since 1970.
        reason: why its first request is not stored yet: error code, colon, error text.
    """

    queue: str
    partition: str
    since: float
    reason: str

    @property
    def code(self) -> str:
        """The error code, which does not contain queue names."""
        return self.reason.partition(":")[0]


_decoder = msgspec.json.Decoder(list[Held])


def reason_of(problem: Exception) -> str:
    """The reason why a request is not stored yet."""
    return f"{problem.code if isinstance(problem, QueenError) else 'internal'}: {problem}"


def encode_held(held: Iterable[Held]) -> bytes:
    """The content of the file."""
    return msgspec.json.encode(list(held))


def decode_held(content: bytes) -> Mapping[Partition, Held]:
    """The partitions by queue and name; none if the file is invalid: the next start rebuilds it."""
    try:
        return {(each.queue, each.partition): each for each in _decoder.decode(content)}
    except msgspec.MsgspecError:
        return {}
