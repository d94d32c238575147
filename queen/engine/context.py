"""What the handlers of all kinds of jobs share."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Container, Hashable
from typing import TypeVar

from msgspec import Struct

from queen.core.errors import DatabaseUnavailableError, QueenError, TooSlowError
from queen.core.metrics import ClockState
from queen.engine.administration import Administration
from queen.engine.directory import Directory
from queen.engine.failover import Failover
from queen.engine.failures import Repeats, Rules
from queen.engine.meter import Gauges, Meter
from queen.engine.orphans import Orphans
from queen.engine.ports import Database, Heard, Notice, SimpleMqAdministration, SimpleMqDatabase
from queen.engine.tally import Tally
from queen.security.keyring import Keyring

T = TypeVar("T")


class SimpleMq(Struct, frozen=True):
    """simple-mq as its handlers see it: the procedures for messages, those for the rest, and its counters."""

    database: SimpleMqDatabase
    administration: SimpleMqAdministration
    tally: Tally


def tell_nobody(_notice: Notice, _besides: Container[Hashable] = ()) -> None:
    """For a context in which nobody waits."""


async def _always() -> bool:
    return True


class Context:
    """The engine as its handlers see it.

    ``gauges`` are figures of the worker, ``clock`` is what was last said of PostgreSQL's, and ``database_answers`` asks
    PostgreSQL whether it is there; they are set by who has them. ``orphans`` are leases of which only PostgreSQL may
    know. ``unfinished`` are groups, by queue and name, that had not all their cursors when this worker last saw them.

    Args:
        database: the procedures for messages.
        administration: those for everything else, on connections of their own.
        directory: names and numbers.
        heard: called when something may have become available, or a queue was configured: tells waiters, except at the
            places named, and workers.
        patience_s: how long a call is repeated while PostgreSQL is away.
        failover: where pushes go meanwhile; ``None`` where there is no spool.
        meter: counts what is done.
        simple_mq: what simple-mq needs; ``None`` where only the log is looked after.
        keys: those of encrypted queues; ``None`` if the server has none.
        limit_s: how long PostgreSQL lets a call take.

    Attributes:
        rules: what may be set of the policy for failures.
    """

    def __init__(
        self,
        database: Database,
        administration: Administration,
        directory: Directory,
        heard: Heard,
        patience_s: float,
        failover: Failover | None = None,
        meter: Meter | None = None,
        simple_mq: "SimpleMq | None" = None,
        keys: Keyring | None = None,
        limit_s: float = 30.0,
    ) -> None:
        self.database = database
        self.administration = administration
        self.directory = directory
        self.heard = heard
        self.failover = failover
        self.meter = meter or Meter()
        self.gauges: Callable[[], Gauges] = Gauges
        self.clock: Callable[[], ClockState] = ClockState
        self.keys = keys
        self.database_answers: Callable[[], Awaitable[bool]] = _always
        self.orphans = Orphans()
        self.unfinished: set[tuple[str, str]] = set()
        self.rules = Rules(limit_s, patience_s)
        self._simple_mq = simple_mq

    @property
    def simple_mq(self) -> SimpleMq:
        """What simple-mq needs; an engine that was made without it takes no jobs of that kind."""
        if self._simple_mq is None:
            raise RuntimeError("The engine was made without simple-mq")
        return self._simple_mq

    @property
    def away(self) -> bool:
        """Whether PostgreSQL is known to be away; a call that fails may also be the first to find out."""
        return self.failover is not None and self.failover.away

    async def patiently(self, call: Callable[[bool], Awaitable[T]], *, outwaits: bool = True) -> T:
        """The result of ``call(again)``, repeated while PostgreSQL is away, for a bounded time.

        ``again`` is true from the moment that an earlier try may have been committed although its answer was lost: the
        call must then be safe to repeat.

        Args:
            call: what to do.
            outwaits: whether to go on when PostgreSQL is known to be away, and not only to bridge a broken connection.

        Raises:
            DatabaseUnavailableError: PostgreSQL stayed away, and nothing was done.
            OutcomeUnknownError: PostgreSQL stayed away, and one of the tries may have been committed.
            TooSlowError: the call was too slow, and nothing was done.
        """
        result, _ = await self.tried(call, outwaits=outwaits)
        return result

    async def tried(self, call: Callable[[bool], Awaitable[T]], *, outwaits: bool = True) -> tuple[T, bool]:
        """What ``patiently`` gives, and whether an earlier try may have been committed: the result may be its doing."""
        repeats = Repeats(self.rules, asyncio.get_running_loop().time())
        return await self._repeat(call, repeats, outwaits=outwaits), repeats.again

    async def harmlessly(self, call: Callable[[], Awaitable[T]], *, outwaits: bool = True) -> T:
        """What ``patiently`` gives, of a call that may be carried out twice: its outcome is never unknown.

        Raises:
            DatabaseUnavailableError: PostgreSQL stayed away.
            TooSlowError: the call was too slow, or met a lock.
        """
        repeats = Repeats(self.rules, asyncio.get_running_loop().time(), harmless=True)
        return await self._repeat(lambda _again: call(), repeats, outwaits=outwaits)

    async def _repeat(self, call: Callable[[bool], Awaitable[T]], repeats: Repeats, *, outwaits: bool) -> T:
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await call(repeats.again)
            except (DatabaseUnavailableError, TooSlowError) as problem:
                self.meter.db_errors += 1
                pause = repeats.after(problem, loop.time(), waits=outwaits or not self.away)
                if pause is problem:
                    raise
                if isinstance(pause, QueenError):
                    raise pause from problem
            # All calls of all workers fail at the same moment: they should not come again at the same moment.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    async def past_locks(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of a call that no other request shares, repeated while it meets a lock, for a bounded time.

        Raises:
            TooSlowError: somebody held the lock for longer, or the call was too slow.
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
