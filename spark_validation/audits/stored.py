"""What is stored: tables of the database that contradict each other."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spec.guarantees import Level, checks

from ..tables.columns import few, unless
from .basis import judges
from .evidence import sentence, violations


def _of(flaws: DataFrame, audit: str) -> DataFrame:
    return violations(flaws.where(F.col("audit") == audit), F.col("text"))


@checks("G-ACK-1", "G-ACK-3", level=Level.AUDIT)
@judges("queue", lambda queues: queues)
def cursors_stand_in_the_log(flaws: DataFrame) -> DataFrame:
    """A cursor that nothing explains.

    It stands beyond the log end or below the oldest message, waits for a push or for a time although it has messages,
    holds messages that its group was not given, or counts failures of messages that are done.
    """
    return _of(flaws, "cursors_stand_in_the_log")


@checks("G-GRP-1", level=Level.AUDIT)
@judges("queue", lambda queues: queues)
def groups_have_their_cursors(flaws: DataFrame) -> DataFrame:
    """A consumer group without a cursor in a partition of its queue, or with two, or a cursor without a group.

    Or a group whose beginning contradicts its mode, or that has the number of another one.
    """
    return _of(flaws, "groups_have_their_cursors")


@checks("G-DLQ-1", level=Level.AUDIT)
@judges("queue", lambda queues: queues)
def dead_letters_are_of_their_messages(
    flaws: DataFrame, dead_letters: DataFrame, log: DataFrame, queues: DataFrame
) -> DataFrame:
    """A dead letter of a group, a partition or an offset that never was, or of a deleted message.

    Or one with another payload, transaction id or ``createdAt`` than its message has in the log, if that is kept. Times
    are not compared if PostgreSQL's clock has stepped, nor payloads that are encrypted.
    """
    wanted = dead_letters.select(
        "lane",
        "offset",
        "group",
        F.col("payload_hash").alias("their_payload"),
        "id_hash",
        F.col("created_at").alias("their_time"),
    )
    both = log.join(few(wanted), ["lane", "offset"])
    texts = (
        (F.col("payload_hash") != F.col("their_payload"), "is a dead letter with another payload than the log has"),
        (
            F.col("id_key").isNotNull() & (F.col("hash") != F.col("id_hash")),
            "is a dead letter with another transaction id than the log has",
        ),
    )
    found = [violations(both.where(wrong), F.lit(text)) for wrong, text in texts]
    timed = unless(both, queues.where("clock_stepped")).where(F.col("created_at") != F.col("their_time"))
    found.append(violations(timed, F.lit("is a dead letter with another createdAt than the log has")))
    return reduce(DataFrame.unionByName, found, _of(flaws, "dead_letters_are_of_their_messages"))


@checks("G-DUR-1", "G-ORD-2", "G-SHARD-1", level=Level.AUDIT)
@judges("queue", lambda queues: queues)
def partitions_are_complete(flaws: DataFrame) -> DataFrame:
    """A partition without its queue, or with contradictory segments; rows of a partition that does not exist.

    Or a partition that several databases of one installation have.
    """
    return _of(flaws, "partitions_are_complete")


@checks("G-TIME-2", level=Level.AUDIT)
@judges("queue", lambda queues: queues)
def no_time_lies_ahead(flaws: DataFrame) -> DataFrame:
    """A time of something that happened which is later than the snapshot, or before its queue or partition was made.

    Not if PostgreSQL's clock has stepped.
    """
    return _of(flaws, "no_time_lies_ahead")


@checks("G-OUT-1", "G-TIM-1", "G-TIM-3", level=Level.AUDIT)
@judges("queue", lambda queues: queues)
def what_waits_can_enter_the_log(flaws: DataFrame) -> DataFrame:
    """A message of the outbox, a timer or a schedule that never enters the log as it is.

    The outbox has passed it, its queue does not exist, or it is no message.
    """
    return _of(flaws, "what_waits_can_enter_the_log")


_LOW, _OFFSET_BITS = (1 << 32) - 1, (1 << 30) - 1


def _checksum() -> Column:
    """What ``log/flaws.py`` computes of the transaction ids of a partition."""
    mixed = F.col("id_key").bitwiseAND(_LOW) * F.col("offset").bitwiseAND(_OFFSET_BITS)
    return F.bit_xor(F.col("id_key").bitwiseXOR(mixed))


@checks("G-IDEM-1", level=Level.AUDIT)
@judges("partition", lambda id_sums: id_sums)
def transaction_ids_are_those_of_the_log(
    log: DataFrame, id_sums: DataFrame, blank: DataFrame, damaged: DataFrame
) -> DataFrame:
    """A message with another transaction id than its segment says; a partition with other ids than its log has.

    Those of a partition are in the table ``transaction_ids``, by which duplicates are found.

    Not of deleted messages, whose ids are free, and of partitions with a segment that cannot be read.
    """
    kept = log.join(few(blank), ["lane", "offset"], "left_anti")
    differ = violations(kept.where("id_differs"), F.lit("has another transaction id than its segment says"))
    live = kept.where(F.col("id_key").isNotNull()).join(few(id_sums.select("lane", "live")), "lane")
    live = live.where(F.col("offset") >= F.col("live"))
    there = live.groupBy("lane").agg(F.count("*").alias("logged"), _checksum().alias("sum"))
    both = id_sums.join(there, "lane", "left").fillna(0, ["logged", "sum"])
    both = both.join(few(damaged.select("lane").distinct()), "lane", "left_anti")
    odd = both.where((F.col("ids") != F.col("logged")) | (F.col("checksum") != F.col("sum")))
    text = sentence("its partition has %s transaction ids, and %s in its log, or other ones", "ids", "logged")
    return differ.unionByName(violations(odd, text))


def _known(messages: DataFrame) -> DataFrame:
    """The messages of the log that agents pushed whose hashes are known to be of one of two forms (``like``)."""
    told = messages.where(
        (F.col("logged") == 1) & F.col("logged_payload").isNotNull() & (F.col("pushed_low") == F.col("pushed_high"))
    )
    same = (F.col("pushed_low") == F.col("logged_payload")) | (F.col("pushed_low") == F.col("logged_sorted"))
    rows = told.withColumn("like", F.coalesce(same, F.lit(False)))
    agents = rows.where("like").select("pusher").distinct()
    return rows.join(few(agents), "pusher", "left_semi")


@checks("G-DUR-3", level=Level.AUDIT)
@judges("message of the log whose payload was hashed by its producer as it is, or with sorted keys,", _known)
def the_log_has_the_pushed_payloads(messages: DataFrame) -> DataFrame:
    """A message of the log with another payload than was pushed, by its hash in the journal.

    The hash is that of the bytes of the payload, or of its JSON with sorted keys and without spaces. Agents that hash
    otherwise, of which no message is alike, are not judged, nor payloads that are encrypted.
    """
    return violations(_known(messages).where(~F.col("like")), F.lit("has another payload in the log than was pushed"))
