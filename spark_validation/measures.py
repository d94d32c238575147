"""Plots of a run from its journals: throughput, latency, time from push to delivery, skew, redeliveries, lag."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from itertools import accumulate

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from .figures import Series
from .tables import Tables
from .tables.columns import NEVER, SECOND, few, looked_up

_POINTS = 200
_LANES = 50
_GROUPS = 6
Points = tuple[tuple[str, float, float], ...]
Group = tuple[str, str]


def series(tables: Tables) -> tuple[Series, ...]:
    """The plots of a report; none without journals or calls."""
    calls = tables.get("calls")
    if calls is None:
        return ()
    work = calls.where(F.col("kind").isin(*tables.flow))
    [bounds] = work.agg(F.min("sent").alias("low"), F.max(F.coalesce("answered", "sent")).alias("high")).collect()
    if bounds.low is None:
        return ()
    width = max(1, -(-(bounds.high - bounds.low) // (_POINTS * SECOND))) * SECOND
    at = (F.floor((F.col("at") - bounds.low) / width) * (width / SECOND)).alias("x")
    messages = _messages()
    timed = work.withColumn("at", F.coalesce("answered", "sent")).withColumn(
        "took", (F.col("answered") - F.col("sent")) / 1000
    )
    rate = timed.groupBy("kind", at).agg((F.sum(messages) / (width / SECOND)).alias("y"))
    slow = timed.where(F.col("took").isNotNull() & (messages > 0))
    latency = slow.groupBy("kind", at).agg(F.percentile_approx("took", 0.99).alias("y"))
    unanswered = timed.where(F.col("call") == "unknown").groupBy("kind", at).agg(F.count("*").alias("y"))
    step, last = width / SECOND, float((bounds.high - bounds.low) // width * width / SECOND)
    faults = calls.where(F.col("kind") == "fault").select("sent", "client").collect()
    marks = tuple(((row.sent - bounds.low) / SECOND, row.client) for row in faults)
    every = (
        Series("Messages", "messages per second, by type of call", _with_zeros(_points(rate), step, last), marks=marks),
        Series(
            "Latency",
            "99th percentile of answered calls with messages, ms; long polls include their wait",
            _points(latency),
            marks=marks,
        ),
        Series(
            "Calls without an answer",
            f"in {width // SECOND} s",
            _with_zeros(_points(unanswered), step, last),
            marks=marks,
        ),
    )
    if tables.interface != Tables.interface:
        return every
    behind, groups = _lag(tables, bounds.low, width, last)
    return (
        *every,
        Series(
            "From push to first delivery", "99th percentile by group, ms", _points(_end_to_end(tables, at)), marks=marks
        ),
        Series("Not yet delivered", _lag_unit(groups), behind, marks=marks),
        Series("Messages by partition", f"the {_LANES} largest", _skew(tables), over_time=False),
        Series("Redeliveries", "by the outcome of the previous delivery", _redeliveries(tables), over_time=False),
    )


def _messages() -> Column:
    """The number of messages of a call. Only one small field of each is read, because the file is columnar."""
    fields = ("pushes.duplicate", "deliveries.attempt", "acks.dead")
    sizes = [F.size(field) for field in fields]
    return sizes[0] + sizes[1] + sizes[2]


def _points(rows: DataFrame) -> Points:
    return tuple((str(row[0]), float(row[1]), float(row[2])) for row in rows.collect())


def _with_zeros(points: Points, step: float, last: float) -> Points:
    """A period without data is zero, instead of a line to the next point."""
    there = {(name, x): y for name, x, y in points}
    steps = [number * step for number in range(round(last / step) + 1)]
    return tuple((name, x, there.get((name, x), 0.0)) for name in sorted({point[0] for point in points}) for x in steps)


def _end_to_end(tables: Tables, at: Column) -> DataFrame:
    pushed = tables.messages.where(F.col("answered").isNotNull()).select("lane", "hash", "pushed_from")
    given = tables.fates.where(F.col("seen_at").isNotNull() & (F.col("seen_at") < NEVER))
    both = given.select("lane", "group", "hash", F.col("seen_at").alias("at")).join(looked_up(pushed), ["lane", "hash"])
    took = F.percentile_approx((F.col("at") - F.col("pushed_from")) / 1000, 0.99).alias("y")
    return both.groupBy("group", at).agg(took)


def _lag(tables: Tables, low: int, width: int, last: float) -> tuple[Points, int]:
    """By group: messages answered as stored so far, minus delivered ones; and the number of groups."""

    def steps(column: str) -> Column:
        return F.floor((F.col(column) - low) / width).alias("step")

    stored = tables.messages.where(F.col("answered").isNotNull()).join(F.broadcast(tables.lanes), "lane")
    stored = stored.groupBy("queue", steps("answered")).count()
    given = tables.fates.where(F.col("deliveries") > 0).join(F.broadcast(tables.lanes), "lane")
    given = given.groupBy("queue", "group", steps("seen_at")).count()
    asked = tables.pops.where(F.col("queue").isNotNull()).select("queue", "group").distinct()
    if (groups := tables.get("groups")) is not None:
        asked = asked.unionByName(groups.where("whole").select("queue", "group"))
    ins = [(row.queue, row.step, row["count"]) for row in stored.collect()]
    outs = [((row.queue, row.group), row.step, row["count"]) for row in given.collect()]
    end = round(last * SECOND / width)
    levels = lag({(row.queue, row.group) for row in asked.collect()}, ins, outs, end)
    worst = sorted(levels, key=lambda group: (-max(level for _, level in levels[group]), group))[:_GROUPS]
    points = [
        (" ".join(group), float(step * width / SECOND), float(level))
        for group in worst
        for step, level in levels[group]
    ]
    return tuple(points), len(levels)


def _lag_unit(groups: int) -> str:
    left_out = f"; the {_GROUPS} largest, {groups - _GROUPS} are omitted" if groups > _GROUPS else ""
    return f"messages, by queue and group{left_out}"


def lag(
    asked: Collection[Group], ins: Iterable[tuple[str, int, int]], outs: Iterable[tuple[Group, int, int]], end: int
) -> dict[Group, list[tuple[int, int]]]:
    """By queue and group: the number of undelivered messages per step; the last step is ``end``.

    Args:
        asked: groups, also those without deliveries.
        ins: queue, step, and number of stored messages.
        outs: group, step, and number of first deliveries.
        end: the last step of the run.
    """
    stored: defaultdict[str, Counter[int]] = defaultdict(Counter)
    given: defaultdict[Group, Counter[int]] = defaultdict(Counter)
    for queue, step, count in ins:
        stored[queue][step] += count
    for group, step, count in outs:
        given[group][step] += count
    found: dict[Group, list[tuple[int, int]]] = {}
    for group in sorted({*given, *(each for each in asked if each[0] in stored)}):
        change = Counter(stored[group[0]])
        change.subtract(given[group])
        change[end] += 0
        steps = sorted(change)
        levels = accumulate(change[step] for step in steps)
        found[group] = [(step, max(level, 0)) for step, level in zip(steps, levels, strict=True)]
    return found


def _skew(tables: Tables) -> Points:
    most = tables.messages.groupBy("lane").count().orderBy(F.desc("count")).limit(_LANES)
    rows = most.join(F.broadcast(tables.lanes), "lane").orderBy(F.desc("count")).collect()
    return tuple(
        (f"{row.queue}/{row.partition}", float(number), float(row["count"])) for number, row in enumerate(rows)
    )


def _redeliveries(tables: Tables) -> Points:
    """Redeliveries, by the strongest outcome of the message before it was done."""
    message = ["lane", "group", "hash"]
    again = tables.fates.where(F.col("deliveries") > 1).select(*message, (F.col("deliveries") - 1).alias("again"))
    said = (
        tables.acks.where(F.col("outcome") != "fail")
        .join(few(again), message, "left_semi")
        .groupBy(*message)
        .agg(
            F.max(F.col("status") == "failed").alias("failed"),
            F.max(F.col("status") == "retry").alias("retry"),
            F.max(F.col("outcome") == "unknown").alias("unknown"),
        )
    )
    reason = (
        F.when(F.col("failed"), "failed").when(F.col("retry"), "retry").when(F.col("unknown"), "ack without an answer")
    )
    rows = again.join(said, message, "left").groupBy(
        reason.otherwise("lease expired, or released with retry").alias("reason")
    )
    counted = sorted(rows.agg(F.sum("again").alias("n")).collect(), key=lambda row: -row.n)
    return tuple((row.reason, float(number), float(row.n)) for number, row in enumerate(counted))
