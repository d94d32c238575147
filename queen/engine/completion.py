"""The common case of acknowledgements: messages completed in the order of delivery, under a live lease. Pure.

They have a procedure of their own, which also prefetches (``sql/procedures/complete_messages.sql``).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID

from queen.engine.orphans import Orphan
from queen.engine.ports import AckColumns, AckRow, CompleteColumns, CompletedRow, PartitionName
from queen.engine.prefetch import NextLease, Prefetch, PrefetchedBatch
from queen.log.requests import Claim


class Completion:
    """The elements of an ack call that may be the common case, as arguments of that procedure.

    Attributes:
        columns: in the order of the cursors.
    """

    def __init__(self, acks: AckColumns, prefetch: Prefetch) -> None:
        self._acks, self._begun = acks, prefetch.now()
        self._indexes = _plain(acks)
        self._next: dict[int, NextLease] = {}
        self.columns = c = CompleteColumns()
        for index in self._indexes:
            lease, first, last = acks.lease[index], acks.first[index], acks.last[index]
            if lease is None or first is None or last is None:
                continue
            c.part.append(acks.part[index])
            c.grp.append(acks.grp[index])
            c.lease.append(lease)
            c.first.append(first)
            c.last.append(last)
            following = prefetch.next_of(lease)
            if following is not None:
                self._next[len(c.part)] = following
            c.next_lease.append(following.lease if following else None)
            c.next_batch.append(following.pop.batch if following else None)
            c.next_seconds.append(following.pop.lease_seconds if following else None)

    def rows(self, done: Sequence[CompletedRow]) -> list[AckRow]:
        """The executed elements, as rows of the ack call."""
        numbers, acks = self._indexes, self._acks
        return [
            AckRow(
                (number := numbers[row.ord - 1]) + 1, None, acks.first[number], row.done_upto, None, acks.last[number],
                None, row.released, False, row.ready,
            )
            for row in done
        ]  # fmt: skip

    def rest(self, done: Sequence[CompletedRow]) -> list[int]:
        """The indexes of the elements of the ack call that were not executed."""
        executed = {self._indexes[row.ord - 1] for row in done}
        return [number for number in range(len(self._acks.part)) if number not in executed]

    def batches(self, done: Sequence[CompletedRow], name_of: Callable[[int], PartitionName]) -> list[PrefetchedBatch]:
        """The prefetched batches."""
        batches = []
        for row in done:
            if row.slice is not None and row.upto is not None:
                following, name = self._next[row.ord], name_of(self._indexes[row.ord - 1])
                claim = Claim(
                    name.part_id, name.queue, name.partition, row.upto, frozenset(), row.seen, row.attempt, [row.slice]
                )
                batches.append(PrefetchedBatch(following, claim, self._begun))
        return batches

    def not_taken(self, done: Sequence[CompletedRow]) -> list[UUID]:
        """Prefetch leases that the call did not take."""
        taken = {row.ord for row in done if row.slice is not None}
        return [each.lease for number, each in self._next.items() if number not in taken]

    def orphans(self, done: Sequence[CompletedRow]) -> list[Orphan]:
        """The same for a call with an unknown outcome, which may have taken them."""
        not_taken = set(self.not_taken(done))
        return [
            Orphan(each.lease, each.pop.queue, each.pop.group)
            for each in self._next.values()
            if each.lease in not_taken
        ]


def _plain(acks: AckColumns) -> list[int]:
    """The indexes of elements that complete known messages under a lease, and are the only ones for their cursor."""
    cursors = list(zip(acks.part, acks.grp, strict=True))
    times = Counter(cursors)
    numbers = [
        number
        for number, cursor in enumerate(cursors)
        if acks.kind[number] == "c" and times[cursor] == 1
        and acks.lease[number] is not None and acks.first[number] is not None
    ]  # fmt: skip
    return sorted(numbers, key=cursors.__getitem__)
