"""Public ids: numbers in the form of a UUID (RFC 9562, section 5.8), so that ids need not be stored or looked up.

``pppppppp-pppp-8001-8000-oooooooooooo`` is the message with offset ``o`` of partition ``p``; ``8002`` a partition,
``8003`` a queue, ``8004`` a dead letter, ``8005`` a trace, ``8006`` a stream. ``sql/internal/020_ids.sql`` computes the
same.
"""

import hashlib
import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache

_MESSAGE, _PARTITION, _QUEUE = "8001", "8002", "8003"
_DEAD_LETTER, _TRACE, _STREAM = "8004", "8005", "8006"
_HEX = "0123456789abcdef"
_MARK = "\n"
_REMEMBERED = 10_000


def _uuid(number: int, kind: str, offset: int) -> str:
    high = f"{number:012x}"
    return f"{high[:8]}-{high[8:]}-{kind}-8000-{offset:012x}"


@lru_cache(_REMEMBERED)
def message_id_prefix(part_id: int) -> str:
    """The prefix of the ids of all messages of a partition; 12 hex digits of the offset follow."""
    return _uuid(part_id, _MESSAGE, 0)[:24]


def message_id(part_id: int, offset: int) -> str:
    """The public id of a message."""
    return _uuid(part_id, _MESSAGE, offset)


@lru_cache(_REMEMBERED)
def partition_id(part_id: int) -> str:
    """The public id of a partition."""
    return _uuid(part_id, _PARTITION, 0)


def queue_id(number: int) -> str:
    """The public id of a queue."""
    return _uuid(number, _QUEUE, 0)


def stream_id(number: int) -> str:
    """The public id of a stream."""
    return _uuid(number, _STREAM, 0)


def dead_letter_id(number: int) -> str:
    """The public id of a dead letter."""
    return _uuid(number, _DEAD_LETTER, 0)


def trace_id(number: int) -> str:
    """The public id of a recorded trace."""
    return _uuid(number, _TRACE, 0)


def _parse(text: str, kind: str) -> tuple[int, int] | None:
    if len(text) != 36 or text[13:24] != f"-{kind}-8000-" or text[8] != "-":
        return None
    digits = text[:8] + text[9:13] + text[24:]
    if digits.strip(_HEX):
        return None
    return int(digits[:12], 16), int(digits[12:], 16)


def parse_message_id(text: str) -> tuple[int, int] | None:
    """Partition and offset of a message id; ``None`` if the text is none."""
    return _parse(text, _MESSAGE)


def offsets_of(texts: Sequence[str], part_id: int) -> list[int] | list[int | None]:
    """The offsets in message ids of this partition; ``None`` for each other text."""
    # All at once, because a consumer acks hundreds. No text may contain the separator, so each piece is the end of a
    # text.
    head, *digits = (_MARK + _MARK.join(texts)).split(_MARK + message_id_prefix(part_id))
    numbers = "0000" + "0000".join(digits)  # 8 bytes each
    if head or set(map(len, digits)) != {12} or numbers.strip(_HEX):
        return [_offset_of(text, part_id) for text in texts]
    offsets = array("Q", bytes.fromhex(numbers))
    if sys.byteorder == "little":
        offsets.byteswap()
    return offsets.tolist()


def _offset_of(text: str, part_id: int) -> int | None:
    if len(text) != 36 or not text.startswith(message_id_prefix(part_id)):
        return None
    digits = text[24:]
    return None if digits.strip(_HEX) else int(digits, 16)


def parse_partition_id(text: str) -> int | None:
    """The number of a partition id; ``None`` if the text is none."""
    return _parse_number(text, _PARTITION)


def parse_dead_letter_id(text: str) -> int | None:
    """The number of a dead letter id; ``None`` if the text is none."""
    return _parse_number(text, _DEAD_LETTER)


def parse_stream_id(text: str) -> int | None:
    """The number of a stream id; ``None`` if the text is none."""
    return _parse_number(text, _STREAM)


def _parse_number(text: str, kind: str) -> int | None:
    parsed = _parse(text, kind)
    return parsed[0] if parsed is not None and parsed[1] == 0 else None


def transaction_hash(transaction_id: str) -> bytes:
    """The hash of a transaction id in the log: the first 16 bytes of its SHA-256 (FIPS 180-4)."""
    return transaction_hashes((transaction_id,))[0]


def transaction_hashes(transaction_ids: Sequence[str]) -> list[bytes]:
    """The ``transaction_hash`` of each transaction id; empty if the id is empty, because the producer chose none."""
    sha256 = hashlib.sha256
    return [sha256(text.encode()).digest()[:16] if text else b"" for text in transaction_ids]
