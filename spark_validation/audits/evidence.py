"""The evidence of audits: rows of one form."""

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

EVIDENCE = {
    "lane": "bigint",
    "group": "string",
    "offset": "bigint",
    "hash": "bigint",
    "agent": "string",
    "number": "bigint",
    "position": "int",
    "lease": "string",
    "queue": "string",
}
"""The location of a violation: in the log by lane and offset or hash, in a journal by agent, number and position."""


def violations(rows: DataFrame, text: Column) -> DataFrame:
    """The rows as evidence with a text for people; columns that they lack are null."""
    there = [
        (F.col(name) if name in rows.columns else F.lit(None)).cast(kind).alias(name) for name, kind in EVIDENCE.items()
    ]
    return rows.select(*there, text.alias("text"))


def cases(rows: DataFrame, *each: tuple[Column, Column]) -> DataFrame:
    """The rows as evidence of each of the cases that is true of them, with its text; they are read once for all."""
    some = reduce(or_, [wrong for wrong, _ in each])
    texts = F.array_compact(F.array(*[F.when(wrong, text) for wrong, text in each]))
    return violations(rows.where(some).withColumn("case", F.explode(texts)), F.col("case"))


def moment(time: Column) -> Column:
    """A time in microseconds as UTC, for people."""
    return F.concat(F.date_format(F.timestamp_micros(time), "yyyy-MM-dd HH:mm:ss.SSSSSS"), F.lit(" UTC"))


def missing(below: str, above: str, form: str = "%s") -> Column:
    """A text that names the offsets between two; ``form`` has ``%s`` in their place."""
    first, last = F.col(below) + 1, F.col(above) - 1
    one = F.concat(F.lit("offset "), first.cast("string"))
    more = F.concat(F.lit("offsets "), first.cast("string"), F.lit(" to "), last.cast("string"))
    return F.format_string(form, F.when(first == last, one).otherwise(more))


def sentence(form: str, *values: str) -> Column:
    """A text with the values of columns in place of ``%s``."""
    return F.format_string(form, *[F.col(value).cast("string") for value in values])
