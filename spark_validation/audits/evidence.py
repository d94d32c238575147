"""The evidence of audits: rows of one form."""

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


def sentence(form: str, *values: str) -> Column:
    """A text with the values of columns in place of ``%s``."""
    return F.format_string(form, *[F.col(value).cast("string") for value in values])
