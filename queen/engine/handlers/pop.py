"""POP: the pops of many consumers in one call."""

from collections.abc import Mapping, Sequence
from math import inf
from uuid import UUID

from queen.core.errors import DatabaseUnavailableError, OutcomeUnknownError, TooSlowError
from queen.engine.context import Context
from queen.engine.fetch_result import FetchResult
from queen.engine.handlers.give_back import give_back_orphans
from queen.engine.orphans import Orphan
from queen.engine.ports import Delivered, PartitionName, PopColumns, Subscription, Unserved
from queen.log.requests import Claim, Pop, Popped, Slice

#: How often a group is looked up because it was deleted during the pop.
_LOOKUPS_MAX = 3


#: Stands for a partition that does not exist yet; the call still finds out whether the group exists.
_NO_PARTITION = -1


class Outcome(FetchResult):
    """The messages of a pop; if there are none, seconds until something becomes ready by itself (``inf``: never)."""

    __slots__ = ("more", "popped", "prefetched", "ready_in")

    def __init__(self) -> None:
        self.popped = Popped()
        self.ready_in = inf
        self.more = self.prefetched = False

    @property
    def result(self) -> Popped:
        """The answer."""
        return self.popped

    @property
    def found(self) -> bool:
        """Whether there are messages."""
        return bool(self.popped.claims)


async def pop(
    context: Context, pops: Sequence[Pop]
) -> list[Outcome | OutcomeUnknownError] | list[DatabaseUnavailableError]:
    """Serves all pops; one outcome each.

    An autoAck pop whose call broke off is not repeated: messages that the call took are done for the group, and an
    answer with later messages, or without any, would hide that.
    """
    broken = False

    async def attempt(again: bool) -> list[Outcome | OutcomeUnknownError]:
        nonlocal broken
        await give_back_orphans(context)
        served = [pop for pop in pops if not (again and pop.auto_ack)]
        leases = [None if pop.auto_ack else context.new_lease() for pop in served]
        try:
            outcomes = iter(await _pop(context, served, leases))
        except OutcomeUnknownError:
            broken = True
            # Otherwise messages that it may have leased would be withheld until the lease ends.
            context.orphans.add(
                Orphan(lease, pop.queue, pop.group) for lease, pop in zip(leases, served, strict=True) if lease
            )
            raise
        return [lost() if again and pop.auto_ack else next(outcomes) for pop in pops]

    try:
        # Long polls do not wait here, where they would miss their timeout: the engine parks them.
        return await context.with_retries(attempt, retries_during_outage=not any(pop.wait_ms for pop in pops))
    except DatabaseUnavailableError as problem:
        if not broken or not any(pop.auto_ack for pop in pops):
            raise
        return [lost() if pop.auto_ack else DatabaseUnavailableError(str(problem)) for pop in pops]


def lost() -> OutcomeUnknownError:
    """The answer to a pop with autoAck whose call broke off."""
    return OutcomeUnknownError(
        "PostgreSQL became unavailable during a pop with autoAck; messages that it took, if any, count as acknowledged"
    )


async def _pop(context: Context, pops: Sequence[Pop], leases: Sequence[UUID | None]) -> list[Outcome]:
    outcomes = [Outcome() for _ in pops]
    todo: Sequence[int] = range(len(pops))
    committed = False
    try:
        for _ in range(_LOOKUPS_MAX):
            columns, queues, unfinished = await _columns(context, pops, todo, leases, outcomes)
            if not columns.pop:
                break
            delivered, unserved = await context.database.pop(columns)
            committed = True
            await _hand_out(context, delivered, pops, leases, outcomes)
            _hint(columns, unserved, outcomes)
            for number in unfinished:
                outcomes[number].ready_in = -inf  # other pops have taken the messages
            todo = _without_group(context, columns, queues, unserved, outcomes)
            if not todo:
                break
    except (DatabaseUnavailableError, TooSlowError) as problem:
        # What follows a committed call must not make it look like one that has done nothing.
        raise OutcomeUnknownError(str(problem)) if committed else problem from problem
    return outcomes


def _without_group(
    context: Context,
    columns: PopColumns,
    queues: Mapping[int, str],
    unserved: Sequence[Unserved],
    outcomes: Sequence[Outcome],
) -> list[int]:
    """The pops without messages whose group was deleted meanwhile, or the queue of the group; these are forgotten."""
    vanished = {row.grp_id for row in unserved if row.ready_in is None}
    for grp_id in vanished:
        context.cache.forget_queue(queues[grp_id])
    return [
        number - 1
        for number, grp_id in zip(columns.pop, columns.grp, strict=True)
        if grp_id in vanished and not outcomes[number - 1].popped.claims
    ]


