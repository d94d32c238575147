"""POP: many waiting consumers, one call."""

from collections.abc import Sequence
from math import inf
from uuid import UUID, uuid4

from queen.core.errors import DatabaseUnavailableError, OutcomeUnknownError
from queen.core.operations import Claim, Pop, Popped, Slice
from queen.engine.context import Context
from queen.engine.handlers.give_back import give_back_orphans
from queen.engine.look import Look
from queen.engine.orphans import Orphan
from queen.engine.ports import Delivered, PartitionName, PopColumns, Subscription, Unserved

#: How often a group is looked up anew because it was deleted under the pop.
_LOOKUPS_MAX = 3


#: Stands for a partition that does not exist yet: the call still has to find out whether the group does.
_NO_PARTITION = -1


class Outcome(Look):
    """What a pop got, and if nothing, in how many seconds something becomes ready by itself (``inf``: never)."""

    __slots__ = ("behind", "more", "popped", "ready_in")

    def __init__(self) -> None:
        self.popped = Popped()
        self.ready_in = inf
        self.more = self.behind = False

    @property
    def result(self) -> Popped:
        """The answer."""
        return self.popped

    @property
    def found(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.popped.claims)


async def pop(
    context: Context, pops: Sequence[Pop]
) -> list[Outcome | OutcomeUnknownError] | list[DatabaseUnavailableError]:
    """Serves all pops; one outcome each.

    An autoAck pop of which a call broke off is not repeated: what that took is done for its group, and an answer with
    what comes behind it, or with nothing, would hide that.
    """
    broken = False

    async def attempt(again: bool) -> list[Outcome | OutcomeUnknownError]:
        nonlocal broken
        await give_back_orphans(context)
        served = [pop for pop in pops if not (again and pop.auto_ack)]
        leases = [None if pop.auto_ack else uuid4() for pop in served]
        try:
            outcomes = iter(await _pop(context, served, leases))
        except OutcomeUnknownError:
            broken = True
            # What it may have leased would be withheld until the lease ends.
            context.orphans.add(
                Orphan(lease, pop.queue, pop.group) for lease, pop in zip(leases, served, strict=True) if lease
            )
            raise
        return [_lost() if again and pop.auto_ack else next(outcomes) for pop in pops]

    try:
        # The engine parks long polls, which would miss their timeout here.
        return await context.patiently(attempt, outwaits=not any(pop.wait_ms for pop in pops))
    except DatabaseUnavailableError as problem:
        if not broken or not any(pop.auto_ack for pop in pops):
            raise
        return [_lost() if pop.auto_ack else DatabaseUnavailableError(str(problem)) for pop in pops]


def _lost() -> OutcomeUnknownError:
    return OutcomeUnknownError("PostgreSQL went away during a pop with autoAck: what it took, if anything, is done")


async def _pop(context: Context, pops: Sequence[Pop], leases: Sequence[UUID | None]) -> list[Outcome]:
    outcomes = [Outcome() for _ in pops]
    todo = list(range(len(pops)))
    for _ in range(_LOOKUPS_MAX):
        columns, queues, unfinished = await _columns(context, pops, todo, leases, outcomes)
        if not columns.pop:
            break
        delivered, unserved, behind = await context.database.pop(columns)
        await _hand_out(context, delivered, pops, leases, outcomes)
        for outcome in outcomes:
            outcome.behind = behind
        vanished = {row.grp_id for row in unserved if row.ready_in is None}
        _hint(columns, unserved, outcomes)
        for number in unfinished:
            outcomes[number].ready_in = -inf  # what it was let in for, others have taken
        for grp_id in vanished:
            context.directory.forget_queue(queues[grp_id])
        todo = [
            number - 1
            for number, grp_id in zip(columns.pop, columns.grp, strict=True)
            if grp_id in vanished and not outcomes[number - 1].popped.claims
        ]
        if not todo:
            break
    return outcomes


