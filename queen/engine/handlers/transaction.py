"""TRANSACTION: pushes and acks of one request, all or none."""

from collections.abc import Sequence
from uuid import UUID

from queen.core.errors import DatabaseUnavailableError
from queen.core.operations import AckResult, Executed, Pushed, Transaction
from queen.engine.context import Context
from queen.engine.handlers.ack import Gathered, lease_of, locate
from queen.engine.handlers.push import BEING_DELETED, LAYOUTS_MAX, announce, lay_out


async def transaction(context: Context, requests: Sequence[Transaction]) -> list[Executed]:
    """Executes each request in a call of its own."""
    return [await _execute(context, request) for request in requests]


async def _execute(context: Context, request: Transaction) -> Executed:
    spots = await context.patiently(lambda _again: locate(context, request.acks))
    gathered = Gathered(request.acks, spots)
    if not gathered.all_found:
        return Executed(True, Pushed([]), [AckResult(spot if isinstance(spot, str) else None) for spot in spots])
    required = _required(request)
    for _ in range(LAYOUTS_MAX):
        flush = await context.patiently(lambda _again: lay_out(context, [request.push]))
        [pushed] = flush.answers(())
        if any(stored.duplicates or stored.refused for stored in pushed.stored):
            return Executed(True, pushed, [])
        rows = await context.patiently(
            lambda again, f=flush: context.database.execute(f.columns, gathered.columns, required, again=again)  # type: ignore[misc]
        )
        unknown = [row.part_id for row in rows.appended if row.first is None]
        if unknown:
            context.directory.forget_partitions(unknown)
            continue
        if not rows.undone:
            announce(context, [request.push])
            gathered.announce(context, rows.acks)
        [pushed] = flush.answers(rows.appended)
        return Executed(rows.undone, pushed, gathered.results(rows.acks))
    raise DatabaseUnavailableError(BEING_DELETED)


def _required(request: Transaction) -> list[UUID] | None:
    if request.required_leases is None:
        return None
    leases: Sequence[UUID | None] = [lease_of(text) for text in request.required_leases]
    return [lease for lease in leases if lease is not None]
