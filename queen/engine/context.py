"""What the handlers of all kinds of jobs use."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from operator import not_
from typing import Any, TypeVar
from uuid import UUID, uuid4

from queen.core.errors import DatabaseUnavailableError, QueenError, TooSlowError
from queen.core.metrics import WorkerState
from queen.core.statistics import ClockState
from queen.engine.administration import Administration, Reads
from queen.engine.failover import Failover
from queen.engine.failures import Repeats, Rules
from queen.engine.metadata_cache import MetadataCache
from queen.engine.orphans import Orphans
from queen.engine.ports import Database, Notification, Notify
from queen.engine.prefetch import PREFETCHED_S, Prefetch
from queen.engine.queue_counters import QueueCounters
from queen.security.keyring import Keyring

T = TypeVar("T")


def ignore_notification(_notification: Notification) -> None:
    """For a context without long polls."""


async def _always() -> bool:
    return True


async def _nothing() -> None:
    return


class Context:
    """The engine as its handlers see it.

    ``main.py`` sets ``state`` (of the worker), ``clock`` (the last state of PostgreSQL's clock), ``report`` (stores its
    connected consumers) and ``database_answers`` (asks PostgreSQL whether it is reachable). ``orphans`` are leases that
    no consumer holds. ``unfinished`` are groups, by queue and name, that lacked cursors when this worker saw them last.

    Args:
        database: the procedures for messages.
        administration: the procedures for everything else, on connections of their own.
        cache: names and numbers of queues, partitions and groups.
        notify: publishes notifications to the long polls of this worker and to other workers.
        retry_timeout_s: how long a call is repeated while PostgreSQL is unavailable.
        failover: the spool; ``None`` if there is none.
        counters: of requests and messages.
        interfaces: what other interfaces than Queen's need, each of its own type.
        keys: of encrypted queues; ``None`` if the server has none.
        limit_s: the time limit of a call in PostgreSQL.
        prefetch: the prefetched messages of the worker.
        new_lease: makes leases.

    Attributes:
        reads: the procedures that read, of all databases together.
        rules: the settings of the policy for failures.
    """

    def __init__(
        self,
        database: Database,
        administration: Administration,
        cache: MetadataCache,
        notify: Notify,
        retry_timeout_s: float,
        failover: Failover | None = None,
        counters: QueueCounters | None = None,
        interfaces: Sequence[object] = (),
        keys: Keyring | None = None,
        limit_s: float = 30.0,
        prefetch: Prefetch | None = None,
        new_lease: Callable[[], UUID] = uuid4,
    ) -> None:
        self.database = database
        self.administration = administration
        self.reads: Reads = administration
        self.cache = cache
        self.notify = notify
        self.failover = failover
        self.counters = counters or QueueCounters()
        self.state: Callable[[], WorkerState] = WorkerState
        self.clock: Callable[[], ClockState] = ClockState
        self.report: Callable[[], Awaitable[None]] = _nothing
        self.keys = keys
        self.database_answers: Callable[[], Awaitable[bool]] = _always
        self.orphans = Orphans()
        self.prefetch = Prefetch() if prefetch is None else prefetch
        self.new_lease = new_lease
        self.unfinished: set[tuple[str, str]] = set()
        self.rules = Rules(limit_s, retry_timeout_s)
        self._interfaces: dict[type, Any] = {type(each): each for each in interfaces}

    def named(self) -> "Sequence[tuple[str, Context]]":
        """The contexts of all databases with the names of these: this one, which has no name."""
        return (("", self),)

    def at(self, _number: int) -> "Context":
        """The context of the database that gave a number to a queue, a dead letter or a stream."""
        return self

    def of_partition(self, _part_id: int) -> "Context":
        """The context of the database where the partition with a number is, as far as this worker knows."""
        return self

    async def at_partition(
        self, _part_id: int, work: "Callable[[Context], Awaitable[T]]", _is_nothing: Callable[[T], bool] = not_
    ) -> T:
        """The result of a function on the database where a partition is, also if it moves meanwhile.

        ``is_nothing`` says of a result that it may only mean that the partition is not there.

        Raises:
            DatabaseUnavailableError: the partition is still on its way.
        """
        return await work(self)

    def check_settled(self, queue: str | None) -> None:
        """Raises DatabaseUnavailableError while partitions of a queue (``None``: of any) are moved.

        With one database they never are.
        """

    def places(self, _name: str) -> "Sequence[tuple[int, Context]]":
        """The databases, by slot, where a queue of simple-mq or SQS may be; that of a new one first."""
        return ((0, self),)

    async def home(self, _queue: str, _partition: str) -> "Context":
        """The context of the database of a partition, or of the one where it would be made."""
        return self

    async def everywhere(self, work: "Callable[[Context], Awaitable[T]]") -> list[T]:
        """The results of a function on each database.

        Raises:
            DatabaseUnavailableError: a database is unavailable; the others may have done it, and it can be repeated.
        """
        return [await work(self)]

    def following(self, _number: int) -> int | None:
        """Where the numbers of the database after that of a number begin; ``None``: there is no other."""
        return None

    def forget_queue(self, queue: str) -> None:
        """Forgets where the partitions of a deleted queue were: with one database there is nothing to forget."""

    def interface(self, kind: type[T]) -> T:
        """What another interface needs, by its type.

        Raises:
            RuntimeError: this engine does not serve it.
        """
        found: T | None = self._interfaces.get(kind)
        if found is None:
            raise RuntimeError(f"{kind.__name__} is not available in this engine")
        return found

    @property
    def unavailable(self) -> bool:
        """Whether PostgreSQL is known to be unavailable. A call may fail before that is known."""
        return self.failover is not None and self.failover.unavailable

    @property
    def pop_maintenance(self) -> bool:
        """Whether pops get no messages, by pop maintenance."""
        return self.failover is not None and self.failover.pop_maintenance

    async def outlive_prefetched(self, ask: Callable[[], Awaitable[float]]) -> bool:
        """Returns when no worker delivers messages any more that it had prefetched before this call.

        ``ask`` returns the seconds to wait; the result says whether there were any. If it fails, this waits for the
        longest possible time.
        """
        try:
            wait_s = await ask()
        except QueenError:
            wait_s = PREFETCHED_S
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        return wait_s > 0

    def with_retries(
        self, call: Callable[[bool], Awaitable[T]], *, retries_during_outage: bool = True
    ) -> Coroutine[Any, Any, T]:
        """The result of ``call(again)``, which is repeated while PostgreSQL is unavailable, for a bounded time.

        ``again`` is true as soon as an earlier attempt may have been committed although its answer was lost. Then the
        call must be safe to repeat.

        Args:
            call: what to do.
            retries_during_outage: whether to go on while PostgreSQL is known to be unavailable; if not, only a broken
                connection is bridged.

        Raises:
            DatabaseUnavailableError: PostgreSQL stayed unavailable, and nothing was done.
            OutcomeUnknownError: PostgreSQL stayed unavailable, and one of the attempts may have been committed.
            TooSlowError: the call was too slow, and nothing was done.
        """
        repeats = Repeats(self.rules, asyncio.get_running_loop().time())
        return self._repeat(call, repeats, retries_during_outage=retries_during_outage)

    async def tried(
        self, call: Callable[[bool], Awaitable[T]], *, retries_during_outage: bool = True
    ) -> tuple[T, bool]:
        """The result as of ``with_retries``, and whether an earlier attempt may have been committed and caused it."""
        repeats = Repeats(self.rules, asyncio.get_running_loop().time())
        return await self._repeat(call, repeats, retries_during_outage=retries_during_outage), repeats.again

    def idempotently(
        self, call: Callable[[], Awaitable[T]], *, retries_during_outage: bool = True
    ) -> Coroutine[Any, Any, T]:
        """The result as of ``with_retries``, for a call that may be executed twice: its outcome is never unknown.

        Raises:
            DatabaseUnavailableError: PostgreSQL stayed unavailable.
            TooSlowError: the call was too slow, or met a lock.
        """
        repeats = Repeats(self.rules, asyncio.get_running_loop().time(), idempotent=True)
        return self._repeat(lambda _again: call(), repeats, retries_during_outage=retries_during_outage)

    async def _repeat(
        self, call: Callable[[bool], Awaitable[T]], repeats: Repeats, *, retries_during_outage: bool
    ) -> T:
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await call(repeats.again)
            except (DatabaseUnavailableError, TooSlowError) as problem:
                self.counters.db_errors += 1
                pause = repeats.after(problem, loop.time(), waits=retries_during_outage or not self.unavailable)
                if pause is problem:
                    raise
                if isinstance(pause, QueenError):
                    raise pause from problem
            # All calls of all workers fail at the same moment; their retries should not coincide.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    async def past_locks(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of a call of a single request, which is repeated while it meets a lock, for a bounded time.

        Raises:
            TooSlowError: another transaction held the lock for longer, or the call was too slow.
        """
        loop = asyncio.get_running_loop()
        repeats = Repeats(self.rules, loop.time(), alone=True)
        while True:
            try:
                return await call()
            except TooSlowError as problem:
                pause = repeats.after(problem, loop.time(), waits=True)
                if not isinstance(pause, float):
                    raise
            await asyncio.sleep(pause)
