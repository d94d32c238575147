"""Asks all databases at once. What one of them cannot answer, nobody is told in part."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from queen.core.errors import DatabaseUnavailableError
from queen.engine.context import Context

T = TypeVar("T")


async def ask_all(databases: Sequence[tuple[str, Context]], work: Callable[[Context], Awaitable[T]]) -> list[T]:
    """The results of a function on each database, in their order.

    Raises:
        DatabaseUnavailableError: one is unavailable; its name is in the text. If that was known, nothing was done.
        QueenError: the first error of one of them; the others have done it.
    """
    for name, context in databases:
        if context.unavailable:
            raise DatabaseUnavailableError(
                f"Database {name} is unavailable, and the request concerns all databases", database=name
            )
    results = await asyncio.gather(*[work(context) for _, context in databases], return_exceptions=True)
    found: list[T] = []
    for (name, _), result in zip(databases, results, strict=True):
        if isinstance(result, DatabaseUnavailableError):
            raise type(result)(f"Database {name}: {result}", database=name) from result
        if isinstance(result, BaseException):
            raise result
        found.append(result)
    return found
