"""Snapshots of several databases that serve as one Queen, each of its own moment.

A partition is in one of them, and ids differ. A queue and a group are in each, with ids of their own: rows that all
databases have become one, by name.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from types import TracebackType
from typing import Any, Self, TypeAlias

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from pyspark_queen.options import Log, logs_of

from ..errors import DatabaseError
from ..inputs import Database, Flaw, Group, Head, IdSum, Queue, State, as_database
from .snapshot import MESSAGES_A_TASK, NOTHING, Snapshot, read_log

_SLOT = "SELECT slot FROM queen.shards WHERE own"


@contextmanager
def snapshot_of(dsn: str) -> Iterator["AnySnapshot"]:
    """Holds the snapshot of a database, or of several: NAME=URL of each.

    Raises:
        DatabaseError: one cannot be read.
    """
    try:
        logs = logs_of(dsn)
    except ValueError as problem:
        raise DatabaseError(f"--dsn: give {problem}") from None
    with Snapshot(logs[0].dsn, logs[0].name) if len(logs) == 1 else Snapshots(logs) as snapshot:
        yield snapshot


class Snapshots:
    """Several snapshots as one; see ``Snapshot`` for what its methods do."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._dsn = " ".join(f"{log.name}={log.dsn}" for log in logs)
        with ExitStack() as stack:
            self.each = [stack.enter_context(Snapshot(log.dsn, log.name)) for log in logs]
            self._check_moves()
            self._stack = stack.pop_all()
        #: What was younger at the first snapshot may have been removed by the last.
        self.taken_at = max(each.taken_at for each in self.each)
        self.place = "; ".join(f"{each.name}: {each.place}" for each in self.each)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Releases the snapshots."""
        self._stack.close()

    def _check_moves(self) -> None:
        """Partitions that move between two snapshots would be in both, or in none.

        Raises:
            DatabaseError: some are being moved. They were expected before by the database to which they go.
        """
        for each in self.each:
            moves = each.fetch(_MOVES) if each.fetch(_KNOWS_MOVES)[0][0] else []
            here = [part_id for part_id, state in moves if state == "here"]
            others = [other for other in self.each if other is not each]
            if len(here) < len(moves) or (here and any(other.fetch(_THERE, here) for other in others)):
                raise DatabaseError(
                    f"partitions are being moved from or to database {each.name}: end `queen shards move`, and run it "
                    "again"
                )

    def fetch(self, query: str, *arguments: object) -> list[Any]:
        """Rows of a query in each database, one after the other."""
        return [row for each in self.each for row in each.fetch(query, *arguments)]

    def messages(self) -> int:
        """The number of messages of the log."""
        return sum(each.messages() for each in self.each)

    def check_primary(self) -> None:
        """Raises ReplicaError if one of them is a replica."""
        for each in self.each:
            each.check_primary()

    def installation(self) -> str | None:
        """The id of the first shard, which stays."""
        first = min(self.each, key=lambda each: next((row[0] for row in each.fetch(_SLOT)), 0))
        return first.installation()

    def database(self, spark: SparkSession, messages_a_task: int = MESSAGES_A_TASK) -> Database:
        """The tables of all."""
        log = self.log(spark, messages_a_task, checked=True)
        return as_database(spark, log, self.state(), self.flaws(), self.id_sums())

    def log(
        self,
        spark: SparkSession,
        messages_a_task: int = MESSAGES_A_TASK,
        *,
        since: Mapping[str, Mapping[str, int]] = NOTHING,
        whole: bool = False,
        checked: bool = False,
    ) -> DataFrame:
        """The messages of the log."""
        snapshots = " ".join(each.id for each in self.each)
        return read_log(spark, self._dsn, snapshots, messages_a_task, since=since, whole=whole, checked=checked)

    def state(self) -> State:
        """Everything except the log."""
        states = [_named(each.name, each.state()) for each in self.each]
        joined = {
            name: [row for state in states for row in getattr(state, name)]
            for name in ("heads", "cursors", "dead_letters", "deleted", "waiting")
        }
        return State(
            taken_at=self.taken_at,
            **joined,
            queues=_by_name((state.queues for state in states), ("queue",), _queue_of),
            groups=_by_name((state.groups for state in states), ("queue", "group"), _group_of),
            retired=_by_name((state.retired for state in states), ("queue", "group"), _group_of),
            clock_stepped=any(state.clock_stepped for state in states),
            installation=self.installation(),
            unrecorded=sum(state.unrecorded for state in states),
        )

    def id_sums(self) -> list[IdSum]:
        """By partition: its transaction ids."""
        return [row for each in self.each for row in each.id_sums()]

    def flaws(self) -> list[Flaw]:
        """What tables of a database say against each other, and partitions that several have."""
        return [*[_placed(flaw, each.name) for each in self.each for flaw in each.flaws()], *self._doubled()]

    def _doubled(self) -> list[Flaw]:
        places = [(row["queue"], row["partition"], each.name) for each in self.each for row in each.fetch(_PARTITIONS)]
        several = {place for place, n in Counter(place[:2] for place in places).items() if n > 1}
        names: dict[tuple[str, str], list[str]] = {}
        for queue, partition, name in places:
            if (queue, partition) in several:
                names.setdefault((queue, partition), []).append(name)
        return [
            Flaw("partitions_are_complete", queue, partition, text=f"is in the databases {' and '.join(there)}")
            for (queue, partition), there in names.items()
        ]


_PARTITIONS = """
SELECT q.name AS queue, p.name AS partition
FROM queen.partitions AS p
JOIN queen.queues AS q ON q.id = p.queue_id
"""
# Earlier releases have no moves.
_KNOWS_MOVES = "SELECT to_regclass('queen.moved_partitions') IS NOT NULL"
_MOVES = "SELECT part_id, state FROM queen.moved_partitions WHERE state <> 'gone'"
_THERE = "SELECT 1 FROM queen.partitions WHERE id = ANY($1)"


def _placed(flaw: Flaw, name: str) -> Flaw:
    """A flaw that says in which database it is, if not by its partition."""
    return flaw if flaw.partition is not None else replace(flaw, text=f"{flaw.text} (database {name})")


def _named(name: str, state: State) -> State:
    """Its partitions say where they are, and since when their queue is there."""
    made = {queue.queue: queue.created_at for queue in state.queues}

    def head_of(head: Head) -> Head:
        return replace(head, database=name, made=made.get(head.queue))

    return replace(state, heads=[head_of(head) for head in state.heads])


def _by_name(tables: Iterable[Sequence[Any]], keys: Sequence[str], join: Any) -> list[Any]:  # noqa: ANN401 - rows
    """The rows of all tables, one of each name."""
    rows: dict[Any, list[Any]] = {}
    for table in tables:
        for row in table:
            rows.setdefault(attrgetter(*keys)(row), []).append(row)
    return [join(same) for same in rows.values()]


def _queue_of(same: Sequence[Queue]) -> Queue:
    return replace(same[0], created_at=max(each.created_at for each in same))


def _group_of(same: Sequence[Group]) -> Group:
    times = [each.created_at for each in same]
    return replace(same[0], whole=all(each.whole for each in same), created_at=min(times), begun_at=max(times))


AnySnapshot: TypeAlias = Snapshot | Snapshots
