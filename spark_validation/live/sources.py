"""The stream of new data: lines of journals, and segments of the log.

Rows are (queue, partition, group, segment, said): a segment of the log, or what a call says of a partition and group,
as MessagePack of ``windows.Segment`` and ``windows.Said``. The log is read from the start of the stream on, journals
from their beginning. A batch ends where the journals ended first, and then the log: so whatever these lines say to be
stored is in the log below the heads of the same batch, or lost.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import numpy as np
from msgspec.structs import replace
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from pyspark_queen import moves
from pyspark_queen.database import CONNECT_S, reason
from pyspark_queen.options import Log, logs_of

from ..errors import AwayError, JournalError, ReplicaError
from ..journal.files import decode_line, files_of
from .calls import said
from .windows import Segment

SCHEMA = "queue string, partition string, `group` string, segment binary, said binary"
Row = tuple[str, str, str, bytes | None, bytes | None]
Places = dict[str, int]
Ends = dict[str, Places]

_PARTS_A_TASK = 500
_TAIL = 1 << 20
_HEADS = """
SELECT e.part_id, e.next_off, pg_is_in_recovery() AS replica
FROM (SELECT part_id, next_off FROM queen.log_ends UNION ALL SELECT number, next_off FROM leaving) AS e
"""
_SEGMENTS = """
SELECT
    q.name AS queue, p.partition, s.part_id AS part, s.last_off - s.n + 1 AS first, s.last_off AS last,
    (extract(epoch FROM s.created_at) * 1000000)::bigint AS created_at, s.ids, w.since, o.oldest,
    d.deleted
