"""A valid load test of any size as files: an archive of its log, and the journals of its agents.

Everything is 100 messages a call: a push, a pop by the group of those who name none, and the ack of all of it. Every
call takes 0.3 ms, and a segment is pushed each millisecond, so that 100 million messages are 17 minutes. All
transaction ids are chosen by the producer. A part ``hot`` of the segments lies in one partition.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from queen_audit.archive.folder import File, Part, Run, open_archive
from queen_audit.columns import arrow_schema
from queen_audit.inputs import Cursor, Group, Head, Queue, State, WholeRow
from queen_audit.journal.schema import QUEUE_MODE, VERSION, AckItem, Call, Delivery, PushItem

A_CALL = 100
A_FILE = 500_000
_QUEUE = "generated"
_BEGIN = 1_900_000_000_000_000
_STEP, _TAKES = 1_000, 300
_POP_AFTER, _ACK_AFTER = 50_000, 50_500
_LEASE_S = 60.0
_HASH_DIGITS = 15
_PAYLOAD_BITS = 52

Advance = Callable[[str, float], None]


def write(folder: Path, messages: int, partitions: int, hot: float, seed: int, advance: Advance) -> tuple[Path, Path]:
    """Writes archive and journals of about so many messages; their folders."""
    archive, journal = folder / "archive", folder / "journal"
    log = archive / "log" / f"queue={_QUEUE}" / "day=2030-03-17"
    for each in (log, journal, archive / "runs"):
        each.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    heads = np.zeros(partitions, np.int64)
    segments = -(-messages // A_CALL)
    files = []
    for number, first in enumerate(range(0, segments, A_FILE // A_CALL)):
        count = min(A_FILE // A_CALL, segments - first)
        parts = np.where(rng.random(count) < hot, 0, rng.integers(0, partitions, count))
        chunk = _Chunk(parts, _first_offsets(parts, heads), _BEGIN + _STEP * (first + np.arange(count)))
        path = log / f"000001-{number:05}.parquet"
        pq.write_table(chunk.log(), path, compression="zstd")
        files.append(File(str(path.relative_to(archive)), path.stat().st_size))
        pq.write_table(chunk.journal(f"agent-{number:04}"), journal / f"{number:05}.parquet", compression="zstd")
        advance(f"writing {messages:,} messages", first / segments)
    after = _BEGIN + _STEP * segments + 10 * _ACK_AFTER
    pq.write_table(_drained(after), journal / "drained.parquet")
    open_archive(archive).add(_archived(heads, files, after), _state(heads, after))
    return archive, journal


def _first_offsets(parts: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """The first offset of each segment, in the order in which they are pushed; moves the heads."""
    order = np.argsort(parts, kind="stable")
    counts = np.bincount(parts, minlength=len(heads))
    ranks = np.empty(len(parts), np.int64)
    ranks[order] = np.arange(len(parts)) - np.repeat(np.cumsum(counts) - counts, counts)
    firsts: np.ndarray = heads[parts] + A_CALL * ranks
    heads += A_CALL * counts
    return firsts


class _Chunk:
    """Some segments, with a push, a pop and an ack each."""

    def __init__(self, parts: np.ndarray, firsts: np.ndarray, at: np.ndarray) -> None:
        self._parts, self._at, self._n = parts, at, len(parts)
        self._part = np.repeat(parts, A_CALL)
        self._offset = np.repeat(firsts, A_CALL) + np.tile(np.arange(A_CALL), self._n)
        texts = [f"t{part}-{offset}" for part, offset in zip(self._part.tolist(), self._offset.tolist(), strict=True)]
        self._ids = pa.array(texts, pa.string())
        hashes = (int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 4 for text in texts)
        self._hash = np.fromiter(hashes, np.int64, len(texts))

    def log(self) -> pa.Table:
        """The rows of the archive; without the messages themselves, which no audit reads."""
        columns = {
            "part_id": self._part + 1,
            "offset": self._offset,
            "created_at": np.repeat(self._at, A_CALL),
            "hash": self._hash,
            "message": pa.nulls(len(self._part), pa.string()),
        }
        return pa.table(columns, arrow_schema(WholeRow))

    def journal(self, agent: str) -> pa.Table:
        """The rows of one agent, with its end."""
        names = pa.array(np.repeat([_QUEUE], len(self._part)))
        item = {
            "queue": names,
            "partition": pa.array(self._part).cast(pa.string()),
            "transaction_id": self._ids,
            "outcome": pa.array(np.repeat(["ok"], len(self._part))),
            "offset": pa.array(self._offset),
            "payload_hash": pa.array(self._hash & ((1 << _PAYLOAD_BITS) - 1)),
            "attempt": pa.array(np.ones(len(self._part), np.int64)),
            "created_at": pa.array(np.repeat(self._at, A_CALL)),
            "group": pa.array(np.repeat([QUEUE_MODE], len(self._part))),
            "status": pa.array(np.repeat(["completed"], len(self._part))),
            "lease": pa.array([f"{agent}-{n}" for n in range(self._n)]).take(np.repeat(np.arange(self._n), A_CALL)),
        }
        leases = pa.array([f"{agent}-{n}" for n in range(self._n)])
        pop = {
            "queue": pa.array(np.repeat([_QUEUE], self._n)),
            "group": pa.array(np.repeat([QUEUE_MODE], self._n)),
            "batch": pa.array(np.full(self._n, A_CALL)),
            "partitions": pa.array(np.ones(self._n, np.int64)),
            "lease": leases,
            "lease_seconds": pa.array(np.full(self._n, _LEASE_S)),
        }
        kinds = [
            ("push", 0, {"pushes": _lists(PushItem, item, self._n)}),
            ("pop", _POP_AFTER, {"deliveries": _lists(Delivery, item, self._n)} | pop),
            ("ack", _ACK_AFTER, {"acks": _lists(AckItem, item, self._n)}),
        ]
        tables = [
            _calls(agent, kind, place * self._n, self._at + after, fields)
            for place, (kind, after, fields) in enumerate(kinds)
        ]
        end = _calls(agent, "end", 3 * self._n, self._at[-1:] + 10 * _ACK_AFTER, {})
        return pa.concat_tables([*tables, end])


def _calls(agent: str, kind: str, first: int, sent: np.ndarray, fields: dict[str, pa.Array]) -> pa.Table:
    """Rows of one kind; what is not told has its default."""
    n = len(sent)
    known = {
        "run": pa.array(np.repeat(["run"], n)),
        "agent": pa.array(np.repeat([agent], n)),
        "number": pa.array(first + np.arange(n)),
        "kind": pa.array(np.repeat([kind], n)),
        "sent": pa.array(sent),
        "answered": pa.array(sent + _TAKES),
        "outcome": pa.array(np.repeat(["ok"], n)),
        "client": pa.array(np.repeat(["c"], n)),
        "version": pa.array(np.full(n, VERSION)),
        "auto_ack": pa.array(np.zeros(n, bool)),
    } | fields
    schema = arrow_schema(Call)
    empty = {name: _none(schema.field(name).type, n) for name in schema.names if name not in known}
    return pa.table({name: (known | empty)[name] for name in schema.names}, schema)


def _none(kind: pa.DataType, n: int) -> pa.Array:
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(np.zeros(n + 1, np.int32), pa.array([], kind.value_type))
    return pa.nulls(n, kind)


def _lists(kind: type, columns: dict[str, pa.Array], n: int) -> pa.Array:
    """The items of calls: those columns that the kind of item has."""
    schema = arrow_schema(kind)
    rows = n * A_CALL
    defaults = {pa.bool_(): lambda: pa.array(np.zeros(rows, bool))}
    arrays = [
        columns[field.name]
        if field.name in columns
        else defaults.get(field.type, lambda f=field: pa.nulls(rows, f.type))()
        for field in schema
    ]
    items = pa.StructArray.from_arrays(arrays, fields=list(schema))
    return pa.ListArray.from_arrays(np.arange(0, rows + 1, A_CALL, dtype=np.int32), items)


def _drained(at: int) -> pa.Table:
    """What somebody saw at the end: the queue is empty."""
    group = {"queue": pa.array([_QUEUE]), "group": pa.array([QUEUE_MODE])}
    seen = _calls("observer", "drained", 0, np.array([at]), group)
    return pa.concat_tables([seen, _calls("observer", "end", 1, np.array([at + 1]), {})])


def _names(heads: np.ndarray) -> Iterator[tuple[int, str, int]]:
    return ((number + 1, str(number), int(head)) for number, head in enumerate(heads))


def _state(heads: np.ndarray, at: int) -> State:
    return State(
        taken_at=at,
        heads=[Head(part, _QUEUE, name, head, 0) for part, name, head in _names(heads)],
        cursors=[Cursor(_QUEUE, name, QUEUE_MODE, head - 1) for _, name, head in _names(heads)],
        dead_letters=[],
        queues=[Queue(_QUEUE, 3)],
        groups=[Group(_QUEUE, QUEUE_MODE, whole=True)],
    )


def _archived(heads: np.ndarray, files: list[File], at: int) -> Run:
    parts = [Part(part, _QUEUE, name, 0, head - 1, head, 0) for part, name, head in _names(heads) if head]
    return Run(1, at, parts, files)
