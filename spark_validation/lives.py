"""The lives of a consumer group: the deletion of a group ends one, and so does a seek.

Calls certainly before such a change are those of a group of their own, with a mark behind its name: what is true of a
group is true of each of its lives. Calls that overlap with a change are not judged.
"""

from typing import Any

from msgspec import Struct
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from .columns import spark_table
from .journal import changes

MARK = r" ⟨[^⟩]*⟩$"
DURING = " ⟨during a change⟩"


class End(Struct, frozen=True):
    """What ended lives: in a queue (None: all), a partition (None: all), of a group.

    ``whole``: the next one begins at the oldest message.
    """

    queue: str | None
    partition: str | None
    group: str
    invoked: int
    completed: int
    whole: bool


def ends_of(rows: list[Row]) -> list[End]:
    """The ends that changes tell."""
    return [
        End(row.queue, row.partition, row.group, row.invoked, row.completed, not row.auto_ack)
        for row in rows
        if row.client in (changes.GROUP_DELETED, changes.GROUP_SOUGHT)
    ]


def by_lane(lanes: DataFrame, ends: list[End], born: dict[tuple[str, str], int]) -> DataFrame:
    """By lane and group: the ``ends`` of its lives, and since when it is the one in the database (``born``)."""
    spark = lanes.sparkSession
    names = lanes.select("lane", F.col("queue").alias("q"), F.col("partition").alias("p"))
    told = spark_table(spark, End, ends)
    inside = (F.col("queue").isNull() | (F.col("queue") == F.col("q"))) & (
        F.col("partition").isNull() | (F.col("partition") == F.col("p"))
    )
    run = F.struct("completed", "invoked", "whole")
    ended = (
        names.join(F.broadcast(told), inside)
        .groupBy("lane", "group")
        .agg(F.array_sort(F.collect_list(run)).alias("ends"))
    )
    again = spark.createDataFrame([(*key, at) for key, at in born.items()], "q string, group string, born bigint")
    again = names.join(F.broadcast(again), "q").select("lane", "group", "born")
    none = F.array().cast("array<struct<completed:bigint,invoked:bigint,whole:boolean>>")
    return ended.join(again, ["lane", "group"], "full").withColumn("ends", F.coalesce("ends", none))


def named(group: Column, invoked: Column, completed: Column) -> Column:
    """The name of the life of a group in which a call was made, beside ``ends`` and ``born``."""
    before = F.size(F.filter("ends", lambda end: end["completed"] < invoked))
    over = F.exists("ends", lambda end: (end["completed"] >= invoked) & (end["invoked"] <= completed))
    earlier = F.coalesce(completed < F.col("born"), F.lit(False)) | (before < F.size("ends"))
    known = F.col("ends").isNotNull()
    return (
        F.when(known & over, F.concat(group, F.lit(DURING)))
        .when(known & earlier, F.concat(group, _life(before)))
        .otherwise(group)
    )


def _life(number: Column) -> Column:
    return F.concat(F.lit(" ⟨before change "), (number + 1).cast("string"), F.lit("⟩"))


def names(group: Column) -> Column:
    """The names of all other lives of a group, beside ``ends``."""
    numbers = F.sequence(F.lit(0), F.size("ends"))
    return F.transform(numbers, lambda n: F.concat(group, _life(n)))


def plain(group: str) -> Column:
    """The name of the group of a life."""
    return F.regexp_replace(group, MARK, "")


def begun(pops: DataFrame, groups: DataFrame) -> dict[tuple[str, str], int]:
    """The groups that had calls before they were made: when they were made."""
    first = pops.where(F.col("queue").isNotNull()).groupBy("queue", "group").agg(F.min("completed").alias("first"))
    made: dict[tuple[str, str], Any] = {(row.queue, row.group): row.created_at for row in groups.collect()}
    found = {(row.queue, row.group): row.first for row in first.collect()} if any(made.values()) else {}
    return {key: made[key] for key, first in found.items() if key in made and first < made[key]}
