"""CYCLE: the ack, the changes of state and the pushes of a stream worker, all or none."""

from collections.abc import Sequence
from functools import partial

from queen.core.errors import NoEncryptionKeyError, QueenError
from queen.engine.context import Context
from queen.engine.handlers.ack import Gathered, locate
from queen.engine.handlers.push import announce, current_options, is_stale, laid_out_anew, lay_out, seal
from queen.engine.ports import AckColumns, Notification, PartitionName, StateColumns
from queen.log.requests import Cycle, CycleResult


async def cycle(context: Context, requests: Sequence[Cycle]) -> list[CycleResult | QueenError]:
    """Commits each cycle in a call of its own; one answer each, or the error of its call."""
    return [await _try(context, request) for request in requests]


async def _try(context: Context, request: Cycle) -> CycleResult | QueenError:
    try:
        return await _commit(context, request)
    except QueenError as problem:
        return problem


async def _commit(context: Context, request: Cycle) -> CycleResult:
    names = await context.idempotently(lambda: context.cache.names([request.part_id]))
    if request.part_id not in names:
        return CycleResult("Partition not found")
    name = names[request.part_id]
    ack = await _ack(context, request)
    if isinstance(ack, str):
        return CycleResult(ack, name.queue)
    cursor = request.part_id, await context.idempotently(lambda: context.cache.group(name, request.group))
    return await laid_out_anew(partial(_attempt, context, request, name, cursor, ack))


async def _attempt(
    context: Context, request: Cycle, name: PartitionName, cursor: tuple[int, int | None], ack: AckColumns | None
) -> CycleResult | None:
    options = await current_options(context)
    try:
        sealed = seal(context, request.push, options)
    except NoEncryptionKeyError as problem:
        return CycleResult(str(problem), name.queue)
    batch = await context.idempotently(partial(lay_out, context, [sealed], options))
    if batch is None:
        return None
    if any(stored.refused for stored in batch.answers()[0].stored):
        return CycleResult(
            "A transactionId has the form of a message id. Only the server creates those: choose another one",
            name.queue,
        )
    rows = await context.with_retries(
        lambda again: context.database.cycle(
            request.stream, cursor, batch, _state(request), ack, release=request.release, again=again
        )
    )
    if rows.undone and rows.problem is not None:
        return CycleResult(rows.problem, name.queue, rows.noop)
    if rows.undone and is_stale(context, rows.appended):
        return None
    announce(context, [request.push])
    if rows.ready:
        context.notify(Notification(name.queue, 1, request.group))
    pushed = batch.answers(rows.appended)[0]
    return CycleResult(None, name.queue, False, pushed, rows.completed or 0, rows.released, rows.dead)


async def _ack(context: Context, request: Cycle) -> AckColumns | str | None:
    """The ack as the columns of a call, or the problem with it."""
    if request.ack is None:
        return None
    items = [request.ack]
    [acks] = await context.idempotently(lambda: locate(context, items))
    return acks.cursor if isinstance(acks.cursor, str) else Gathered([acks], fuse=False).columns


def _state(request: Cycle) -> StateColumns:
    return StateColumns(
        [change.key for change in request.changes],
        [change.value.decode() if change.value is not None else None for change in request.changes],
        [change.window_end for change in request.changes],
    )
