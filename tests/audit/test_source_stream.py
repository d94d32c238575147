"""The data source ``queen`` on a real server: what streams read, of the log and as a consumer group."""

import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pyspark_queen.errors import DataLossError, OptionError, SourceError
from pyspark_queen.group import Ends, GroupReader, Runs
from pyspark_queen.options import STREAM, group_options, read_options
from pyspark_queen.stream import QueenStreamReader, limited
from tests.audit.place import Place, said
from tests.support.processes import wait_until


class Run(NamedTuple):
    """A stream with a checkpoint, which each call continues."""

    spark: SparkSession
    place: Place
    folder: Path

    def read(self, **options: Any) -> list[list[tuple[str, int]]]:
        """The messages of each batch, until the end of the log."""
        found: dict[int, list[tuple[str, int]]] = {}

        def take(rows: DataFrame, number: int) -> None:
            found[number] = sorted((row.partition, row.offset) for row in rows.collect())

        schema = "partition string, offset bigint, payload string"
        stream = self.spark.readStream.format("queen").schema(schema).options(dsn=self.place.dsn, **options).load()
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(self.folder))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return [found[number] for number in sorted(found) if found[number]]


def test_a_stream_reads_each_message_once_across_restarts(spark, place, tmp_path):
    run = Run(spark, place, tmp_path)
    place.push("flow", "a", [*range(25)])
    place.push("flow", "b", [1])
    options = {"queue": "flow", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 10}
    batches = run.read(**options)
    assert [len(batch) for batch in batches] == [10, 10, 6]
    assert sorted(each for batch in batches for each in batch) == [("a", n) for n in range(25)] + [("b", 0)]
    place.push("flow", "a", ["more"])
    place.push("flow", "c", ["new partition"])
    assert run.read(**options) == [[("a", 25), ("c", 0)]]
    assert run.read(**options) == []
    # A batch that was planned and not finished is read again, exactly, whatever came meanwhile.
    place.push("flow", "a", ["planned"])
    assert run.read(**options) == [[("a", 26)]]
    last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (tmp_path / "commits" / f".{last.name}.crc").unlink()
    place.push("flow", "a", ["later"])
    assert run.read(**options) == [[("a", 26)], [("a", 27)]]
    # Without a starting offset, a new stream begins at the end.
    assert Run(spark, place, tmp_path / "new").read(queue="flow") == []


def grouped(spark: SparkSession, place: Place, folder: Path, then: Any = None, **options: Any) -> list[list[Any]]:
    """What each batch of a group's stream has, until it ends; ``then`` is called with each batch."""
    found: list[list[Any]] = []

    def take(rows: DataFrame, number: int) -> None:
        batch = sorted((row.partition, row.offset, row.payload, row.transactionId) for row in rows.collect())
        if then:
            then(number)
        found.append(batch)

    asked = {"url": str(place.http.base_url), "queue": "grouped", "group": "lake", "maxOffsetsPerTrigger": 10}
    stream = spark.readStream.format("queen").options(**asked | options).load()
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(folder))
    running = query.trigger(availableNow=True).start()
    try:
        running.awaitTermination()
    finally:
        running.stop()
    return found


def undone(place: Place, queue: str = "grouped") -> int:
    group = place.http.get("/api/v1/consumer-groups/lake").raise_for_status().json()[queue]
    return sum(each["offsetLag"] for each in group["partitions"])


def test_a_group_reads_each_message_once_across_failures_and_restarts(spark, place, tmp_path):
    place.push("grouped", "a", [*range(25)])
    place.push("grouped", "b", [{"x": "ü"}], transactionId="mine")

    def fail(number: int) -> None:
        if number == 1:
            raise RuntimeError("a failure of a sink")

    with pytest.raises(PySparkException, match="a failure of a sink"):
        grouped(spark, place, tmp_path, fail, leaseSeconds=3)
    place.push("grouped", "a", ["later"])
    # The lease of the batch that failed ends, and it is read again.
    read = grouped(spark, place, tmp_path, leaseSeconds=3)
    assert max(len(batch) for batch in read) <= 10
    everything = [(partition, offset) for batch in read for partition, offset, *_ in batch]
    assert len(everything) == len(set(everything)) == 17
    assert {("b", 0), ("a", 25)} <= set(everything)
    [mine] = [row for batch in read for row in batch if row[0] == "b"]
    assert mine[2:] == ('{"x":"ü"}', "mine")
    assert undone(place) == 0
    assert grouped(spark, place, tmp_path) == []
    # Acks come too late for their lease: the messages come again, and are not read again.
    place.push("grouped", "a", ["slow"])
    read = grouped(spark, place, tmp_path, lambda _: time.sleep(1.5), leaseSeconds=1)
    assert [[row[1] for row in batch] for batch in read] == [[26]]
    wait_until(lambda: grouped(spark, place, tmp_path) == [] and undone(place) == 0, "the late ack", 30)


