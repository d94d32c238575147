"""One flush: the lots of many pushes laid out as one segment a partition, and the answers cut apart again. Pure."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from uuid import UUID

from queen.core import ids
from queen.core.operations import Lot, Push, Pushed, Stored
from queen.core.segment import encode_ends
from queen.engine.ports import Appended, PushColumns


class _Segment:
    """The messages of one partition in this flush."""

    __slots__ = ("bodies", "by_hash", "count", "lengths", "part_id")

    def __init__(self, part_id: int) -> None:
        self.part_id = part_id
        self.count = 0
        self.bodies: list[bytes] = []
        self.lengths: list[int] = []
        self.by_hash: dict[bytes, int] = {}  # chosen transaction ids, and where in the segment

    def add(self, body: bytes, lengths: Sequence[int]) -> range:
        """Appends messages; returns their places."""
        first = self.count
        self.bodies.append(body)
        self.lengths += lengths
        self.count += len(lengths)
        return range(first, self.count)

    def add_with_ids(self, body: bytes, lengths: Sequence[int], digests: Sequence[bytes]) -> range | None:
        """Appends messages that all have a chosen id; ``None``, and nothing is appended, if an id would stand twice."""
        new = dict(zip(digests, range(self.count, self.count + len(digests)), strict=True))
        if len(new) < len(digests) or not new.keys().isdisjoint(self.by_hash):
            return None
        self.by_hash |= new
        return self.add(body, lengths)

    def write_to(self, columns: PushColumns) -> None:
        columns.part.append(self.part_id)
        columns.n.append(self.count)
        columns.data.append(b"[" + b",".join(self.bodies) + b"]")
        columns.ends.append(encode_ends(self.lengths))
        if not self.by_hash:
            columns.ids.append(None)
            return
        columns.ids.append(self._ids())
        columns.hash_part += [self.part_id] * len(self.by_hash)
        columns.hash_pos += self.by_hash.values()
        columns.hash += self.by_hash

    def _ids(self) -> bytes:
        if len(self.by_hash) == self.count:
            return b"".join(self.by_hash)
        column = bytearray(16 * self.count)
        for digest, place in self.by_hash.items():
            column[16 * place : 16 * place + 16] = digest
        return bytes(column)


class _Placed:
    """Where the messages of a lot stand in its segment: a ``run`` of places, or one place each.

    ``places`` holds ``None`` for a refused item, ``(place, False)`` for a message that goes in, ``(place, True)`` for a
    repetition of one that stands earlier in the same flush, and ``~offset`` for a repetition of one stored before.
    """

    __slots__ = ("places", "run", "segment")

    def __init__(self, segment: _Segment, run: range | None, places: "list[tuple[int, bool] | int | None]") -> None:
        self.segment, self.run, self.places = segment, run, places


def reserved_ids(pushes: Sequence[Push], part_ids: Mapping[tuple[str, str], int]) -> dict[str, tuple[int, int]]:
    """Chosen transaction ids that have the form of a message id of the very partition that they go to."""
    found = {}
    for push in pushes:
        for lot in push.lots:
            if lot.ids is not None:
                part_id = part_ids[lot.queue, lot.partition]
                prefix = ids.message_id_prefix(part_id)
                for text in lot.ids:
                    if text.startswith(prefix) and (place := ids.parse_message_id(text)):
                        found[text] = place
    return found


class Flush:
    """The layout of one push call.

    Args:
        pushes: the requests, in the order in which they came.
        part_ids: the number of each partition that they name.
        server_made: of the chosen ids that ``reserved_ids`` found, those whose message exists.
    """

    def __init__(
        self,
        flush_id: UUID,
        pushes: Sequence[Push],
        part_ids: Mapping[tuple[str, str], int],
        reserved: Mapping[str, tuple[int, int]],
        server_made: frozenset[str],
    ) -> None:
        self._segments: dict[int, _Segment] = {}
        self._reserved, self._server_made = reserved, server_made
        self._placed = [[self._place(lot, part_ids[lot.queue, lot.partition]) for lot in push.lots] for push in pushes]
        self.columns = PushColumns(flush_id)
        for part_id in sorted(self._segments):
            if self._segments[part_id].count:
                self._segments[part_id].write_to(self.columns)

    def _place(self, lot: Lot, part_id: int) -> _Placed:
        segment = self._segments.get(part_id)
        if segment is None:
            segment = self._segments[part_id] = _Segment(part_id)
        if lot.ids is None:
            return _Placed(segment, segment.add(lot.body, lot.lengths), [])
        digests = ids.transaction_hashes(lot.ids)
        # Nearly always all of them can be placed at once.
        if all(digests) and self._reserved.keys().isdisjoint(lot.ids):
            run = segment.add_with_ids(lot.body, lot.lengths, digests)
            if run is not None:
                return _Placed(segment, run, [])
        return _Placed(segment, None, self._place_each(lot, lot.ids, digests, segment))

    def _place_each(
        self, lot: Lot, texts: Sequence[str], digests: Sequence[bytes], segment: _Segment
    ) -> list[tuple[int, bool] | int | None]:
        places: list[tuple[int, bool] | int | None] = []
        begin = 0
        for text, digest, length in zip(texts, digests, lot.lengths, strict=True):
            entry = lot.body[begin : begin + length - 1]
            begin += length
            if text in self._reserved:
                places.append(~self._reserved[text][1] if text in self._server_made else None)
                continue
            known = segment.by_hash.get(digest) if digest else None
            if known is not None:
                places.append((known, True))
                continue
            place = segment.add(entry, (length,)).start
            if digest:
                segment.by_hash[digest] = place
            places.append((place, False))
        return places

    def name_partitions(self, numbers: Mapping[int, int]) -> None:
        """Says which partitions the numbers stand for that were only places for them."""
        for segment in self._segments.values():
            segment.part_id = numbers.get(segment.part_id, segment.part_id)

    def answers(self, appended: Sequence[Appended]) -> list[Pushed]:
        """The answer to each push, from the rows of the call."""
        rows = {row.part_id: row for row in appended}
        return [
            Pushed([self._stored(placed, rows.get(placed.segment.part_id)) for placed in lots]) for lots in self._placed
        ]

    def _stored(self, placed: _Placed, row: Appended | None) -> Stored:
        first = row.first if row is not None and row.first is not None else 0
        gone = row.dup_pos or () if row is not None else ()
        part_id = placed.segment.part_id
        places: Sequence[tuple[int, bool] | int | None] = placed.places
        if placed.run is not None:
            # Of a run with chosen ids some may have been stored before; not if none is gone between its two ends.
            before = bisect_left(gone, placed.run.start)
            if before == bisect_left(gone, placed.run.stop):
                return Stored(part_id, first + placed.run.start - before)
            places = [(place, False) for place in placed.run]
        stored_before = dict(zip(gone, row.dup_off or (), strict=True)) if row is not None else {}
        offsets, duplicates, refused = [], set(), set()
        for number, place in enumerate(places):
            if place is None:
                refused.add(number)
                offsets.append(-1)
            elif isinstance(place, int):
                duplicates.add(number)
                offsets.append(~place)
            else:
                at, repeated = place
                if repeated or at in stored_before:
                    duplicates.add(number)
                offsets.append(stored_before.get(at, first + at - bisect_left(gone, at)))
        return Stored(part_id, None, offsets, frozenset(duplicates), frozenset(refused))
