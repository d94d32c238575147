"""PUSH: many requests, one segment a partition, one call."""

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid4

from queen.core.errors import DatabaseUnavailableError
from queen.core.operations import Push, Pushed
from queen.engine.context import Context
from queen.engine.flush import Flush, reserved_ids
from queen.engine.ports import Notice

#: How often a flush is laid out anew because a queue was deleted under it.
LAYOUTS_MAX = 50
BEING_DELETED = "The queue is being deleted again and again while it is pushed to"


def places_of(pushes: Sequence[Push]) -> set[tuple[str, str]]:
    """The partitions, by queue and name, that these requests push to."""
    return {(lot.queue, lot.partition) for push in pushes for lot in push.lots}


async def lay_out(context: Context, pushes: Sequence[Push], flush_id: UUID | None = None) -> Flush:
    """The segments of these requests, with the partitions that they name made where missing; by default a new flush."""
    keys = places_of(pushes)
    for _ in range(LAYOUTS_MAX):
        part_ids = await context.directory.partitions(keys, create=True)
        if len(part_ids) == len(keys):
            break
    else:
        raise DatabaseUnavailableError(BEING_DELETED)
    return await lay_out_in(context, pushes, part_ids, flush_id)


async def lay_out_in(
    context: Context, pushes: Sequence[Push], part_ids: Mapping[tuple[str, str], int], flush_id: UUID | None = None
) -> Flush:
    """The segments of these requests in partitions with these numbers; by default a new flush."""
    reserved = reserved_ids(pushes, part_ids)
    found: list[bool] = []
    if reserved:
        places = list(reserved.values())
        found = await context.database.find_server_made([part for part, _ in places], [off for _, off in places])
    made = frozenset(text for text, exists in zip(reserved, found, strict=True) if exists)
    return Flush(flush_id or uuid4(), pushes, part_ids, reserved, made)


async def push(context: Context, pushes: Sequence[Push], flush_id: UUID | None = None) -> list[Pushed]:
    """Stores the messages of all requests; one answer each.

    With a spool it does not outwait an outage. A layout that met an unknown partition stored nothing, so the next one
    may go by the same flush id.
    """
    outwaits = context.failover is None
    for _ in range(LAYOUTS_MAX):
        flush = await context.patiently(lambda _again: lay_out(context, pushes, flush_id), outwaits=outwaits)
        if not flush.columns.part:
            return flush.answers(())
        appended = await context.patiently(
            lambda again, f=flush: context.database.push(f.columns, again=again),  # type: ignore[misc]
            outwaits=outwaits,
        )
        unknown = [row.part_id for row in appended if row.first is None]
        if not unknown:
            announce(context, pushes)
            return flush.answers(appended)
        context.directory.forget_partitions(unknown)
    raise DatabaseUnavailableError(BEING_DELETED)


def announce(context: Context, pushes: Sequence[Push]) -> None:
    """Wakes who waits for messages of these requests."""
    messages: dict[str, int] = {}
    for request in pushes:
        for lot in request.lots:
            messages[lot.queue] = messages.get(lot.queue, 0) + len(lot.places)
    for queue, number in messages.items():
        context.heard(Notice(queue, number))
