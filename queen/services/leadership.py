"""Which worker runs the services: the one that holds the row ``queen.service_leader``, for a time that it renews.

Two at once, for a moment, do no harm: what the services do is safe beside anything, and one is enough.
"""

import logging
from collections.abc import Callable
from uuid import UUID, uuid4

from queen.services.ports import ClockStep, Maintenance

log = logging.getLogger("queen.services")

LEASE_S = 15.0
RENEWAL_S = 5.0


class Leadership:
    """The claim of one worker; ``clock`` in seconds, and never set back."""

    def __init__(self, database: Maintenance, clock: Callable[[], float]) -> None:
        self._database, self._clock = database, clock
        self._holder: UUID = uuid4()
        self._until = float("-inf")

    @property
    def held(self) -> bool:
        """Whether this worker leads now; false as soon as its time is over, whoever can be asked."""
        return self._clock() < self._until

    async def renew(self) -> None:
        """Takes the lead where it is free, and keeps it where it is ours."""
        asked_at = self._clock()
        led = await self._database.lead(self._holder, LEASE_S)
        if led and not self.held:
            # What is removed is judged by a clock that has been looked at.
            await self.look_at_clock()
        # From before the call: the database counts from a later moment.
        self._until = asked_at + LEASE_S if led else float("-inf")

    async def look_at_clock(self) -> ClockStep:
        """Compares PostgreSQL's clock with this machine's, and notes it for who leads next."""
        step = await self._database.look_at_clock(self._holder)
        if step.seconds:
            log.warning("PostgreSQL's clock has stepped by %+.3f s, or nobody looked for so long", step.seconds)
        return step

    async def resign(self) -> None:
        """Lets another worker take over at once."""
        if self.held:
            self._until = float("-inf")
            await self._database.resign(self._holder)
