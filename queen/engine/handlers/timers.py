"""TIMER: sets, cancels and fires timers; and changes of cron schedules."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from queen.core import cron
from queen.core.administration import CronSchedule
from queen.core.errors import BadRequestError, NoEncryptionKeyError, OutcomeUnknownError, QueenError
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
    try:
        return seal_changes(context, request, options)
    except NoEncryptionKeyError as problem:
        return problem


def seal_changes(context: Context, changes: Sequence[TimerChange], options: PushOptions) -> Sequence[TimerChange]:
    """The changes with messages for encrypted queues encrypted: they rest in PostgreSQL until their time.

    Raises:
        NoEncryptionKeyError: one of the queues is encrypted, and there is no key.
    """
    if not any(change.queue in options.encrypted for change in changes):
        return changes
    return [_sealed_message(context, change, options) if change.message else change for change in changes]


def _sealed_message(context: Context, change: TimerChange, options: PushOptions) -> TimerChange:
    return replace(change, message=_seal(context, change.queue, change.partition, change.message, options))


def _seal(context: Context, queue: str, partition: str, message: bytes, options: PushOptions) -> bytes:
    batch = PartitionBatch(queue, partition, range(1), message, [len(message) + 1], None)
    return seal(context, Push([batch], 1), options).batches[0].body


async def set_schedule(context: Context, schedule: CronSchedule, message: bytes) -> datetime:
    """Sets a cron schedule, from now on, in the database of its partition; returns its first time.

    Raises:
        BadRequestError: the expression has no time.
        DatabaseUnavailableError: partitions of the queue are being moved to other databases.
        NoEncryptionKeyError: the queue is encrypted, and there is no key.
    """
    context.check_settled(schedule.queue)
    home = await context.home(schedule.queue, schedule.partition)
    # One with this name and another partition may be elsewhere. It goes first, so that no time counts twice.
    for _, other in context.named():
        if other is not home:
            await delete_schedule(other, schedule.queue, schedule.name)
    return await laid_out_anew(partial(_set_schedule, home, schedule, message))


async def _set_schedule(context: Context, schedule: CronSchedule, message: bytes) -> datetime | None:
    options = await current_options(context)
    sealed = _seal(context, schedule.queue, schedule.partition, message, options)
    now = await context.idempotently(context.database.now)
    next_at = cron.next_after(schedule.cron, schedule.time_zone, now)
    if next_at is None:
        raise BadRequestError("cron: the expression has no time", "cron")
    timers = context.administration.timers
    if await context.idempotently(lambda: timers.set_schedule(schedule, sealed, now, next_at, options.version)) is None:
        context.cache.forget_push_options()
        return None
    return next_at


async def delete_schedule(context: Context, queue: str, name: str) -> bool:
    """Deletes a cron schedule; false if there is none."""
    return any(await context.everywhere(lambda each: _delete_schedule(each, queue, name)))


async def _delete_schedule(context: Context, queue: str, name: str) -> bool:
    deleted, lost = await context.tried(lambda _again: context.administration.timers.delete_schedule(queue, name))
    return deleted or lost  # by the attempt whose answer was lost