def of_group(place: Place, queue: str, **options: Any) -> GroupReader:
    """The reader of such a stream, without Spark."""
    given = {"url": str(place.http.base_url), "queue": queue, "group": "lake", **options}
    return GroupReader(group_options(given), StructType().add("partition", "string").add("offset", "long"))


def rows_of(reader: GroupReader, start: Ends, end: Ends) -> list[Any]:
    return [row for task in reader.partitions(start, end) for row in reader.read(task)]


def test_what_comes_again_takes_no_room_from_new_messages(place):
    """A whole batch whose acks came too late comes again: the next batch is not empty, which would end the stream."""
    place.push("comes_again", "a", [*range(20)])
    late, reader = (of_group(place, "comes_again", maxOffsetsPerTrigger="10", leaseSeconds="1") for _ in range(2))
    end = late.latestOffset({})
    late.stop()
    leased = (
        "SELECT 1 FROM queen.partition_consumers AS c JOIN queen.partitions AS p ON p.id = c.part_id"
        " JOIN queen.queues AS q ON q.id = p.queue_id"
        " WHERE q.name = 'comes_again' AND c.lease IS NOT NULL AND c.ready_at > clock_timestamp()"
    )
    wait_until(lambda: not place.ask(leased), "the end of the lease", 30)
    assert rows_of(reader, end, reader.latestOffset(end)) == [("a", offset) for offset in range(10, 20)]
    reader.stop()


def test_a_batch_that_failed_is_read_again_among_many_messages(place):
    """More of other partitions wait than a batch has room for."""
    for partition in "abc":
        place.push("revived", partition, [*range(300)])
    options = {"leaseSeconds": "1", "timeoutSeconds": "5", "maxOffsetsPerTrigger": "250"}
    failed = of_group(place, "revived", **options)
    end = failed.latestOffset({})
    failed.stop()
    again = of_group(place, "revived", **options)
    batches = [rows_of(again, {}, end)]
    assert len(batches[0]) == 250
    while (start := end) != (end := again.latestOffset(start)):
        batches.append(rows_of(again, start, end))
    again.stop()
    assert max(map(len, batches)) <= 250
    assert sorted(row for batch in batches for row in batch) == [(name, n) for name in "abc" for n in range(300)]
    assert undone(place, "revived") == 0


def test_what_another_consumer_finished_is_missed(place):
    place.push("taken", "a", [1, 2, 3])
    options = {"leaseSeconds": "1", "timeoutSeconds": "1"}
    failed = of_group(place, "taken", **options)
    end = failed.latestOffset({})
    failed.commit(end)
    failed.stop()
    place.push("taken", "b", [1])
    again = of_group(place, "taken", **options)
    with pytest.raises(DataLossError, match="3 messages that the group lake is not given again, such as offset 0 of"):
        again.partitions({}, end)
    again.stop()
    careless = of_group(place, "taken", failOnDataLoss="false", **options)
    assert rows_of(careless, {}, end) == []
    careless.stop()


def test_a_message_that_the_server_cannot_decrypt_stays(place):
    """It may be pushed to another server of the database, which has the key."""
    place.http.post("/api/v1/configure", json={"queue": "sealed", "options": {"encryptionEnabled": True}})
    place.push("sealed", "a", [1])
    place.ask(
        "UPDATE queen.segments AS s SET data ="
        " convert_to(regexp_replace(convert_from(s.data, 'UTF8'), '\"keyId\":\"..', '\"keyId\":\"zz'), 'UTF8')"
        " FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id"
        " WHERE s.part_id = p.id AND q.name = 'sealed'"
    )
    reader = of_group(place, "sealed")
    with pytest.raises(SourceError, match=r"decrypt the message sealed/a, offset 0: .* It is not acknowledged: "):
        reader.latestOffset({})
    reader.stop()
    assert undone(place, "sealed") == 1


