"""Lays out the pushes of many requests as one segment per partition, and divides the answer again. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from uuid import UUID

from msgspec import Struct

from queen.log import ids
from queen.log.requests import PartitionBatch, Push, Pushed, Stored
from queen.log.segment import encode_ends

#: What is known before the call of a message with a chosen transaction id: its position in the segment, and whether it
#: is a duplicate of the message there; or ``~offset`` of the stored message that it duplicates; or ``None``: refused.
Position = tuple[int, bool] | int | None
_NOTHING: Mapping[str, Position] = MappingProxyType({})


class Appended(Struct, frozen=True):
    """The outcome of one segment of a push.

    ``first`` is ``None`` if nothing was stored, because the partition is unknown or its queue has room for only
    ``room`` messages.
    """

    part_id: int
    first: int | None
    created_at: datetime | None
    dup_pos: Sequence[int] | None
    dup_off: Sequence[int] | None
    room: int | None = None


_NO_ROW = Appended(0, 0, None, None, None)


class _Segment:
    """The messages of one partition."""

    __slots__ = ("bodies", "by_hash", "lengths", "part_id")

    def __init__(self, part_id: int) -> None:
        self.part_id = part_id
        self.bodies: list[bytes] = []
        self.lengths: list[int] = []
        self.by_hash: dict[bytes, int] = {}  # positions in the segment, by hash of the chosen transaction id

    def add(self, batch: PartitionBatch, reserved: Mapping[str, Position]) -> "_Placement":
        """Appends the messages of a request."""
        start = len(self.lengths)
        # Nearly always there are no duplicates, and all messages are added at once.
        if batch.ids is not None and not self._take_ids(batch.ids, reserved, start):
            return _Placement(self, start, 0, self._add_each(batch, batch.ids, reserved))
        self.bodies.append(batch.body)
        self.lengths += batch.lengths
        return _Placement(self, start, len(batch.lengths), None)

    def _take_ids(self, texts: Sequence[str], reserved: Mapping[str, Position], start: int) -> bool:
        """Notes the ids of the next messages; false, without noting any, unless they are all new and unique."""
        new = dict(zip(ids.transaction_hashes(texts), range(start, start + len(texts)), strict=True))
        if len(new) < len(texts) or b"" in new or not new.keys().isdisjoint(self.by_hash):
            return False
        if not reserved.keys().isdisjoint(texts):
            return False
        self.by_hash |= new
        return True

    def _add_each(
        self, batch: PartitionBatch, texts: Sequence[str], reserved: Mapping[str, Position]
    ) -> list[Position]:
        positions: list[Position] = []
        begin = 0
        for text, digest, length in zip(texts, ids.transaction_hashes(texts), batch.lengths, strict=True):
            end = begin + length
            if text in reserved:
                positions.append(reserved[text])
            elif (known := self.by_hash.get(digest)) is not None:
                positions.append((known, True))
            else:
                positions.append((len(self.lengths), False))
                if digest:
                    self.by_hash[digest] = len(self.lengths)
                self.bodies.append(batch.body[begin : end - 1])
                self.lengths.append(length)
            begin = end
        return positions

    def ids(self) -> bytes | None:
        """The column with the hashes of chosen ids."""
        if len(self.by_hash) == len(self.lengths):
            return b"".join(self.by_hash)
        column = bytearray(16 * len(self.lengths))
        for digest, position in self.by_hash.items():
            column[16 * position : 16 * position + 16] = digest
        return bytes(column) if self.by_hash else None


class _Placement(Struct, frozen=True):
    """The messages of a request in a segment: ``count`` of them from ``start`` on, or a position each."""

    segment: _Segment
    start: int
    count: int
    positions: Sequence[Position] | None

    def each(self) -> Sequence[Position]:
        """A position for each message."""
        return self.positions or [(position, False) for position in range(self.start, self.start + self.count)]


class AppendBatch(Struct):
    """The arguments of an append by column (``sql/procedures/push_messages.sql``), and the requests they belong to.

    Attributes:
        version, limited: from the ``PushOptions`` for which it was laid out; ``None`` as version is not checked.
        new: partitions that the call creates if missing, by queue and name; -1, -2, … stand for them in ``part``.
        placements: where the messages of each request stand.
    """

    flush: UUID
    part: list[int] = []
    n: list[int] = []
    data: list[bytes] = []
    ends: list[bytes] = []
    ids: list[bytes | None] = []
    hash_part: list[int] = []
    hash_pos: list[int] = []
    hash: list[bytes] = []
    version: int | None = None
    limited: list[int] | None = None
    new: Sequence[tuple[str, str]] = ()
    placements: list[list[_Placement]] = []

    def add(self, segment: _Segment) -> None:
        """Appends a segment; call it with ascending numbers of partitions."""
        self.part.append(segment.part_id)
        self.n.append(len(segment.lengths))
        self.data.append(b"[" + b",".join(segment.bodies) + b"]")
        self.ends.append(encode_ends(segment.lengths))
        self.ids.append(segment.ids() if segment.by_hash else None)
        self.hash_part += [segment.part_id] * len(segment.by_hash)
        self.hash_pos += segment.by_hash.values()
        self.hash += segment.by_hash

    @property
    def has_repetitions(self) -> bool:
        """Whether some messages are known to be duplicates, or are refused, before the call."""
        return any([each.positions is not None for placements in self.placements for each in placements])

    def name_partitions(self, numbers: Mapping[int, int | None]) -> None:
        """Replaces the numbers of ``new`` by those of the created partitions."""
        for placements in self.placements if self.new else ():
            for each in placements:
                each.segment.part_id = numbers.get(each.segment.part_id) or each.segment.part_id

    def answers(self, appended: Iterable[Appended] = ()) -> list[Pushed]:
        """The answer to each request, from the rows of the call; without rows, what is known before the call."""
        rows = {row.part_id: row for row in appended}
        return [
            Pushed([_stored(each, rows.get(each.segment.part_id, _NO_ROW)) for each in placements])
            for placements in self.placements
        ]


def lay_out(
    flush: UUID,
    pushes: Iterable[Push],
    part_ids: Mapping[tuple[str, str], int],
    reserved: Mapping[str, Position] = _NOTHING,
) -> AppendBatch:
    """The append of some requests.

    Args:
        flush: the id of the append.
        pushes: in the order of their arrival.
        part_ids: the number of each partition that they name.
        reserved: by chosen id that ``reserved_ids`` found, what is known of its message.
    """
    layout = AppendBatch(flush)
    segments: dict[int, _Segment] = {}
    for push in pushes:
        placements = []
        for batch in push.batches:
            part_id = part_ids[batch.queue, batch.partition]
            segment = segments.get(part_id)
            if segment is None:
                segment = segments[part_id] = _Segment(part_id)
            placements.append(segment.add(batch, reserved))
        layout.placements.append(placements)
    for part_id in sorted(segments):
        if segments[part_id].lengths:
            layout.add(segments[part_id])
    return layout


def names_messages(pushes: Iterable[Push]) -> bool:
    """Whether a chosen transaction id has the form of a message id of any partition."""
    texts = (text for push in pushes for batch in push.batches for text in batch.ids or ())
    return any(map(ids.parse_message_id, texts))


def reserved_ids(pushes: Iterable[Push], part_ids: Mapping[tuple[str, str], int]) -> dict[str, tuple[int, int]]:
    """Chosen transaction ids that have the form of a message id of the partition to which they are pushed."""
    found = {}
    for push in pushes:
        for batch in push.batches:
            if batch.ids is not None:
                prefix = ids.message_id_prefix(part_ids[batch.queue, batch.partition])
                for text in batch.ids:
                    if text.startswith(prefix) and (position := ids.parse_message_id(text)):
                        found[text] = position
    return found


def _stored(placement: _Placement, row: Appended) -> Stored:
    part_id, first, duplicates_at = placement.segment.part_id, row.first or 0, row.dup_pos or ()
    if placement.positions is None:
        # Messages with chosen ids may be duplicates; there are none if no duplicate lies between start and end.
        before = bisect_left(duplicates_at, placement.start)
        if before == bisect_left(duplicates_at, placement.start + placement.count):
            return Stored(part_id, first + placement.start - before)
    known = dict(zip(duplicates_at, row.dup_off or (), strict=True))
    outcomes = [_outcome(position, first, duplicates_at, known) for position in placement.each()]
    duplicates = frozenset([number for number, (_, duplicate) in enumerate(outcomes) if duplicate])
    refused = frozenset([number for number, (offset, _) in enumerate(outcomes) if offset < 0])
    return Stored(part_id, None, [offset for offset, _ in outcomes], duplicates, refused)


def _outcome(
    position: Position, first: int, duplicates_at: Sequence[int], known: Mapping[int, int]
) -> tuple[int, bool]:
    """The offset of a message, and whether it was there before; -1 for one that is refused."""
    if position is None:
        return -1, False
    if isinstance(position, int):
        return ~position, True
    at, repeated = position
    return known.get(at, first + at - bisect_left(duplicates_at, at)), repeated or at in known
