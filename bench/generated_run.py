"""A valid load test of any size as files: an archive of its log, and the journals of its agents.

Each call has 100 messages: a push, a pop in queue mode, and the ack of all of it. Every call takes 0.3 ms, and a
segment is pushed each millisecond, so that 100 million messages are 17 minutes. All transaction ids are chosen by the
producer. The share ``hot`` of the segments is in one partition.

So that every audit but ``NOT_JUDGED`` has something to judge, of each twenty segments one was spooled, the push of one
was not answered, one was pushed again, one was acked by the transaction that pushed another, and one was pushed with
SQL; each thousand have a dead letter.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_validation.archive.folder import File, Part, Run, open_archive
from spark_validation.columns import arrow_schema
from spark_validation.inputs import Cursor, DeadLetter, Group, Head, Queue, State, WholeRow
from spark_validation.journal.schema import QUEUE_MODE, VERSION, AckItem, Call, Delivery, PushItem

#: Audits that have nothing to judge here: an archive has no state of consumers and of what waits, nor contents of
#: messages; and the journals have no renewals, and compare no clocks.
NOT_JUDGED = frozenset((
    "cursors_know_what_was_delivered", "cursors_stand_in_the_log", "groups_have_their_cursors",
    "dead_letters_are_of_their_messages", "partitions_are_complete", "no_time_lies_ahead",
    "what_waits_can_enter_the_log", "transaction_ids_are_those_of_the_log", "the_log_has_the_pushed_payloads",
    "a_renewal_revives_no_lease", "messages_have_the_time_of_their_push",
))  # fmt: skip

A_CALL = 100
A_FILE = 500_000
_QUEUE = "generated"
_BEGIN = 1_900_000_000_000_000
_STEP, _TAKES = 1_000, 300
_POP_AFTER, _ACK_AFTER = 50_000, 50_500
_LEASE_S = 60.0
_PAYLOAD_BITS = 52

# Which segments are special, by their number modulo this.
_TWENTY, _SPOOLED, _UNANSWERED, _REPEATED, _INPUT, _WITH_SQL = 20, 3, 8, 13, 5, 17
_THOUSAND, _BURIED = 1_000, 7
#: Distance between the segment that a transaction acks and the one that it pushes.
_OUTPUT_BEHIND = _POP_AFTER // _STEP
_REPEATED_AFTER = 400
#: Time of a retry between the failed ack and the next pop, which is short.
_RETRIES, _RETRY_AFTER, _RETRY_STEP, _RETRY_TAKES = 3, 50_810, 30, 25

_SCHEMA = arrow_schema(Call)

Advance = Callable[[str, float], None]
Numbers = np.ndarray


def write(folder: Path, messages: int, partitions: int, hot: float, seed: int, advance: Advance) -> tuple[Path, Path]:
    """Writes archive and journals of about this many messages; returns their folders."""
    archive, journal = folder / "archive", folder / "journal"
    log = archive / "log" / f"queue={_QUEUE}" / "day=2030-03-17"
    for each in (log, journal, archive / "runs"):
        each.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    heads = np.zeros(partitions, np.int64)
    segments = -(-messages // A_CALL)
    files: list[File] = []
    letters: list[DeadLetter] = []
    for number, first in enumerate(range(0, segments, A_FILE // A_CALL)):
        count = min(A_FILE // A_CALL, segments - first)
        parts = np.where(rng.random(count) < hot, 0, rng.integers(0, partitions, count))
        chunk = _Chunk(f"agent-{number:04}", first, parts, _first_offsets(parts, heads))
        path = log / f"000001-{number:05}.parquet"
        pq.write_table(chunk.log(), path, compression="zstd")
        files.append(File(str(path.relative_to(archive)), path.stat().st_size))
        pq.write_table(chunk.journal(), journal / f"{number:05}.parquet", compression="zstd")
        letters += chunk.dead_letters()
        advance(f"writing {messages:,} messages", first / segments)
    after = _BEGIN + _STEP * segments + 10 * _ACK_AFTER
    pq.write_table(_drained(after), journal / "drained.parquet")
    open_archive(archive).add(_archived(heads, files, after), _state(heads, letters, after))
    return archive, journal


def _first_offsets(parts: Numbers, heads: Numbers) -> Numbers:
    """The first offset of each segment, in the order of the pushes; advances the log ends."""
    order = np.argsort(parts, kind="stable")
    counts = np.bincount(parts, minlength=len(heads))
    ranks = np.empty(len(parts), np.int64)
    ranks[order] = np.arange(len(parts)) - np.repeat(np.cumsum(counts) - counts, counts)
    firsts: Numbers = heads[parts] + A_CALL * ranks
    heads += A_CALL * counts
    return firsts


class _Chunk:
    """Some segments, with a push, a pop and an ack each, by one agent.

    Args:
        agent: of the journal.
        first: the number of the first segment.
        parts: the partition of each.
        firsts: the offset of the first message of each.
    """

    def __init__(self, agent: str, first: int, parts: Numbers, firsts: Numbers) -> None:
        self._agent, self._parts, self._n = agent, parts, len(parts)
        numbers = first + np.arange(self._n)
        self._due = _BEGIN + _STEP * numbers
        self._spooled, self._unanswered, self._repeated, inputs, self._with_sql = (
            numbers % _TWENTY == which for which in (_SPOOLED, _UNANSWERED, _REPEATED, _INPUT, _WITH_SQL)
        )
        self._buried = np.flatnonzero(numbers % _THOUSAND == _BURIED)
        self._inputs = np.flatnonzero(inputs[: max(self._n - _OUTPUT_BEHIND, 0)])
        self._outputs = self._inputs + _OUTPUT_BEHIND
        self._pushed = self._due.copy()
        self._pushed[self._outputs] = self._due[self._inputs] + _ACK_AFTER
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
            "created_at": np.repeat(self._pushed, A_CALL),
            "hash": self._hash,
        }
        schema = arrow_schema(WholeRow)
        others = [field for field in schema if field.name not in columns]
        return pa.table(columns | {field.name: pa.nulls(len(self._part), field.type) for field in others}, schema)

    def dead_letters(self) -> list[DeadLetter]:
        """The dead-lettered messages."""
        return [
            DeadLetter(_QUEUE, str(self._part[row]), QUEUE_MODE, int(self._offset[row]), _RETRIES)
            for row in self._last_of(self._buried).tolist()
        ]

    def journal(self) -> pa.Table:
        """The rows of one agent, with its last one."""
        end = _calls("end", self._due[-1:] + 10 * _ACK_AFTER, {})
        return _journal(self._agent, [*self._pushes(), *self._pops_and_acks(), *self._retries(), end])

    def _pushes(self) -> Iterator[pa.Table]:
        own = np.ones(self._n, bool)
        own[self._outputs] = False
        own &= ~(self._unanswered | self._with_sql)
        yield self._push(np.flatnonzero(own), spooled=self._spooled)
        yield self._push(np.flatnonzero(self._unanswered), outcome="unknown")
        yield self._push(np.flatnonzero(self._repeated), after=_REPEATED_AFTER, duplicate=True)
        with_sql = np.flatnonzero(self._with_sql)
        yield _calls("sql", self._pushed[with_sql], {"pushes": self._items(PushItem, with_sql)})

    def _push(
        self, which: Numbers, *, spooled: Numbers | None = None, after: int = 0, outcome: str = "ok",
        duplicate: bool = False,
    ) -> pa.Table:  # fmt: skip
        items = {"pushes": self._items(PushItem, which, spooled=spooled, outcome=outcome, duplicate=duplicate)}
        return _calls("push", self._pushed[which] + after, items, outcome=outcome)

    def _pops_and_acks(self) -> Iterator[pa.Table]:
        every = np.arange(self._n)
        acked = np.ones(self._n, bool)
        acked[self._inputs] = False
        pop = self._held(every, 1) | {"deliveries": self._items(Delivery, every)}
        yield _calls("pop", self._due + _POP_AFTER, pop)
        acks = np.flatnonzero(acked)
        yield _calls("ack", self._due[acks] + _ACK_AFTER, {"acks": self._items(AckItem, acks)})
        transaction = {"acks": self._items(AckItem, self._inputs), "pushes": self._items(PushItem, self._outputs)}
        yield _calls("transaction", self._due[self._inputs] + _ACK_AFTER, transaction)

    def _retries(self) -> Iterator[pa.Table]:
        """The last message of a segment fails again and again, until it is a dead letter."""
        rows = self._last_of(self._buried)
        for attempt in range(2, _RETRIES + 2):
            at = self._due[self._buried] + _RETRY_AFTER + 2 * (attempt - 2) * _RETRY_STEP
            held = self._held(self._buried, attempt)
            pop = held | {"deliveries": _lists(Delivery, self._columns(rows, attempt), 1)}
            yield _calls("pop", at, pop, takes=_RETRY_TAKES)
            dead = {"dead": pa.array(np.full(len(rows), attempt > _RETRIES))}
            acks = {"acks": _lists(AckItem, self._columns(rows, attempt) | dead, 1)}
            yield _calls("ack", at + _RETRY_STEP, acks, takes=_RETRY_TAKES)

    def _last_of(self, segments: Numbers) -> Numbers:
        last: Numbers = segments * A_CALL + A_CALL - 1
        return last

    def _held(self, segments: Numbers, attempt: int) -> dict[str, pa.Array]:
        n = len(segments)
        return {
            "queue": _same(_QUEUE, n),
            "group": _same(QUEUE_MODE, n),
            "batch": _same(A_CALL, n),
            "partitions": _same(1, n),
            "lease": self._leases(segments, attempt),
            "lease_seconds": _same(_LEASE_S, n),
        }

    def _leases(self, segments: Numbers, attempt: int) -> pa.Array:
        return pa.array([f"{self._agent}-{segment}-{attempt}" for segment in segments.tolist()], pa.string())

    def _items(
        self, kind: type, segments: Numbers, *, spooled: Numbers | None = None, outcome: str = "ok",
        duplicate: bool = False,
    ) -> pa.Array:  # fmt: skip
        """The items of calls that each concern a whole segment."""
        rows = (segments[:, None] * A_CALL + np.arange(A_CALL)).ravel()
        columns = self._columns(rows, 1)
        told = np.full(len(rows), outcome == "ok")
        if spooled is not None:
            columns["spooled"] = pa.array(np.repeat(spooled[segments], A_CALL))
            told &= ~np.repeat(spooled[segments], A_CALL)
        if kind is PushItem:
            columns["offset"] = pa.array(self._offset[rows], mask=~told)
            columns["duplicate"] = _same(duplicate, len(rows))
        return _lists(kind, columns | {"outcome": _same(outcome, len(rows))}, A_CALL)

    def _columns(self, rows: Numbers, attempt: int) -> dict[str, pa.Array]:
        """The columns of these messages in pushes, deliveries and acks; each takes those that it has."""
        n, segments = len(rows), rows // A_CALL
        failed = np.isin(rows, self._last_of(self._buried))
        return {
            "queue": _same(_QUEUE, n),
            "partition": pa.array(self._part[rows]).cast(pa.string()),
            "transaction_id": self._ids.take(pa.array(rows)),
            "outcome": _same("ok", n),
            "offset": pa.array(self._offset[rows]),
            "payload_hash": pa.array(self._hash[rows] & ((1 << _PAYLOAD_BITS) - 1)),
            "attempt": _same(attempt, n),
            "created_at": pa.array(self._pushed[segments]),
            "group": _same(QUEUE_MODE, n),
            "status": pa.array(np.where(failed, "failed", "completed")),
            "lease": self._leases(np.arange(self._n), attempt).take(pa.array(segments)),
        }


def _same(value: object, n: int) -> pa.Array:
    return pa.repeat(value, n)


def _journal(agent: str, calls: Sequence[pa.Table]) -> pa.Table:
    """The rows of one agent, numbered in this order."""
    rows = pa.concat_tables(calls)
    rows = rows.append_column("agent", _same(agent, len(rows))).append_column("number", pa.array(np.arange(len(rows))))
    return rows.select(_SCHEMA.names).cast(_SCHEMA)


def _calls(
    kind: str, sent: Numbers, fields: dict[str, pa.Array], *, outcome: str = "ok", takes: int = _TAKES
) -> pa.Table:
    """Rows of one kind; omitted columns have their defaults."""
    n = len(sent)
    known = {
        "run": _same("run", n),
        "kind": _same(kind, n),
        "sent": pa.array(sent),
        "answered": pa.array(sent + takes, mask=np.full(n, outcome == "unknown")),
        "outcome": _same(outcome, n),
        "client": _same("c", n),
        "version": _same(VERSION, n),
        "auto_ack": _same(False, n),
    } | fields
    told = [field for field in _SCHEMA if field.name not in {"agent", "number"}]
    columns = [known[field.name] if field.name in known else _none(field.type, n) for field in told]
    return pa.table(columns, pa.schema(told))


def _none(kind: pa.DataType, n: int) -> pa.Array:
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(np.zeros(n + 1, np.int32), pa.array([], kind.value_type))
    return pa.nulls(n, kind)


def _lists(kind: type, columns: dict[str, pa.Array], each: int) -> pa.Array:
    """The items of calls, this many of each: the columns that the kind of item has."""
    schema = arrow_schema(kind)
    rows = len(columns["queue"])
    defaults = {pa.bool_(): lambda: _same(False, rows)}
    arrays = [
        columns[field.name]
        if field.name in columns
        else defaults.get(field.type, lambda f=field: pa.nulls(rows, f.type))()
        for field in schema
    ]
    items = pa.StructArray.from_arrays(arrays, fields=list(schema))
    return pa.ListArray.from_arrays(np.arange(0, rows + 1, each, dtype=np.int32), items)


def _drained(at: int) -> pa.Table:
    """The observation at the end that the queue is empty."""
    group = {"queue": pa.array([_QUEUE]), "group": pa.array([QUEUE_MODE])}
    return _journal("observer", [_calls("drained", np.array([at]), group), _calls("end", np.array([at + 1]), {})])


def _names(heads: Numbers) -> Iterator[tuple[int, str, int]]:
    return ((number + 1, str(number), int(head)) for number, head in enumerate(heads))


def _state(heads: Numbers, letters: list[DeadLetter], at: int) -> State:
    return State(
        taken_at=at,
        heads=[Head(part, _QUEUE, name, head, 0) for part, name, head in _names(heads)],
        cursors=[Cursor(_QUEUE, name, QUEUE_MODE, head - 1) for _, name, head in _names(heads)],
        dead_letters=letters,
        queues=[Queue(_QUEUE, _RETRIES)],
        groups=[Group(_QUEUE, QUEUE_MODE, whole=True)],
    )


def _archived(heads: Numbers, files: list[File], at: int) -> Run:
    parts = [Part(part, _QUEUE, name, 0, head - 1, head, 0) for part, name, head in _names(heads) if head]
    return Run(1, at, parts, files)
