"""The leader that runs the background jobs: the worker that holds the row ``queen.service_leader``, for a limited time.

Two leaders at once, for a moment, do no harm: the jobs are safe to run concurrently. One is enough.
"""

import logging
from collections.abc import Callable
from uuid import UUID, uuid4

from queen.jobs.ports import ClockStep, Maintenance

log = logging.getLogger("queen.jobs")

LEASE_S = 15.0
RENEWAL_S = 5.0


class Leadership:
    """The leadership of one worker; ``clock`` is monotonic, in seconds."""

    def __init__(self, database: Maintenance, clock: Callable[[], float]) -> None:
        self._database, self._clock = database, clock
        self._holder: UUID = uuid4()
        self._until = float("-inf")

    @property
    def held(self) -> bool:
        """Whether this worker leads now; false as soon as its time is over, even if PostgreSQL is unavailable."""
        return self._clock() < self._until

    async def renew(self) -> None:
        """Becomes the leader if there is none, or renews the leadership."""
        asked_at = self._clock()
        led = await self._database.lead(self._holder, LEASE_S)
        if led and not self.held:
            # The clock must be checked before messages are removed by their age.
            await self.look_at_clock()
        # The time before the call: the database counts from a later one.
        self._until = asked_at + LEASE_S if led else float("-inf")

    async def look_at_clock(self) -> ClockStep:
        """Compares PostgreSQL's clock with this machine's, and stores the result for the next leader."""
        step = await self._database.look_at_clock(self._holder)
        if step.seconds:
            log.warning("PostgreSQL's clock stepped by %+.3f s, or was not checked for so long", step.seconds)
        return step

    async def resign(self) -> None:
        """Ends the leadership, so that another worker can take over at once."""
        if self.held:
            self._until = float("-inf")
            await self._database.resign(self._holder)