FROM unnest($1::bigint [], $2::bigint [], $3::bigint []) AS w (part_id, since, till)
JOIN (
    SELECT id AS number, queue_id, name AS partition FROM queen.partitions
    UNION ALL
    SELECT number, queue_id, partition FROM leaving
) AS p ON p.number = w.part_id
JOIN queen.queues AS q ON q.id = p.queue_id
CROSS JOIN LATERAL (
    SELECT f.last_off - f.n + 1 AS oldest FROM queen.segments AS f
    WHERE f.part_id = w.part_id ORDER BY f.last_off LIMIT 1
) AS o
LEFT JOIN LATERAL (
    SELECT array_agg(ARRAY[lower(run), upper(run)]) AS deleted
    FROM queen.deleted_messages AS m CROSS JOIN LATERAL unnest(m.offsets) AS run
    WHERE m.part_id = w.part_id
) AS d ON true
JOIN queen.segments AS s ON s.part_id = w.part_id AND s.last_off >= w.since AND s.last_off < w.till AND s.n > 0
ORDER BY s.part_id, s.last_off
"""


#: A server that restarts, is reached over a network that fails, or has no connection to give.
_AWAY = (
    OSError, asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.InsufficientResourcesError,
    asyncpg.InterfaceError, asyncpg.InternalClientError,
)  # fmt: skip


def _ask(dsn: str, query: str, *arguments: object) -> list[Any]:
    """Rows of a query about partitions, from each of several databases. Of one that moves, two may have rows.

    Raises:
        AwayError: PostgreSQL cannot be reached now.
    """
    logs = logs_of(dsn)
    return [row for log in logs for row in _ask_one(log, moves.with_leaving(query, len(logs)), *arguments)]


def _ask_one(log: Log, query: str, *arguments: object) -> list[Any]:
    async def ask() -> list[Any]:
        settings = {"application_name": "queen audit watch"}
        connection = await asyncpg.connect(log.dsn, timeout=CONNECT_S, server_settings=settings)
        try:
            rows: list[Any] = await connection.fetch(query, *arguments)
        finally:
            await connection.close()
        return rows

    try:
        return asyncio.run(ask())
    except _AWAY as problem:
        which = f"database {log.name}" if log.name else "PostgreSQL"
        raise AwayError(f"{which} is unavailable: {reason(problem)}") from problem


def heads(dsn: str, *, beside_journals: bool = False) -> dict[str, int]:
    """By partition: its next offset.

    Raises:
        AwayError: PostgreSQL cannot be reached now.
        ReplicaError: it may lag behind the journals that it is compared with.
    """
    rows = _ask(dsn, _HEADS)
    if beside_journals and any(row["replica"] for row in rows):
        raise ReplicaError
    ends: Places = {}
    for row in rows:
        part = str(row["part_id"])
        ends[part] = max(ends.get(part, 0), row["next_off"])
    return ends


class Parts(InputPartition):
    """Partitions, and from which offset to before which other one."""

    def __init__(self, parts: list[tuple[int, int, int]]) -> None:
        self.parts = parts


class Segments:
    """The log from heads to heads: what lies below a head is committed, and stays."""

    def __init__(self, dsn: str, *, beside_journals: bool) -> None:
        self._dsn, self._beside_journals = dsn, beside_journals

    def end(self) -> Places:
        """The heads now. A server may have become a replica since the last batch."""
        return heads(self._dsn, beside_journals=self._beside_journals)

    def tasks(self, start: Places, end: Places) -> list[Parts]:
        """The partitions whose head has moved."""
        moved = [(int(part), start.get(part, 0), head) for part, head in end.items() if head > start.get(part, 0)]
        return [Parts(moved[n : n + _PARTS_A_TASK]) for n in range(0, len(moved), _PARTS_A_TASK)]

    def read(self, task: Parts) -> Iterator[Row]:
        """The segments between the heads."""
        rows = _ask(self._dsn, _SEGMENTS, *map(list, zip(*task.parts, strict=True)))
        for row in {(row["part"], row["last"]): row for row in rows}.values():
            # A damaged segment, which the audit reports, has fewer than it should.
            ids = row["ids"] or b""
            hashes = (np.frombuffer(ids[: len(ids) // 16 * 16], ">u8")[::2] >> np.uint64(4)).tolist()
            segment = Segment(
                row["part"],
                row["first"],
                row["last"],
                row["created_at"],
                row["since"],
                row["oldest"],
                hashes,
                [tuple(run) for run in row["deleted"] or ()],
            )
            yield row["queue"], row["partition"], "", msgspec.msgpack.encode(segment), None


class Lines(InputPartition):
    """Whole lines of a file between two places, in bytes; and the heads at the end of the batch."""

    def __init__(self, path: str, start: int, end: int, heads_: Places) -> None:
        self.path, self.start, self.end, self.heads = path, start, end, heads_


class Journals:
    """The journals from places to places: by file, the one behind its last whole line."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def end(self) -> Places:
        """The current sizes of the files."""
        return {str(path): _whole_lines(path) for path in files_of(self._folder) if path.suffix == ".jsonl"}

    def tasks(self, start: Places, end: Places, heads_: Places) -> list[Lines]:
        """The files that have grown."""
        grown = [(path, start.get(path, 0), size) for path, size in end.items() if size > start.get(path, 0)]
        return [Lines(*each, heads_) for each in grown]

    @staticmethod
    def read(task: Lines) -> Iterator[Row]:
        """The calls of the new lines."""
        with Path(task.path).open("rb") as file:
            file.seek(task.start)
            # Line by line, because a long existing journal does not fit into memory.
            while file.tell() < task.end:
                line = file.readline()
                try:
                    call = decode_line(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as problem:
                    raise JournalError(f"{task.path}: {problem}, in the line {line[:80]!r}") from problem
                for place, what in said(call):
                    known = replace(what, head=task.heads.get(str(what.part)))
                    yield place.queue, place.partition, place.group, None, msgspec.msgpack.encode(known)


class LiveReader(DataSourceStreamReader):
    """An offset of the stream has the places of ``lines``, and the ``heads`` that were looked up after them."""

    def __init__(self, segments: Segments | None, journals: Journals | None, since: Places) -> None:
        self._segments, self._journals, self._since = segments, journals, since

    def initialOffset(self) -> Ends:  # noqa: N802 - Spark's name
        """The beginning of all files, and the heads when the stream was asked for."""
        return {"lines": {}, "heads": self._since}

    def latestOffset(self) -> Ends:  # type: ignore[override]  # noqa: N802 - Spark 4.1 gives no arguments
        """What there is now."""
        lines = self._journals.end() if self._journals else {}
        return {"lines": lines, "heads": self._segments.end() if self._segments else {}}

    def partitions(self, start: Ends, end: Ends) -> list[Parts | Lines]:
        """The tasks."""
        found: list[Parts | Lines] = []
        if self._journals:
            found += self._journals.tasks(start["lines"], end["lines"], end["heads"])
        if self._segments:
            found += self._segments.tasks(start["heads"], end["heads"])
        return found

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """The rows of a task."""
        if isinstance(partition, Lines):
            return Journals.read(partition)
        assert isinstance(partition, Parts)
        assert self._segments is not None
        return self._segments.read(partition)


class LiveSource(DataSource):
    """Options: ``dsn`` with ``since``, the heads to begin with as JSON; ``folder``."""

    @classmethod
    def name(cls) -> str:
        """The name of the source in queries."""
        return "queen_live"

    def schema(self) -> str:
        """One row a segment, and one for each partition and group that a call names."""
        return SCHEMA

    def streamReader(self, schema: object) -> LiveReader:  # noqa: ARG002, N802 - Spark's signature
        """What the stream runs."""
        dsn, folder = self.options.get("dsn"), self.options.get("folder")
        return LiveReader(
            Segments(dsn, beside_journals=folder is not None) if dsn else None,
            Journals(folder) if folder else None,
            msgspec.json.decode(self.options.get("since", "{}")),
        )


def _whole_lines(path: Path) -> int:
    """The place behind the last whole line of a file, however long a line is that its agent is not done with."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        while end:
            start = max(0, end - _TAIL)
            file.seek(start)
            if found := file.read(end - start).rfind(b"\n") + 1:
                return start + found
            end = start
    return 0