async def _columns(
    context: Context,
    pops: Sequence[Pop],
    todo: Sequence[int],
    leases: Sequence[UUID | None],
    outcomes: Sequence[Outcome],
) -> tuple[PopColumns, dict[int, str], list[int]]:
    """The arguments of a call for some of the pops; the queue of each group in it; and who has an unfinished group.

    A pop that finds too little in such a group is left out, and looks again at once.
    """
    columns = PopColumns(
        batch=[pop.batch for pop in pops],
        parts=[pop.partitions for pop in pops],
        lease=list(leases),
        seconds=[pop.lease_seconds for pop in pops],
    )
    queues: dict[int, str] = {}
    entrance = Entrance(context, [pops[number] for number in todo])
    unfinished = []
    for number in todo:
        pop, places, waits = pops[number], [], False
        for queue, queue_id in await _queues(context, pop):
            part_id = None
            if pop.partition is not None:
                part_id = await context.directory.partition(queue, pop.partition) or _NO_PARTITION
            group, enough = await entrance.group(queue, queue_id, pop, part_id)
            if group.starts_in is not None:
                outcomes[number].ready_in = min(outcomes[number].ready_in, group.starts_in)
            elif not enough:
                waits = True
            elif group.grp_id is not None:
                places.append((group.grp_id, part_id, queue))
                if group.unfinished and part_id is None:
                    unfinished.append(number)
        if waits:
            outcomes[number].ready_in = -inf
            continue
        for grp_id, part_id, queue in places:
            columns.pop.append(number + 1)
            columns.grp.append(grp_id)
            columns.part.append(part_id)
            queues[grp_id] = queue
    return columns, queues, unfinished


class Entrance:
    """Lets pops of a call into groups that have not all their cursors.

    Only where there are, for all that are let in, so many partitions that have been ready since the group began: then
    none passes over a partition that has no cursor yet, and each takes all that it has room for.
    """

    def __init__(self, context: Context, pops: Sequence[Pop]) -> None:
        self._context, self._pops = context, pops
        self._seen: dict[tuple[str, str, int | None], tuple[Subscription, int]] = {}

    async def group(self, queue: str, queue_id: int | None, pop: Pop, part_id: int | None) -> tuple[Subscription, bool]:
        """The group of a pop on a queue, and whether the pop is let in."""
        known = self._context.directory.known_group(queue, queue_id, pop.group)
        if known is not None:
            return known, True
        key = queue, pop.group, part_id
        if key not in self._seen:
            same = [other for other in self._pops if other.group == pop.group and other.partition == pop.partition]
            wanted = sum([_wanted(other) for other in same])
            group = await self._context.directory.subscribed_group(queue, pop, part_id, wanted)
            if group.unfinished and group.grp_id is not None:
                self._context.unfinished.add((queue, pop.group))
            self._seen[key] = group, group.ready or 0
        group, left = self._seen[key]
        enough = not group.unfinished or (group.grp_id is not None and left >= _wanted(pop))
        if part_id is None and enough:
            self._seen[key] = group, left - _wanted(pop)
        return group, enough


def _wanted(pop: Pop) -> int:
    """With so many partitions that have a message a pop is full."""
    return min(pop.batch, pop.partitions) if pop.partition is None else 1


async def _queues(context: Context, pop: Pop) -> Sequence[tuple[str, int | None]]:
    """The queues that a pop is about, with their numbers where they were looked up."""
    return [(pop.queue, None)] if pop.queue else await context.database.find_queues(pop.namespace, pop.task)


async def _hand_out(
    context: Context,
    delivered: Sequence[Delivered],
    pops: Sequence[Pop],
    leases: Sequence[UUID | None],
    outcomes: Sequence[Outcome],
) -> None:
    names = await context.directory.names(row.part_id for row in delivered)
    runs: dict[tuple[int, int], list[Delivered]] = {}
    for row in delivered:
        runs.setdefault((row.pop, row.part_id), []).append(row)
    claims: dict[int, list[Claim]] = {}
    for (number, part_id), rows in runs.items():
        if part_id in names:
            claims.setdefault(number - 1, []).append(_claim(names[part_id], rows))
    for number, found in claims.items():
        outcomes[number].popped = Popped(leases[number], found)
        outcomes[number].more = len(found) >= pops[number].partitions or _messages(found) >= pops[number].batch


def _messages(claims: Sequence[Claim]) -> int:
    return sum([len(piece.ends) // 4 for claim in claims for piece in claim.slices])


def _claim(name: PartitionName, rows: Sequence[Delivered]) -> Claim:
    head = rows[0]
    slices: list[Slice] = [row.slice for row in rows]
    skip = frozenset(off for row in rows for off in row.skip or ())
    return Claim(head.part_id, name.queue, name.partition, head.upto, skip, head.seen, head.attempt, slices)


def _hint(columns: PopColumns, unserved: Sequence[Unserved], outcomes: Sequence[Outcome]) -> None:
    ready = {(row.grp_id, row.part_id): row.ready_in for row in unserved}
    for number, grp_id, part_id in zip(columns.pop, columns.grp, columns.part, strict=True):
        ready_in = ready.get((grp_id, part_id))
        if ready_in is not None:
            outcomes[number - 1].ready_in = min(outcomes[number - 1].ready_in, ready_in)
