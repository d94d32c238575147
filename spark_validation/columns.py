"""Derives the schema of a table from a frozen struct, which alone names the columns."""

from collections.abc import Iterable
from functools import cache
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from .dialect import of_arrow

_SPARK = {str: "string", int: "bigint", float: "double", bool: "boolean", bytes: "binary"}
_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), bytes: pa.binary()}


@cache
def spark_schema(kind: type[Struct]) -> str:
    """The columns of the struct as Spark's DDL, for ``spark.read.schema`` and ``createDataFrame``."""
    return ", ".join(f"`{name}` {_spark(each)}" for name, each in _columns(kind))


@cache
def arrow_schema(kind: type[Struct]) -> pa.Schema:
    """The columns of the struct for Parquet files written without Spark."""
    return pa.schema([(name, _arrow(each)) for name, each in _columns(kind)])


class Column(Struct, frozen=True):
    """A column of a struct, or of the structs in one of its lists: ``place`` is (name,) or (list, name)."""

    place: tuple[str, ...]
    type: type
    required: bool


@cache
def leaf_columns(kind: type[Struct]) -> tuple[Column, ...]:
    """The columns of the struct that are not lists, and those of the structs in its lists."""
    found: list[Column] = []
    for name, hint in _columns(kind):
        bare = _bare(hint)
        if get_origin(bare) is tuple:
            found += [Column((name, *each.place), each.type, each.required) for each in leaf_columns(get_args(bare)[0])]
        else:
            assert isinstance(bare, type)
            found.append(Column((name,), bare, type(None) not in get_args(hint)))
    return tuple(found)


def _columns(kind: type[Struct]) -> list[tuple[str, object]]:
    hints = get_type_hints(kind)
    return [(field.encode_name, hints[field.name]) for field in msgspec.structs.fields(kind)]


def _bare(hint: object) -> object:
    """The type of the values other than null."""
    if get_origin(hint) is Literal:
        return type(get_args(hint)[0])
    arguments = [each for each in get_args(hint) if each is not type(None)]
    return arguments[0] if type(None) in get_args(hint) else hint


def _spark(hint: object) -> str:
    bare = _bare(hint)
    if get_origin(bare) is tuple:
        return f"array<{_spark(get_args(bare)[0])}>"
    if isinstance(bare, type) and issubclass(bare, Struct):
        return "struct<" + ", ".join(f"`{name}`: {_spark(each)}" for name, each in _columns(bare)) + ">"
    return _SPARK[bare]  # type: ignore[index]


def _arrow(hint: object) -> pa.DataType:
    bare = _bare(hint)
    if get_origin(bare) is tuple:
        return pa.list_(_arrow(get_args(bare)[0]))
    if isinstance(bare, type) and issubclass(bare, Struct):
        return pa.struct([(name, _arrow(each)) for name, each in _columns(bare)])
    return _ARROW[bare]  # type: ignore[index]


def arrow_table(kind: type[Struct], rows: Iterable[Struct]) -> pa.Table:
    """Structs as an Arrow table."""
    return pa.Table.from_pylist([msgspec.to_builtins(row) for row in rows], arrow_schema(kind))


def spark_table(spark: SparkSession, kind: type[Struct], rows: Iterable[Struct]) -> DataFrame:
    """Structs as a table of Spark."""
    table = arrow_table(kind, rows)
    return of_arrow(spark, table) if table.num_rows else spark.createDataFrame([], spark_schema(kind))
