"""Registers streams: under one name and number in every database."""

from collections.abc import Sequence

from msgspec.structs import replace

from queen.core.administration import Registered, Registration
from queen.engine.context import Context
from queen.log.requests import StateRows


async def register_stream(context: Context, registration: Registration) -> Registered:
    """Creates a stream or finds it by its name; it has the number that the first database gave it.

    Raises:
        DatabaseUnavailableError: its state is to be deleted, and partitions of its source are being moved.
    """
    if registration.reset:
        context.check_settled(registration.source_queue)
    (_, first), *others = context.named()
    registered = await _register(first, registration)
    if registered.conflict or not others:
        return registered
    everywhere = await context.everywhere(lambda each: _register(each, registration, registered.stream))
    return replace(registered, conflict=any(each.conflict for each in everywhere))


async def _register(context: Context, registration: Registration, number: int | None = None) -> Registered:
    register, more = context.administration.register_stream, True
    while more:
        done = await context.with_retries(lambda _again: register(registration, number))
        more = done.more
    return done


async def read_state(
    context: Context, stream: int, part_id: int, keys: Sequence[str] | None, prefix: str | None, ripe: float | None
) -> StateRows | None:
    """Rows of a stream's state; ``None`` if there is no such stream.

    No rows are an answer only if the partition is there: the worker would begin anew, and overwrite its state.
    """
    return await context.at_partition(
        part_id,
        lambda home: home.database.stream_state(stream, part_id, keys, prefix, ripe),
        lambda found: found is None or not found.rows,
    )