def test_a_group_is_read_as_a_stream_of_one_queue(spark, place):
    url = str(place.http.base_url)
    reader = spark.read.format("queen").options(url=url, queue="orders", group="g")
    assert "a consumer group is read as a stream" in said(reader.load())
    for options, text in (
        ({"url": url}, "the option queue is missing, which a consumer group needs"),
        ({"url": url, "queue": '["orders"]'}, "not one name: a consumer group reads one queue"),
        ({"queue": "orders"}, "the option url is missing"),
        ({"url": url, "queue": "orders", "dsn": "x"}, "the option dsn is of a batch read, and has no effect here"),
        ({"url": url, "queue": "orders", "leaseSeconds": "0"}, "leaseSeconds='0': not a whole number"),
    ):
        with pytest.raises(OptionError, match=re.escape(text)):
            group_options({"group": "g", **options})
    with pytest.raises(OptionError, match="a message of a group has no column message"):
        GroupReader(group_options({"group": "g", "url": url, "queue": "q"}), StructType().add("message", "string"))


@given(st.lists(st.integers(0, 40)), st.lists(st.integers(0, 40)))
def test_runs_are_sets_of_offsets(one, other):
    ours, theirs = Runs(), Runs()
    ours.add(one)
    theirs.add(other)
    again = Runs(str(ours))
    assert {offset for offset in range(42) if offset in again} == set(one)
    assert list(again.beside(theirs)) == sorted(set(one) - set(other))
    assert len(again.each()) == len({n for n in one if n - 1 not in one})


def test_a_stream_fails_when_messages_are_gone(spark, place, tmp_path):
    run = Run(spark, place, tmp_path)
    place.push("fading", "a", [1])
    options = {"queue": "fading", "startingOffsets": "earliest"}
    assert run.read(**options) == [[("a", 0)]]
    place.push("fading", "a", [2, 3])
    place.push("fading", "a", [4])
    place.ask(
        "SELECT queen.remove_upto(p.id, 1, now()) FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = queue_id"
        " WHERE q.name = 'fading'"
    )
    with pytest.raises(PySparkException, match="1 of 3 messages were removed before they were read"):
        run.read(**options)
    assert run.read(**options, failOnDataLoss=False) == [[("a", 2), ("a", 3)]]
    place.http.delete("/api/v1/resources/queues/fading").raise_for_status()
    with pytest.raises(PySparkException, match="there is no queue fading"):
        run.read(**options)


def test_an_older_state_of_the_database_is_noticed_whatever_the_trigger(place, monkeypatch):
    reader = QueenStreamReader(read_options({"dsn": place.dsn, "queue": "orders"}, STREAM), None)
    ends = {"1": 5, "2": 7}

    async def of_now(_):
        return dict(ends)

    monkeypatch.setattr(QueenStreamReader, "_ends", of_now)
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="the partition with number 1 ends at offset 5, and was read up to 10"):
        reader.latestOffset({"1": 10, "2": 7})
    # A new stream begins at the end, which may be behind the one that its trigger has seen.
    ends["2"] = 9
    assert reader.latestOffset({"1": 5, "2": 8}) == {"1": 5, "2": 8}


@given(st.dictionaries(st.sampled_from("abcde"), st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(1, 99))
def test_a_limited_batch_is_full_and_every_partition_has_its_turn(lanes, most):
    ends = {part: since + there for part, (since, there) in lanes.items()}
    start, batches = {part: since for part, (since, _) in lanes.items()}, 0
    while start != ends:
        end = limited(start, ends, most)
        took = {part: end[part] - start[part] for part in ends}
        assert all(number >= 0 for number in took.values())
        assert all(end[part] <= ends[part] for part in ends)
        assert sum(took.values()) == min(most, sum(ends.values()) - sum(start.values()))
        start, batches = end, batches + 1
    assert batches == -(-sum(there for _, there in lanes.values()) // most)
