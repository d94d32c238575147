"""Batches of bounded weight, so that few large items are handled at once."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")


def batches(items: Iterable[_Item], weight: Callable[[_Item], int], most: int) -> Iterator[list[_Item]]:
    """Batches of items in their order, of at most ``most`` weight each; a heavier item is a batch of its own."""
    batch: list[_Item] = []
    whole = 0
    for item in items:
        own = weight(item)
        if batch and whole + own > most:
            yield batch
            batch, whole = [], 0
        batch.append(item)
        whole += own
    if batch:
        yield batch
