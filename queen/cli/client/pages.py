"""Lists that are longer than one answer."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

_PAGE = 1000


def every(page_at: Callable[[dict[str, int]], Sequence[T]], limit: int | None = None) -> Iterator[T]:
    """The elements of a list, page by page: all, or the first ``limit``.

    Args:
        page_at: answers a page, from ``limit`` and ``offset`` of its query.
        limit: maximum of elements.
    """
    offset = 0
    while limit is None or offset < limit:
        wanted = _PAGE if limit is None else min(_PAGE, limit - offset)
        page = page_at({"limit": wanted, "offset": offset})
        yield from page
        if len(page) < wanted:
            return
        offset += wanted
