"""TIMER: sets, cancels and fires timers."""

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from queen.core.errors import NoEncryptionKeyError, OutcomeUnknownError, QueenError
from queen.engine.context import Context
from queen.engine.handlers.push import current_options, laid_out_anew, seal
from queen.engine.ports import PushOptions
from queen.log.requests import PartitionBatch, Push, TimerChange, TimerVerdict

Answer = Sequence[TimerVerdict] | QueenError


async def change_timers(context: Context, requests: Sequence[Sequence[TimerChange]]) -> list[Answer]:
    """Carries out the changes of all requests; the verdicts of each, or the error of a refused one.

    A call may be repeated after a lost answer. A timer that has fired meanwhile is then set again and fires again, but
    its transaction id is stored once.
    """
    return await laid_out_anew(partial(_change, context, requests))


async def _change(context: Context, requests: Sequence[Sequence[TimerChange]]) -> list[Answer] | None:
    options = await current_options(context)
    sealed = [_sealed(context, request, options) for request in requests]
    changes = [change for request in sealed if not isinstance(request, QueenError) for change in request]
    if not changes:
        return [request if isinstance(request, QueenError) else [] for request in sealed]
    found, lost = await context.tried(lambda _again: context.database.change_timers(changes, options.version))
    if not found:
        context.cache.forget_push_options()
        return None
    verdicts = iter(found)
    return [
        request if isinstance(request, QueenError) else _judged([next(verdicts) for _ in request], lost=lost)
        for request in sealed
    ]


def _judged(verdicts: Sequence[TimerVerdict], *, lost: bool) -> Answer:
    if lost and any(verdict.status == "absent" for verdict in verdicts):
        return OutcomeUnknownError("PostgreSQL became unavailable, and the timer is gone; it may have been cancelled")
    return verdicts


def _sealed(
    context: Context, request: Sequence[TimerChange], options: PushOptions
) -> Sequence[TimerChange] | NoEncryptionKeyError:
    """The changes with messages for encrypted queues encrypted: they rest in PostgreSQL until their time."""
    if not any(change.queue in options.encrypted for change in request):
        return request
    try:
        return [_sealed_message(context, change, options) if change.message else change for change in request]
    except NoEncryptionKeyError as problem:
        return problem


def _sealed_message(context: Context, change: TimerChange, options: PushOptions) -> TimerChange:
    batch = PartitionBatch(
        change.queue, change.partition, range(1), change.message, [len(change.message) + 1], [change.transaction_id]
    )
    return replace(change, message=seal(context, Push([batch], 1), options).batches[0].body)
