"""What an audit judges: without such rows it cannot say anything."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import TypeVar

from pyspark.sql import DataFrame

from .excuse import unless_gone

Find = TypeVar("Find", bound=Callable[..., DataFrame])


@dataclass(frozen=True)
class Basis:
    """Rows without which an audit has nothing to judge: a function of ``tables``, asked for its first row only."""

    what: str
    rows: Callable[..., DataFrame]
    tables: tuple[str, ...]


_BASES: dict[Callable[..., DataFrame], tuple[Basis, ...]] = {}


def judges(what: str, rows: Callable[..., DataFrame], *, excused: bool = False) -> Callable[[Find], Find]:
    """Says what the decorated audit judges; said several times, it needs rows of each.

    Args:
        what: stands behind "no" in the text of a verdict that is unknown.
        rows: from tables, by the names of its parameters, to rows; without any the audit must have nothing to report.
        excused: whether the audit reports nothing of what ``unless_gone`` leaves out, so that it judges only the rest.
    """
    tables = tuple(signature(rows).parameters)

    def still_there(*given: DataFrame) -> DataFrame:
        return unless_gone(rows(*given[: len(tables)]), *given[len(tables) :])

    def record(find: Find) -> Find:
        basis = Basis(what, still_there, (*tables, "kept", "given_up")) if excused else Basis(what, rows, tables)
        _BASES[find] = (basis, *_BASES.get(find, ()))
        return find

    return record


def bases_of(find: Callable[..., DataFrame]) -> tuple[Basis, ...]:
    """What an audit judges: what it says, else the rows of its first table."""
    first = next(iter(signature(find).parameters))
    return _BASES.get(find) or (Basis(first.replace("_", " "), lambda table: table, (first,)),)
