"""Long polls that a push serves: in its own transaction and from memory, so that they need no check."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol
from uuid import UUID, uuid4

from queen.engine.job import Job
from queen.engine.metadata_cache import MetadataCache
from queen.engine.orphans import Orphan
from queen.engine.ports import Given, PartitionName, WaitingColumns
from queen.log.append import AppendBatch, Appended
from queen.log.requests import Claim, Popped, Slice
from queen.log.segment import decode_ends


class Offer:
    """Waiting pops that are offered to a push, and which of them it has served.

    Args:
        jobs: the pops.
        messages: the number of pushed messages, by queue.
        new_lease: makes leases.
        small: whether these fit into a datagram, so that pops of siblings may be served.

    Attributes:
        jobs: the pops that are not served, and go on waiting.
        served: the others, with their messages.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        messages: Mapping[str, int],
        new_lease: Callable[[], UUID] = uuid4,
        *,
        small: bool = True,
    ) -> None:
        self._new_lease = new_lease
        self.jobs, self._messages, self._small = list(jobs), messages, small
        self.served: list[tuple[Job, Popped]] = []
        self._full: set[Job] = set()
        self._given: Counter[tuple[str, str]] = Counter()
        self._sent: list[tuple[Job, UUID | None]] = []
        self._lost = False

    def groups(self, queue: str, messages: int) -> tuple[str, ...]:
        """The groups that have got all messages of a queue, whose number is given."""
        return tuple([group for (name, group), number in self._given.items() if name == queue and number == messages])

    def leaves_more(self, job: Job) -> bool:
        """Whether there may be more messages than this pop has taken."""
        queue, group = job.request.queue, job.request.group
        return job in self._full and self._given[queue, group] < self._messages[queue]

    def columns(self, cache: MetadataCache) -> WaitingColumns | None:
        """The pops as arguments of a push, for one call; ``None`` if no pop is of a known group."""
        if self._sent:
            return None
        columns = WaitingColumns()
        for job in self.jobs:
            if job.gone or (job.reply is not None and not self._small):
                continue
            pop = job.request
            group = cache.known_group(pop.queue, None, pop.group)
            if group is None or group.grp_id is None:
                continue
            self._sent.append((job, None if pop.auto_ack else job.lease or self._new_lease()))
            columns.grp.append(group.grp_id)
            columns.lease.append(self._sent[-1][1])
            columns.batch.append(pop.batch)
            columns.parts.append(pop.partitions)
            columns.seconds.append(pop.lease_seconds)
        return columns if self._sent else None

    def serve(
        self,
        given: Sequence[Given],
        batch: AppendBatch,
        appended: Sequence[Appended],
        names: Mapping[int, PartitionName],
    ) -> None:
        """Makes the answers of the pops from the rows that the push returned."""
        rows = {row.part_id: row for row in appended}
        indexes = {part_id: number for number, part_id in enumerate(batch.part)}
        claims: dict[int, list[Claim]] = {}
        for each in given:
            number, name, row = indexes[each.part_id], names[each.part_id], rows[each.part_id]
            piece = _slice(batch.data[number], batch.ends[number], each, row)
            claim = Claim(
                each.part_id, name.queue, name.partition, each.upto, frozenset(), each.seen, each.attempt, [piece]
            )
            claims.setdefault(each.pop - 1, []).append(claim)
        for number, found in claims.items():
            job, lease = self._sent[number]
            messages = sum([len(claim.slices[0].ends) // 4 for claim in found])
            self.answer(job, Popped(lease, found), messages)

    def was_sent(self, job: Job) -> bool:
        """Whether the pop was an argument of the call."""
        return any([job is each for each, _ in self._sent])

    def answer(self, job: Job, popped: Popped, messages: int) -> None:
        """Notes the answer of a pop, with its number of messages."""
        self.jobs.remove(job)
        self.served.append((job, popped))
        self._given[job.request.queue, job.request.group] += messages
        if messages >= job.request.batch or len(popped.claims) >= job.request.partitions:
            self._full.add(job)

    def lose(self) -> list[Orphan]:
        """Notes that the outcome of the call is unknown; returns the leases that it may have taken."""
        self._lost = True
        return [Orphan(lease, job.request.queue, job.request.group) for job, lease in self._sent if lease is not None]

    def may_have_acked(self, job: Job) -> bool:
        """Whether the call, whose outcome is unknown, may have taken messages for this autoAck pop."""
        return self._lost and job.request.auto_ack and self.was_sent(job)


class LongPolls(Protocol):
    """The long polls of a worker, for what appends messages outside of its batches."""

    def offer(self, messages: Mapping[str, int], size: int) -> Offer | None:
        """Long polls that wait for messages, whose number by queue and size in bytes are given."""

    def take_back(self, offer: Offer) -> None:
        """Answers those that were served; the others go on waiting."""


#: The pops that the push of this context may serve.
offered: ContextVar[Offer | None] = ContextVar("offered", default=None)


def _slice(data: bytes, ends: bytes, given: Given, row: Appended) -> Slice:
    messages = given.upto - given.first + 1
    if 4 * messages < len(ends):
        ends = ends[: 4 * messages]
        data = data[: decode_ends(ends)[-1]]
    if row.created_at is None:
        raise RuntimeError(f"Partition {given.part_id} was given to a pop and not appended to")
    return Slice(given.first, row.created_at, ends, 0, data)
