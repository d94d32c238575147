"""Leases of prefetched messages that no consumer has, in memory that the successor of a killed worker reads.

The master of gunicorn creates the memory before it forks a worker, and keeps it after the end of the worker. The
successor inherits it.
"""

import mmap
from uuid import UUID

_BYTES = 16
_NOTHING = bytes(_BYTES)


class PrefetchedLeases:
    """The leases of one worker.

    Args:
        leases_max: the maximum number.
    """

    def __init__(self, leases_max: int = 1024) -> None:
        self._memory = mmap.mmap(-1, leases_max * _BYTES)
        self._free = list(range(leases_max))
        self._slots: dict[UUID, int] = {}

    def note(self, lease: UUID) -> bool:
        """Stores a lease before the call that takes it; false if there is no room."""
        if not self._free:
            return False
        slot = self._slots[lease] = self._free.pop()
        self._memory[slot * _BYTES : (slot + 1) * _BYTES] = lease.bytes
        return True

    def strike(self, lease: UUID) -> None:
        """Removes a lease: a consumer has it now, or it was released."""
        slot = self._slots.pop(lease, None)
        if slot is not None:
            self._memory[slot * _BYTES : (slot + 1) * _BYTES] = _NOTHING
            self._free.append(slot)

    def __bool__(self) -> bool:
        return any(self._memory[:])

    def take(self) -> list[UUID]:
        """Removes and returns all leases; for the successor of the worker that stored them."""
        found = [self._memory[begin : begin + _BYTES] for begin in range(0, len(self._memory), _BYTES)]
        self._memory[:] = bytes(len(self._memory))
        return [UUID(bytes=each) for each in found if each != _NOTHING]


class LeasesOfWorkers:
    """The leases of all workers of a server, as its master sees them and, after the fork, each worker.

    Attributes:
        mine: the memory of this worker.
    """

    def __init__(self) -> None:
        self.mine: PrefetchedLeases | None = None
        self._of_workers: dict[int, PrefetchedLeases] = {}
        self._left: list[PrefetchedLeases] = []

    def begin(self, worker: int) -> None:
        """Creates the memory of a worker that is about to be forked."""
        self.mine = self._of_workers[worker] = PrefetchedLeases()

    def end(self, worker: int) -> None:
        """Keeps the memory of an ended worker for its successor."""
        if (leases := self._of_workers.pop(worker, None)) is not None:
            self._left = [each for each in self._left if each] + [leases]

    def take_left(self) -> list[UUID]:
        """Removes and returns the leases of ended workers."""
        return [lease for leases in self._left for lease in leases.take()]


#: The one of this server.
LEASES_OF_WORKERS = LeasesOfWorkers()
