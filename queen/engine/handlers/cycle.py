"""CYCLE: what a worker of a stream made of its input: ack, state and outputs, all or none."""

from collections.abc import Sequence
from functools import partial

from queen.core.errors import DatabaseUnavailableError, NoEncryptionKeyError, QueenError
from queen.core.operations import Cycle, Cycled
from queen.engine.context import Context
from queen.engine.handlers.ack import Gathered, locate
from queen.engine.handlers.push import (
    CHANGES_TOO_OFTEN,
    LAYOUTS_MAX,
    announce,
    current_options,
    is_stale,
    lay_out,
    seal,
)
from queen.engine.ports import AckColumns, Notice, PartitionName, StateColumns


async def cycle(context: Context, requests: Sequence[Cycle]) -> list[Cycled | QueenError]:
    """Commits each cycle in a call of its own; one answer each, or the error of its call."""
    return [await _try(context, request) for request in requests]


async def _try(context: Context, request: Cycle) -> Cycled | QueenError:
    try:
        return await _commit(context, request)
    except QueenError as problem:
        return problem


async def _commit(context: Context, request: Cycle) -> Cycled:
    names = await context.harmlessly(lambda: context.directory.names([request.part_id]))
    if request.part_id not in names:
        return Cycled("Partition not found")
    name = names[request.part_id]
    ack = await _ack(context, request)
    if isinstance(ack, str):
        return Cycled(ack, name.queue)
    grp_id = await context.harmlessly(lambda: context.directory.group(name, request.group))
    state = _state(request)
    for _ in range(LAYOUTS_MAX):
        options = await current_options(context)
        try:
            sealed = seal(context, request.push, options)
        except NoEncryptionKeyError as problem:
            return Cycled(str(problem), name.queue)
        flush = await context.harmlessly(partial(lay_out, context, [sealed], options))
        [pushed] = flush.answers(())
        if any(stored.refused for stored in pushed.stored):
            return Cycled("A transactionId has the form of a message id: the server makes those", name.queue)
        rows = await context.patiently(
            lambda again, f=flush: context.database.cycle(  # type: ignore[misc]
                request.stream, (request.part_id, grp_id), f.columns, state, ack, release=request.release, again=again
            )
        )
        if rows.undone and rows.problem is not None:
            return Cycled(rows.problem, name.queue)
        if rows.undone and is_stale(context, rows.appended):
            continue
        _announce(context, request, name, ready=rows.ready)
        [pushed] = flush.answers(rows.appended)
        return Cycled(None, name.queue, pushed, rows.completed or 0, rows.released, rows.dead)
    raise DatabaseUnavailableError(CHANGES_TOO_OFTEN)


async def _ack(context: Context, request: Cycle) -> AckColumns | str | None:
    """The ack as the columns of a call, or the problem with it."""
    if request.ack is None:
        return None
    items = [request.ack]
    [stretch] = await context.harmlessly(lambda: locate(context, items))
    return stretch.cursor if isinstance(stretch.cursor, str) else Gathered([stretch], fuse=False).columns


def _state(request: Cycle) -> StateColumns:
    return StateColumns(
        [change.key for change in request.changes],
        [change.value.decode() if change.value is not None else None for change in request.changes],
        [change.window_end for change in request.changes],
    )


def _announce(context: Context, request: Cycle, name: PartitionName, *, ready: bool) -> None:
    """Wakes who waits for the outputs, or for the partition that is free again."""
    announce(context, [request.push])
    if ready:
        context.heard(Notice(name.queue, 1, request.group))