async def _columns(
    context: Context,
    pops: Sequence[Pop],
    todo: Sequence[int],
    leases: Sequence[UUID | None],
    outcomes: Sequence[Outcome],
) -> tuple[PopColumns, dict[int, str], list[int]]:
    """The arguments of a call for some pops; the queue of each group; and the numbers of pops with an unfinished group.

    A pop that is not admitted to its group is left out, and tries again at once.
    """
    columns = PopColumns(
        batch=[pop.batch for pop in pops],
        parts=[pop.partitions for pop in pops],
        lease=list(leases),
        seconds=[pop.lease_seconds for pop in pops],
    )
    queues: dict[int, str] = {}
    admission = Admission(context, [pops[number] for number in todo])
    unfinished = []
    for number in todo:
        targets = await admission.targets(pops[number], outcomes[number])
        for grp_id, part_id, queue in targets or ():
            columns.pop.append(number + 1)
            columns.grp.append(grp_id)
            columns.part.append(part_id)
            queues[grp_id] = queue
        if targets is None:
            outcomes[number].ready_in = -inf
        elif not admission.unfinished.isdisjoint([grp_id for grp_id, part_id, _ in targets if part_id is None]):
            unfinished.append(number)
    return columns, queues, unfinished


class Admission:
    """Decides which pops of a call may pop from groups that lack cursors.

    A pop is admitted if enough partitions have been ready since the group began to fill all admitted pops. Then no pop
    passes over a partition that has no cursor yet, and each gets as many messages as it has room for.

    Attributes:
        unfinished: the groups that lack cursors.
    """

    def __init__(self, context: Context, pops: Sequence[Pop]) -> None:
        self._context, self._pops = context, pops
        self._asked: dict[tuple[str, str, int | None], tuple[Subscription, int]] = {}
        self.unfinished: set[int] = set()

    async def targets(self, pop: Pop, outcome: Outcome) -> list[tuple[int, int | None, str]] | None:
        """The targets of a pop: group, partition (``None``: any) and queue; ``None`` if it is not admitted."""
        targets: list[tuple[int, int | None, str]] = []
        admitted = True
        for queue, queue_id in await _queues(self._context, pop):
            part_id = None
            if pop.partition is not None:
                part_id = await self._context.cache.partition(queue, pop.partition) or _NO_PARTITION
            group, enough = await self._group(queue, queue_id, pop, part_id)
            if group.starts_in is not None:
                outcome.ready_in = min(outcome.ready_in, group.starts_in)
            elif not enough:
                admitted = False
            elif group.grp_id is not None:
                targets.append((group.grp_id, part_id, queue))
        return targets if admitted else None

    async def _group(
        self, queue: str, queue_id: int | None, pop: Pop, part_id: int | None
    ) -> tuple[Subscription, bool]:
        """The group of a pop on a queue, and whether the pop is admitted."""
        known = self._context.cache.known_group(queue, queue_id, pop.group)
        if known is not None:
            return known, True
        key = queue, pop.group, part_id
        if key not in self._asked:
            self._asked[key] = await self._ask(queue, pop, part_id)
        group, left = self._asked[key]
        enough = not group.unfinished or (group.grp_id is not None and left >= _wanted(pop))
        if part_id is None and enough:
            self._asked[key] = group, left - _wanted(pop)
        return group, enough

    async def _ask(self, queue: str, pop: Pop, part_id: int | None) -> tuple[Subscription, int]:
        """The group, from PostgreSQL, and how many of its partitions have been ready since it began."""
        same = [other for other in self._pops if other.group == pop.group and other.partition == pop.partition]
        wanted = sum([_wanted(other) for other in same])
        group = await self._context.cache.subscribed_group(queue, pop, part_id, wanted)
        if group.unfinished and group.grp_id is not None:
            self._context.unfinished.add((queue, pop.group))
            self.unfinished.add(group.grp_id)
        return group, group.ready or 0


def _wanted(pop: Pop) -> int:
    """The number of partitions with at least one message each that fill a pop."""
    return min(pop.batch, pop.partitions) if pop.partition is None else 1


async def _queues(context: Context, pop: Pop) -> Sequence[tuple[str, int | None]]:
    """The queues of a pop, with their numbers if they were looked up."""
    return [(pop.queue, None)] if pop.queue else await context.database.find_queues(pop.namespace, pop.task)


async def _hand_out(
    context: Context,
    delivered: Sequence[Delivered],
    pops: Sequence[Pop],
    leases: Sequence[UUID | None],
    outcomes: Sequence[Outcome],
) -> None:
    names = await context.idempotently(
        lambda: context.cache.names(row.part_id for row in delivered), retries_during_outage=False
    )
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
    found = {(row.grp_id, row.part_id): row for row in unserved if row.ready_in is not None}
    for number, grp_id, part_id in zip(columns.pop, columns.grp, columns.part, strict=True):
        row, outcome = found.get((grp_id, part_id)), outcomes[number - 1]
        if row is not None and row.ready_in is not None:
            outcome.ready_in = min(outcome.ready_in, row.ready_in)
            outcome.prefetched = outcome.prefetched or row.prefetched
