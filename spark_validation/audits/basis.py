"""The basis of an audit: the rows that it judges. Without any, its result is unknown."""

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
    """Declares the basis of the decorated audit; if repeated, the audit needs rows of each.

    Args:
        what: follows "no" in the text of an unknown verdict.
        rows: function from tables, by the names of its parameters, to rows; without rows the audit must report nothing.
        excused: whether the audit does not judge the messages that ``unless_gone`` omits.
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
    """The basis of an audit: the declared one, else the rows of its first table."""
    first = next(iter(signature(find).parameters))
    return _BASES.get(find) or (Basis(first.replace("_", " "), lambda table: table, (first,)),)
