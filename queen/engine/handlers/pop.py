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
from queen.engine.ports import Delivered, PartitionName, PopColumns, Unserved

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
        columns, queues = await _columns(context, pops, todo, leases, outcomes)
        if not columns.pop:
            break
        delivered, unserved, behind = await context.database.pop(columns)
        await _hand_out(context, delivered, pops, leases, outcomes)
        for outcome in outcomes:
            outcome.behind = behind
        vanished = {row.grp_id for row in unserved if row.ready_in is None}
        _hint(columns, unserved, outcomes)
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
) -> tuple[PopColumns, dict[int, str]]:
    """The arguments of a call for some of the pops, and the queue of each group in it."""
    columns = PopColumns(
        batch=[pop.batch for pop in pops],
        parts=[pop.partitions for pop in pops],
        lease=list(leases),
        seconds=[pop.lease_seconds for pop in pops],
    )
    queues: dict[int, str] = {}
    for number in todo:
        pop = pops[number]
        for queue, queue_id in await _queues(context, pop):
            grp_id, starts_in = await context.directory.subscribed_group(queue, queue_id, pop)
            if starts_in is not None:
                outcomes[number].ready_in = min(outcomes[number].ready_in, starts_in)
            if grp_id is None:
                continue
            part_id = None
            if pop.partition is not None:
                part_id = await context.directory.partition(queue, pop.partition) or _NO_PARTITION
            columns.pop.append(number + 1)
            columns.grp.append(grp_id)
            columns.part.append(part_id)
            queues[grp_id] = queue
    return columns, queues


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
