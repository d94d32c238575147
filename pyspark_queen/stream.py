"""Reads the log as a stream.

An offset of the stream is, by number of a partition, the next offset to read. The log ends of all partitions are such
an offset: a push locks its partition until its commit, so what lies below a log end is committed and stays.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from . import plan, segments
from .columns import Wanted
from .database import connected, each, run
from .errors import DataLossError
from .options import ReadOptions
from .plan import Range

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.1 has neither limits nor this trigger for Python sources

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nothing."""


Ends = dict[str, int]


class QueenStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Exactly the messages between two offsets of the stream, however often they are read."""

    def __init__(self, options: ReadOptions, wanted: Wanted) -> None:
        self._options, self._wanted = options, wanted
        self._reached: Ends | None = None
        self._target: Ends | None = None
        self._seen: Ends | None = None

    def initialOffset(self) -> Ends:  # noqa: N802 - Spark's names, also below
        """Where a stream without a checkpoint begins."""
        self._reached = run(self._starts())
        return self._reached

    async def _starts(self) -> Ends:
        async with each(self._options.logs, connected) as databases:
            found = await plan.lanes(databases, self._options)
            first = await plan.starts(databases, self._options, found)
        return {str(number): offset for number, offset in first.items()}

    def getDefaultReadLimit(self) -> Any:  # noqa: ANN401, N802 - a type that Spark 4.1 has not
        """The limit of the options."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Ends | None = None, limit: object = None) -> Ends:  # noqa: N802
        """The end of the next batch. Spark 4.1 names no start: then it is where the last batch of this run ended."""
        most = self._options.max_offsets_per_trigger if start is None else getattr(limit, "max_rows", None)
        begin = (self._reached if start is None else start) or {}
        ends = self._seen = run(self._ends())
        self._check(begin, ends)
        if (target := self._target) is not None:
            # A new stream may begin behind the target: at the log ends of a moment later.
            ends = {
                part: min(end, max(target.get(part, 0), begin.get(part, 0)))
                for part, end in ends.items()
                if part in target or part in begin
            }
        self._reached = ends if most is None else limited(begin, ends, most)
        return self._reached

    def reportLatestOffset(self) -> Ends | None:  # noqa: N802
        """The log ends, for the progress of the query."""
        return self._seen

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The stream ends at the log ends of now."""
        self._target = run(self._ends())

    async def _ends(self) -> Ends:
        """The log ends."""
        async with each(self._options.logs, connected) as databases:
            found = await plan.lanes(databases, self._options, strict=False)
        return {str(lane.place.number): lane.end for lane in chain(*found)}

    def _check(self, begin: Ends, ends: Ends) -> None:
        """Raises DataLossError if a log ends before what was read already."""
        if not self._options.fail_on_data_loss:
            return
        for part, end in ends.items():
            if end < (before := begin.get(part, 0)):
                raise DataLossError(
                    f"the partition with number {part} ends at offset {end}, and was read up to {before}: is dsn "
                    "another or an older state of the database? To go on from its end: failOnDataLoss=false"
                )

    def partitions(self, start: Ends, end: Ends) -> Sequence[InputPartition]:
        """The tasks of a batch.

        Raises:
            DataLossError: messages between the offsets are gone.
        """
        self._reached = end
        return run(self._tasks(start, end))

    async def _tasks(self, start: Ends, end: Ends) -> list[segments.Task]:
        grown = {int(part): (start.get(part, 0), upto) for part, upto in end.items() if upto > start.get(part, 0)}
        async with each(self._options.logs, connected) as databases:
            found = await plan.lanes(databases, self._options, strict=False, numbers=list(grown))
            chosen = [[Range(lane.place, *grown[lane.place.number]) for lane in some] for some in found]
            if (there := sum(map(len, chosen))) < len(grown) and self._options.fail_on_data_loss:
                raise DataLossError(
                    f"{len(grown) - there} partitions were removed before their messages were read, perhaps with "
                    "their queue. To go on without them: failOnDataLoss=false"
                )
            return [
                segments.Task(spans, log)
                for (log, connection), some in zip(databases, chosen, strict=True)
                for spans in await plan.tasks(connection, some, self._options, with_data=self._wanted.data)
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        return segments.read(self._options, self._wanted, partition)


def limited(start: Mapping[str, int], ends: Mapping[str, int], most: int) -> Ends:
    """Offsets with at most so many messages behind ``start``: each partition has its share of what is there."""
    there = {part: end - start.get(part, 0) for part, end in ends.items()}
    whole = sum(number for number in there.values() if number > 0)
    if whole <= most:
        return dict(ends)
    shares = {part: max(number, 0) * most // whole for part, number in there.items()}
    rest = most - sum(shares.values())
    # What is left goes around, so that a partition with few messages has its turn.
    behind = [part for part in ends if there[part] > shares[part]]
    turn = sum(start.values()) % len(behind)
    for part in (behind[turn:] + behind[:turn])[:rest]:
        shares[part] += 1
    return {part: start.get(part, 0) + min(shares[part], there[part]) for part in ends}
