"""The partitions that the spool holds back, as one small file tells all workers. Pure."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

#: Queue and name.
Partition = tuple[str, str]

#: Why a partition is held back in which nothing failed.
BEHIND = "A request to it and to a partition that is held back waits"


class Held(Struct, frozen=True):
    """A partition that is held back.

    Attributes:
        since: seconds since 1970.
        reason: why its first request is not stored yet.
    """

    queue: str
    partition: str
    since: float
    reason: str


_decoder = msgspec.json.Decoder(list[Held])


def encode_held(held: Iterable[Held]) -> bytes:
    """The content of the file."""
    return msgspec.json.encode(list(held))


def decode_held(content: bytes) -> Mapping[Partition, Held]:
    """The partitions by queue and name; none if this is no such file: a start makes it anew."""
    try:
        return {(each.queue, each.partition): each for each in _decoder.decode(content)}
    except msgspec.MsgspecError:
        return {}
