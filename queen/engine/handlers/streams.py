"""Registers streams: under one name and number in every database."""

from msgspec.structs import replace

from queen.core.administration import Registered, Registration
from queen.engine.context import Context


async def register_stream(context: Context, registration: Registration) -> Registered:
    """Creates a stream or finds it by its name; it has the number that the first database gave it."""
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
