"""How rows of several databases become the rows of one: pure functions.

Rows of one partition, message or dead letter are on one database: pages of them are *merged*. Rows of a queue, group,
label, time or worker may be on several: they are *combined*, field by field, and then sorted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from msgspec import Struct, structs

R = TypeVar("R", bound=Struct)

#: How a field of combined rows is computed, from all rows and the name of the field.
Rule = Callable[[Sequence[Any], str], Any]
#: What rows are sorted by, and whether the largest comes first.
By = tuple[Callable[[Any], Any], bool]

#: The most rows that are read from a database to combine them. A list of queues or groups knows no more.
ROWS_MAX = 100_000


def merged(parts: Iterable[Iterable[R]]) -> list[R]:
    """The rows of all parts, part after part."""
    return list(chain.from_iterable(parts))


def in_order(rows: Iterable[R], *order: By) -> list[R]:
    """Rows, sorted by the first of some values, among equals by the next, and then as they came."""
    found = list(rows)
    for value, largest_first in reversed(order):
        found.sort(key=value, reverse=largest_first)
    return found


def cut(rows: Sequence[R], limit: int, offset: int) -> list[R]:
    """A page of sorted rows."""
    return list(rows[offset : offset + limit])


def combined(parts: Iterable[Iterable[R]], key: Sequence[str], rules: Mapping[str, Rule]) -> list[R]:
    """Rows with the same key become one, by the rules; a field without a rule is that of the first of them."""
    groups: dict[tuple[Any, ...], list[R]] = {}
    for row in chain.from_iterable(parts):
        groups.setdefault(tuple([getattr(row, name) for name in key]), []).append(row)
    return [as_one(rows, rules) for rows in groups.values()]


def as_one(rows: Sequence[R], rules: Mapping[str, Rule]) -> R:
    """Rows as one, by the rules."""
    if len(rows) == 1:
        return rows[0]
    return structs.replace(rows[0], **{name: rule(rows, name) for name, rule in rules.items()})


def each_of(rule: Rule, *names: str) -> dict[str, Rule]:
    """A rule for some fields."""
    return dict.fromkeys(names, rule)


def _values(rows: Sequence[Any], name: str) -> list[Any]:
    return [value for row in rows if (value := getattr(row, name)) is not None]


def total(rows: Sequence[Any], name: str) -> Any:  # noqa: ANN401 - that of the field
    """The sum of what is known; ``None``: nothing is."""
    values = _values(rows, name)
    return sum(values) if values else None


def smallest(rows: Sequence[Any], name: str) -> Any:  # noqa: ANN401
    """The smallest that is known."""
    return min(_values(rows, name), default=None)


def largest(rows: Sequence[Any], name: str) -> Any:  # noqa: ANN401
    """The largest that is known."""
    return max(_values(rows, name), default=None)


def oldest(rows: Sequence[Any], name: str) -> Any:  # noqa: ANN401
    """The smallest, or ``None`` if one is not known: when all of it was computed."""
    values = _values(rows, name)
    return min(values, default=None) if len(values) == len(rows) else None


def any_of(rows: Sequence[Any], name: str) -> bool:
    """Whether it is so for one of them."""
    return any(_values(rows, name))


def all_of(rows: Sequence[Any], name: str) -> bool | None:
    """Whether it is so for all that know it; ``None``: none does."""
    values = _values(rows, name)
    return all(values) if values else None


def mean_by(weight: str) -> Rule:
    """The mean, weighted by another field."""

    def mean(rows: Sequence[Any], name: str) -> float:
        weights = sum([getattr(row, weight) for row in rows])
        return sum([getattr(row, name) * getattr(row, weight) for row in rows]) / weights if weights else 0.0

    return mean
