"""Batches of bounded weight: what is large is handled few at once."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")


def batches(items: Iterable[_Item], weight: Callable[[_Item], int], most: int) -> Iterator[list[_Item]]:
    """Items in their order, as many at once as weigh no more than ``most`` together; a heavier one for itself."""
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
