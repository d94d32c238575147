"""One streaming query: both streams, the windows of each partition and group as its state, and immediate findings."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import pandas as pd
from msgspec import Struct
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

from pyspark_queen.batches import batches

from ..errors import AuditError, AwayError
from ..gateway import first_line
from .checkpoint import Checkpoint
from .sources import LiveSource, heads
from .windows import CallWindow, Finding, LogWindow, Place, Said, Segment, Stored

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.state import GroupState

_FINDING = "guarantee string, queue string, partition string, `group` string, offset bigint, text string"
_PLACE = ["queue", "partition", "group"]
_LOOK_S = 1
_BYTES_AT_ONCE = 32 << 20
_BATCHES_KEPT = 10
_SLOW = 4
_TOO_SLOW = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start. Under load that may be too short, so the query is restarted."""


class Window(Struct):
    """The state of one key."""

    log: LogWindow = msgspec.field(default_factory=LogWindow)
    calls: CallWindow = msgspec.field(default_factory=CallWindow)


def findings(stream: DataFrame, clock_bound: int, *, with_log: bool) -> DataFrame:
    """The violations in the rows of the sources; ``with_log``: the log is one of the sources."""

    def judge(key: tuple[str, ...], chunks: Iterator[pd.DataFrame], state: "GroupState") -> Iterator[pd.DataFrame]:
        window = msgspec.msgpack.decode(state.get[0], type=Window) if state.exists else Window()
        place, segments, stored, found = Place(*key), list[Segment](), list[Stored](), list[Finding]()

        def said() -> Iterator[bytes]:
            for rows in chunks:
                # All segments have to be sorted; they are few.
                segments.extend(msgspec.msgpack.decode(segment, type=Segment) for segment in rows["segment"].dropna())
                yield from rows["said"].dropna()

        # Calls may arrive in any order. Sorting finds more violations, but all calls may not fit into memory.
        for some in batches(said(), len, _BYTES_AT_ONCE):
            calls = [msgspec.msgpack.decode(call, type=Said) for call in some]
            found += window.calls.add(place, calls, clock_bound, beside_log=with_log)
            stored.extend(each for call in calls for each in call.stored())
        found += window.log.add(place, segments, stored)
        state.update((msgspec.msgpack.encode(window),))
        yield pd.DataFrame([msgspec.structs.astuple(each) for each in found], columns=list(Finding.__struct_fields__))

    return stream.groupBy(*_PLACE).applyInPandasWithState(
        judge, _FINDING, "window binary", "append", GroupStateTimeout.NoTimeout
    )


def streams(spark: SparkSession, dsn: str | None, journal: Path | None) -> DataFrame:
    """The rows of the given sources, at least one; the log from now on."""
    spark.dataSource.register(LiveSource)
    reader = spark.readStream.format(LiveSource.name())
    if dsn:
        since = heads(dsn, beside_journals=journal is not None)
        reader = reader.options(dsn=dsn, since=msgspec.json.encode(since).decode())
    if journal:
        reader = reader.option("folder", str(journal.resolve()))
    return reader.load()


class Listener(Protocol):
    """Receives the results."""

    def found(self, finding: Finding) -> object:
        """A violation."""

    def noticed(self, text: str) -> object:
        """An interruption of the watch, or its end."""


def watch(
    found: DataFrame,
    checkpoint: Checkpoint,
    interval_s: float,
    listener: Listener,
    go_on: Callable[[], bool],
    dsn: str | None,
) -> None:
    """Reports findings until it is stopped; then it judges everything until that time.

    While PostgreSQL is unavailable it waits, and then continues where it was. With the checkpoint of an earlier watch
    it continues where that one was.

    Raises:
        AuditError: a source can no longer be read, or it was stopped while PostgreSQL was unavailable.
    """

    def tell(batch: DataFrame, number: int) -> None:
        # A restarted query repeats its last batch.
        if number > checkpoint.told:
            for row in batch.collect():
                listener.found(Finding(**row.asDict()))
            checkpoint.tell(number)

    # A trigger without new data also reports progress.
    found.sparkSession.conf.set("spark.sql.streaming.noDataProgressEventInterval", "1s")
    # A call may have thousands of messages; Spark's default of 10,000 rows would be gigabytes.
    found.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    found.sparkSession.conf.set("spark.sql.streaming.minBatchesToRetain", str(_BATCHES_KEPT))
    writer = found.writeStream.outputMode("append").foreachBatch(tell).trigger(processingTime=f"{interval_s} seconds")
    slow = 0
    while True:
        query = writer.option("checkpointLocation", str(checkpoint.stream)).start()
        try:
            while go_on():
                query.awaitTermination(_LOOK_S)
            _finish(query)
        except StreamingQueryException as problem:
            ended = problem
        else:
            return
        finally:
            query.stop()
        if dsn and AwayError.__name__ in str(ended):
            _wait_for(dsn, listener, go_on)
        elif _TOO_SLOW in str(ended) and slow < _SLOW:
            slow += 1
        else:
            raise AuditError(f"the stream ended: {first_line(ended)}") from ended


def _wait_for(dsn: str, listener: Listener, go_on: Callable[[], bool]) -> None:
    """Checks every second whether PostgreSQL is available again."""
    listener.noticed("PostgreSQL is unavailable: the watch waits")
    while True:
        try:
            heads(dsn)
        except AwayError as problem:
            if not go_on():
                raise AuditError(f"{problem}. The last messages were not checked") from problem
            time.sleep(_LOOK_S)
        else:
            listener.noticed("PostgreSQL is available again: the watch continues")
            return


def _finish(query: "StreamingQuery") -> None:
    """Waits for the end of a trigger that starts from now on, which has processed everything until now."""
    now = datetime.now(UTC)
    while not query.awaitTermination(_LOOK_S):
        if query.lastProgress and datetime.fromisoformat(query.lastProgress["timestamp"]) >= now:
            return
