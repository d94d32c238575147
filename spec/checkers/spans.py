"""Calls have a length: one is certainly before another only if it was answered before that one was invoked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TypeAlias

Span: TypeAlias = tuple[int, int, int, str]
"""A call: when it was invoked and answered, the value that it observed or made, and its keys."""


def greatest_before(spans: Iterable[Span]) -> Iterator[tuple[Span, Span | None]]:
    """Each span with the one of greatest value among those that are certainly before it."""
    by_begin = sorted(spans)
    by_end = iter(sorted(by_begin, key=itemgetter(1)))
    ended = next(by_end, None)
    greatest: Span | None = None
    for span in by_begin:
        while ended is not None and ended[1] < span[0]:
            if greatest is None or ended[2] > greatest[2]:
                greatest = ended
            ended = next(by_end, None)
        yield span, greatest
