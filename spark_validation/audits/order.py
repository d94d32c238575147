"""Order: offsets, the order of pushes, and the order of deliveries."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..dialect import stacked
from ..tables.columns import NEVER, bounds, direct, few, may_be_stored, shifts, unless
from .basis import judges
from .evidence import missing, moment, sentence, violations
from .excuse import unless_all_given_up
from .spans import with_greatest_before

BUCKET = 8192
"""Offsets per task of sorting, so that a hot partition has many tasks."""

_WORD = 6
_BITS = 1 << _WORD
_CALL_IN_LANE = ["agent", "number", "lane"]
_MESSAGE = ["lane", "hash"]
_SQL = "kind = 'sql'"


def _told(deliveries: DataFrame) -> DataFrame:
    return deliveries.where(F.col("offset").isNotNull())


@checks("G-ORD-1", level=Level.AUDIT)
@judges("delivery whose offset is known", _told)
def first_deliveries_in_offset_order(
    deliveries: DataFrame, holdings: DataFrame, hidden: DataFrame, lanes: DataFrame
) -> DataFrame:
    """A first delivery to a group after the first delivery of a higher offset of that partition.

    After: by a pop that was sent after the answer to the other, or later in the same answer. First: the deliveries that
    the server calls attempt 1; without attempts, all deliveries, if no pop of the group is without an answer.
    """
    told = _told(deliveries)
    unsure = few(_lanes_of(hidden, lanes).withColumn("unsure", F.lit(True)))
    silent = F.col("unsure").isNull()
    first = told.join(unsure, ["lane", "group"], "left")
    first = first.where((F.col("attempt") == 1) | (F.col("attempt").isNull() & silent)).select(*told.columns)
    call = ("lane", "group", "agent", "number")
    spans = holdings.join(unsure, ["lane", "group"], "left").select(
        *call,
        "invoked",
        "completed",
        F.least("first.lowest", F.when(silent, F.col("silent.lowest"))).alias("lowest"),
        F.greatest("first.highest", F.when(silent, F.col("silent.highest"))).alias("highest"),
    )
    spans = spans.where(F.col("lowest").isNotNull())
    late = with_greatest_before(spans, ("lane", "group"), "highest").where(F.col("before") > F.col("lowest"))
    low = first.join(few(late.select(*call, "before")), list(call)).where(F.col("offset") < F.col("before"))
    earlier = first.select("lane", "group", "offset", F.col("invoked").alias("known")).join(
        few(low.select("lane", "group", "offset").distinct()), ["lane", "group", "offset"]
    )
    known = earlier.groupBy("lane", "group", "offset").agg(F.min("known").alias("known"))
    again = low.join(known, ["lane", "group", "offset"]).where(F.col("invoked") <= F.col("known"))
    between = violations(again, sentence("offset %s was first delivered after offset %s", "offset", "before"))
    inside = _disorder(_odd(told, holdings))
    text = sentence("offset %s comes after offset %s in the answer to a pop", "offset", "above")
    return between.unionByName(violations(inside, text))


def _lanes_of(hidden: DataFrame, lanes: DataFrame) -> DataFrame:
    return lanes.join(F.broadcast(hidden), "queue").select("lane", "group")


def _disorder(rows: DataFrame) -> DataFrame:
    """Rows of calls whose offset is not above that of the previous row of the same lane (``above``)."""
    line = Window.partitionBy(*_CALL_IN_LANE).orderBy("position")
    return rows.withColumn("above", F.lag("offset").over(line)).where(F.col("above") >= F.col("offset"))


def _odd(rows: DataFrame, calls: DataFrame) -> DataFrame:
    """The rows of calls whose offsets do not rise by one per position (``shifts``), as in most calls.

    Only these have to be sorted to find disorder.
    """
    odd = calls.where(_is_odd()).select(*_CALL_IN_LANE)
    return rows.join(few(odd.distinct()), _CALL_IN_LANE)


def _is_odd() -> Column:
    return F.col("shifts.lowest") != F.col("shifts.highest")


def _unswallowed(rows: DataFrame, hidden: DataFrame, lanes: DataFrame) -> DataFrame:
    swallowed = hidden.where(F.col("swallowed") | F.col("tail"))
    return rows.join(few(_lanes_of(swallowed, lanes)), ["lane", "group"], "left_anti")


def _behind(deliveries: DataFrame, hidden: DataFrame, lanes: DataFrame) -> DataFrame:
    """The deliveries that would reveal a missing one before them."""
    return _unswallowed(_told(deliveries), hidden, lanes)


@checks("G-ORD-2", level=Level.AUDIT)
@judges("delivery to a group of which every delivery is known, of what nothing has removed,", _behind, excused=True)
def deliveries_leave_no_gap(
    deliveries: DataFrame,
    holdings: DataFrame,
    hidden: DataFrame,
    lanes: DataFrame,
    kept: DataFrame | None = None,
    given_up: DataFrame | None = None,
) -> DataFrame:
    """An offset delivered to a group, although an offset between it and the next lower delivered one never was.

    Not if the offsets between were removed by retention, given up by the group, or deleted, and not if a pop with
    autoAck without an answer may have taken them.
    """
    told = _told(deliveries)
    offsets = told.select("lane", "group", "offset")
    high, low = F.col("offsets.highest"), F.col("offsets.lowest")
    run = (high - low + 1 == F.col("told")) & ~_is_odd()
    others = told.join(few(holdings.where(~run).select(*_CALL_IN_LANE)), _CALL_IN_LANE)
    words = _words_of_runs(holdings.where(run).select("lane", "group", low.alias("first"), high.alias("last")))
    words = words.unionByName(_words(others.select("lane", "group", "offset")))
    buckets = _buckets(words, "lane", "group")
    line = Window.partitionBy("lane", "group").orderBy("bucket")
    buckets = buckets.withColumn("below", F.lag("high").over(line))
    borders = buckets.where(F.col("low") > F.col("below") + 1).select(
        "lane", "group", F.col("low").alias("offset"), "below"
    )
    torn = buckets.where(F.col("high") - F.col("low") + 1 > F.col("distinct")).select("lane", "group", "bucket")
    inside = offsets.withColumn("bucket", _bucket()).join(few(torn), ["lane", "group", "bucket"]).distinct()
    neighbours = Window.partitionBy("lane", "group", "bucket").orderBy("offset")
    inside = inside.withColumn("below", F.lag("offset").over(neighbours)).where(F.col("offset") > F.col("below") + 1)
    gaps = borders.unionByName(inside.select(*borders.columns))
    gaps = _unswallowed(gaps, hidden, lanes)
    if kept is not None:
        # The messages between were removed by retention if the oldest kept one is above them.
        gaps = gaps.join(few(kept), "lane").where(F.col("owed") < F.col("offset"))
    gaps = unless_all_given_up(gaps, given_up)
    text = F.concat(missing("below", "offset"), sentence(" never came to the group, although %s did", "offset"))
    return violations(gaps, text)


def _bucket() -> Column:
    return F.floor(F.col("offset") / BUCKET).alias("bucket")


def _words(offsets: DataFrame) -> DataFrame:
    """Each offset as a bit of a word of 64; ``first`` and ``last`` are both that offset."""
    bit = F.call_function("shiftleft", F.lit(1).cast("bigint"), F.pmod("offset", F.lit(_BITS)).cast("int"))
    return offsets.withColumns(
        {"word": F.shiftright("offset", _WORD), "bits": bit, "first": F.col("offset"), "last": F.col("offset")}
    ).drop("offset")


def _words_of_runs(runs: DataFrame) -> DataFrame:
    """The offsets from ``first`` to ``last`` as bits of words of 64."""
    start = F.col("word") * _BITS
    runs = runs.withColumn("word", F.explode(F.sequence(*(F.shiftright(end, _WORD) for end in ("first", "last")))))
    runs = runs.withColumns({"first": F.greatest("first", start), "last": F.least("last", start + (_BITS - 1))})
    all_, above = F.lit(-1).cast("bigint"), (F.col("last") + 1 - start).cast("int")
    from_first = F.call_function("shiftleft", all_, (F.col("first") - start).cast("int"))
    after_last = F.when(above == _BITS, F.lit(0).cast("bigint")).otherwise(F.call_function("shiftleft", all_, above))
    return runs.withColumn("bits", from_first.bitwiseAND(F.bitwise_not(after_last)))


def _buckets(words: DataFrame, *lane: str) -> DataFrame:
    """By bucket of a lane: the offsets ``n``, the number of ``distinct`` ones, the lowest and the highest.

    Counted exactly, but without a shuffle of every offset: 64 of them are the bits of a word.
    """
    words = words.groupBy(*lane, "word").agg(
        F.sum(F.col("last") - F.col("first") + 1).alias("n"),
        F.bit_count(F.bit_or("bits")).alias("distinct"),
        F.min("first").alias("low"),
        F.max("last").alias("high"),
    )
    buckets = words.groupBy(*lane, F.floor(F.col("word") * _BITS / BUCKET).alias("bucket")).agg(
        F.sum("n").alias("n"),
        F.sum("distinct").alias("distinct"),
        F.min("low").alias("low"),
        F.max("high").alias("high"),
    )
    return few(buckets)


@checks("G-ORD-2", level=Level.AUDIT)
def the_log_has_no_gap(log: DataFrame, heads: DataFrame, damaged: DataFrame) -> DataFrame:
    """An offset from the oldest stored one of a partition to its log end that is not in the log exactly once.

    Reported are the offsets around the missing or duplicate one. Those of a damaged segment are there.
    """
    log = log.select("lane", "offset")
    log = log.unionByName(damaged.select("lane", F.explode(F.sequence("first", "last")).alias("offset")))
    buckets = _buckets(_words(log), "lane")
    line = Window.partitionBy("lane").orderBy("bucket")
    buckets = buckets.withColumn("below", F.lag("high").over(line))
    borders = buckets.where(F.col("low") > F.col("below") + 1).select("lane", F.col("low").alias("offset"), "below")
    torn = buckets.where((F.col("high") - F.col("low") + 1 != F.col("n")) | (F.col("n") != F.col("distinct")))
    inside = log.select("lane", "offset", _bucket()).join(few(torn.select("lane", "bucket")), ["lane", "bucket"])
    neighbours = Window.partitionBy("lane", "bucket").orderBy("offset")
    inside = inside.withColumn("below", F.lag("offset").over(neighbours)).where(F.col("offset") != F.col("below") + 1)
    ends = buckets.groupBy("lane").agg(F.max("high").alias("below"), F.min("low").alias("first"))
    ends = heads.join(ends, "lane", "left").where(F.col("next_offset") > F.col("oldest_offset"))
    top = ends.where(F.coalesce("below", F.lit(-1)) != F.col("next_offset") - 1)
    bottom = ends.where(F.col("first") > F.col("oldest_offset")).withColumn("below", F.col("oldest_offset") - 1)
    found = (
        borders.unionByName(inside.select(*borders.columns))
        .unionByName(top.select("lane", F.col("next_offset").alias("offset"), "below"))
        .unionByName(bottom.select("lane", F.col("first").alias("offset"), "below"))
    )
    twice = sentence("offset %s is in the log more than once", "offset")
    text = F.when(F.col("offset") <= F.col("below"), twice).otherwise(missing("below", "offset", "%s not in the log"))
    return violations(found, text)


@checks("G-ORD-3", level=Level.AUDIT)
def pushes_keep_their_order(placed: DataFrame, requests: DataFrame, messages: DataFrame, tails: DataFrame) -> DataFrame:
    """A message with a smaller offset than one whose push was answered before this one was first sent.

    A message was stored by one of its attempts: after the first was sent, and before the first answer as stored. If
    rows of a journal are missing, the first attempt may be among them: then only messages answered as queued are
    checked. What was pushed with SQL too is not: it was stored some time after its commit.
    """
    ok, told = F.col("outcome") == "ok", placed.where((F.col("outcome") != "fail") & ~F.expr(_SQL))
    message = _MESSAGE
    # Messages answered as queued were stored by that push; others have to be collected from their attempts. Uses the
    # table that is partitioned by message: the table of pushes would have to be shuffled.
    others = unless(told.where(~direct()), tails)
    queued = messages.where((F.col("direct") > 0) & (F.col("attempts") > 1)).select(*message)
    retried = (
        others.join(few(queued), message, "left_anti")
        .join(few(placed.where(_SQL).select(*message).distinct()), message, "left_anti")
        .groupBy(*message)
        .agg(
            F.min("invoked").alias("invoked"),
            F.coalesce(F.min(F.when(ok, F.col("completed"))), F.lit(NEVER)).alias("completed"),
            F.min("offset").alias("lowest"),
            F.min("offset").alias("highest"),
        )
    )
    call = ["lane", "agent", "number"]
    spans = requests.where(F.col("direct.lowest").isNotNull()).select(*call, "invoked", "completed", "direct.*")
    spans = stacked(spans, retried)
    late = few(with_greatest_before(spans, ("lane",), "highest").where(F.col("before") > F.col("lowest")))
    of_calls = told.where(direct()).join(few(late.where(F.col("hash").isNull()).select(*call, "before")), call)
    of_calls = of_calls.where(F.col("offset") < F.col("before")).select(*message, "offset", "before")
    alone = late.where(F.col("hash").isNotNull()).select(*message, F.col("lowest").alias("offset"), "before")
    text = sentence("offset %s was pushed after the answer to the push of offset %s", "offset", "before")
    return violations(of_calls.unionByName(alone), text)


@checks("G-ORD-4", level=Level.AUDIT)
@judges("push of several messages whose offsets are known", lambda placed: placed.where(F.col("position") > 0))
def a_request_keeps_its_order(placed: DataFrame, requests: DataFrame, messages: DataFrame) -> DataFrame:
    """A message with a smaller offset than an earlier one of its partition in the same request.

    Only messages that no other request pushed are checked.
    """
    rows = placed.where(may_be_stored() & ~F.expr(_SQL))
    # Calls in disorder without the messages of other requests are in disorder with them.
    alone = _unshared(_odd(rows, requests), messages)
    return violations(_disorder(alone), sentence("offset %s comes after offset %s in its request", "offset", "above"))


def _unshared(pushes: DataFrame, messages: DataFrame) -> DataFrame:
    """The pushes of messages that no other request pushed."""
    return pushes.join(few(messages.where(F.col("attempts") > 1).select(*_MESSAGE)), _MESSAGE, "left_anti")


@checks("G-OUT-2", level=Level.AUDIT)
@judges("push with SQL whose offset is known", lambda placed: placed.where(_SQL))
def pushes_with_sql_keep_their_order(placed: DataFrame, messages: DataFrame) -> DataFrame:
    """A message of a transaction of SQL with a smaller offset than an earlier one of that transaction and partition.

    Or than one of a transaction whose commit was answered before this one began. Only messages that no other request
    pushed are checked.
    """
    rows = _unshared(placed.where(_SQL).where(F.col("outcome") != "fail"), messages)
    committed = F.when(F.col("call") == "ok", F.col("completed")).otherwise(F.lit(NEVER))
    all_ = F.lit(True)
    calls = rows.groupBy(*_CALL_IN_LANE).agg(
        F.min("invoked").alias("invoked"),
        F.min(committed).alias("completed"),
        bounds(all_).alias("offsets"),
        shifts(all_).alias("shifts"),
    )
    inside = violations(
        _disorder(_odd(rows, calls)), sentence("offset %s comes after offset %s in its transaction", "offset", "above")
    )
    spans = calls.select(*_CALL_IN_LANE, "invoked", "completed", "offsets.*")
    late = with_greatest_before(spans, ("lane",), "highest").where(F.col("before") > F.col("lowest"))
    late = rows.join(few(late.select(*_CALL_IN_LANE, "before")), _CALL_IN_LANE).where(F.col("offset") < F.col("before"))
    text = "offset %s is of a transaction that began after that of offset %s had committed"
    return inside.unionByName(violations(late, sentence(text, "offset", "before")))


def _dated(deliveries: DataFrame) -> DataFrame:
    return deliveries.where(F.col("offset").isNotNull() & F.col("created_at").isNotNull())


@checks("G-ORD-5", level=Level.AUDIT)
@judges("delivery whose offset and createdAt are known", _dated)
def delivered_times_never_fall(deliveries: DataFrame, fates: DataFrame) -> DataFrame:
    """A delivered offset whose ``createdAt`` is earlier than that of the next lower delivered one."""
    return _falling(_dated(fates).join(few(_unsteady(_dated(deliveries))), "lane"))


@checks("G-ORD-5", level=Level.AUDIT)
def logged_times_never_fall(log: DataFrame) -> DataFrame:
    """An offset of the log whose ``createdAt`` is smaller than that of the offset below it."""
    return _falling(log.join(few(_unsteady(log)), "lane"))


def _unsteady(rows: DataFrame) -> DataFrame:
    """The lanes in which an offset is above an offset with a later time."""
    times = rows.groupBy("lane", "created_at").agg(F.min("offset").alias("low"), F.max("offset").alias("high"))
    line = Window.partitionBy("lane").orderBy("created_at")
    times = times.withColumn("below", F.lag("high").over(line))
    return times.where(F.col("low") < F.col("below")).select("lane").distinct()


def _falling(rows: DataFrame) -> DataFrame:
    """Compares by offset within buckets, and between buckets by their first and last row."""
    rows = rows.select("lane", "offset", "created_at", _bucket())
    within = Window.partitionBy("lane", "bucket").orderBy("offset", "created_at")
    inside = rows.withColumn("before", F.lag("created_at").over(within))
    # An earlier filter would drop rows that the borders need, so both use one pass of the same window.
    marked = inside.withColumn("last", F.lead("offset").over(within).isNull())
    edges = marked.where(F.col("before").isNull() | F.col("last"))
    across = Window.partitionBy("lane").orderBy("offset", "created_at")
    borders = edges.withColumn("below", F.lag("bucket").over(across)).withColumn(
        "before", F.lag("created_at").over(across)
    )
    borders = borders.where(F.col("below") != F.col("bucket"))
    columns = ("lane", "offset", "created_at", "before")
    falls = (
        inside.where(F.col("before") > F.col("created_at"))
        .select(*columns)
        .unionByName(borders.where(F.col("before") > F.col("created_at")).select(*columns))
    )
    falls = falls.distinct().withColumns({"now": moment(F.col("created_at")), "then": moment(F.col("before"))})
    text = sentence("its createdAt, %s, is earlier than that of a lower offset, %s", "now", "then")
    return violations(falls, text)
