"""Pages of large rows. A database ends a page where its rows have as many bytes as an answer may have."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from msgspec import Struct

from queen.core.administration import PAGE_BYTES
from queen.engine.context import Context

R = TypeVar("R", bound=Struct)

#: Reads so many rows of a database, from an offset on; fewer, if they are large.
Fetch = Callable[[Context, int, int], Awaitable[list[R]]]


async def first_of_each(context: Context, fetch: Fetch[R], number: int) -> list[list[R]]:
    """The first rows of each database, page by page."""

    async def rows_of(each: Context) -> list[R]:
        rows: list[R] = []
        while len(rows) < number and (page := await fetch(each, number - len(rows), len(rows))):
            rows += page
        return rows

    return await context.everywhere(rows_of)


def within(rows: Iterable[R], size: Callable[[R], int], bytes_max: int = PAGE_BYTES) -> list[R]:
    """The first rows that have no more bytes than an answer may have, and at least one."""
    found: list[R] = []
    for row in rows:
        bytes_max -= size(row)
        if bytes_max < 0 and found:
            break
        found.append(row)
    return found
