"""Messages that a worker has leased before a consumer asks for them. No I/O.

A consumer that works message by message pops, acknowledges, and pops again. The acknowledgement ends its lease, and
the same statement leases the next messages of the partition for the next pop, which is answered from memory, without a
call (ADR 48). Nothing else is written at delivery.

Prefetched messages wait for a short time; then they are released. That time is shorter than the one for which
PostgreSQL says that a worker may have them (``prefetched_until``), on which other calls rely. A partition is prefetched
again and again for a short time only; then the cursor that has been ready longest has its turn, as at every pop.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from math import inf
from uuid import UUID, uuid4

from msgspec import Struct

from queen.engine.prefetched_leases import PrefetchedLeases
from queen.log.requests import Claim, Pop, Popped

#: How long prefetched messages wait for a pop, in seconds from the start of the call that leased them. Less than
#: ``PREFETCHED_S``, which starts later.
HOLD_S = 0.04
#: The time that ``sql/procedures/complete_messages.sql`` adds to that of the call for ``prefetched_until``.
PREFETCHED_S = 0.05
#: Released messages may be late: a pop tries again after these times, in seconds, before it answers without messages.
_LATE_S = (0.02, 0.05, 0.1)
#: How long a partition is prefetched again and again until other partitions have their turn.
CHAIN_S = 0.05
#: The most pops that are remembered until their acknowledgement, and kinds of pops whose success is remembered.
_SERVED_MAX, _KINDS_MAX = 20_000, 1_000
#: The most acknowledgements without a prefetch after prefetches in vain.
_PASSES_MAX = 255


class NextLease(Struct, frozen=True):
    """The prefetch that an acknowledgement requests.

    Attributes:
        lease: the lease of the next messages.
        pop: the pop that they are for, like the last one.
        begun: since when the partition has been prefetched.
    """

    lease: UUID
    pop: Pop
    begun: float


class PrefetchedBatch(Struct, frozen=True):
    """Prefetched messages: the request, the messages, and when the call began that has leased them."""

    asked: NextLease
    claim: Claim
    since: float


class _Success:
    """Whether pops of a kind take prefetched messages in time."""

    __slots__ = ("in_vain", "passes")

    def __init__(self) -> None:
        self.in_vain = self.passes = 0

    def missed(self) -> None:
        self.in_vain = min(2 * self.in_vain + 1, _PASSES_MAX)
        self.passes = self.in_vain

    def skips(self) -> bool:
        if not self.passes:
            return False
        self.passes -= 1
        return True


def kind_of(pop: Pop) -> Hashable | None:
    """The kind of a pop: pops of one kind can take the same messages. ``None`` if nothing is prefetched for it."""
    if pop.partitions != 1 or pop.auto_ack or not pop.queue or pop.partition is not None:
        return None
    return pop.queue, pop.group, pop.batch, pop.lease_seconds


def returned_in_s(ready_in: float, tries: int, *, prefetched: bool) -> float | None:
    """In how many seconds a pop that is no long poll, and has found nothing, tries again.

    Args:
        ready_in: seconds until something becomes ready, or until no worker delivers prefetched messages any more.
        tries: how often the pop has tried again for this reason.
        prefetched: whether messages were prefetched so short a time ago that a busy worker may not have released them.

    Returns:
        ``None`` if it does not try again.
    """
    if tries > len(_LATE_S):
        return None
    if ready_in <= PREFETCHED_S:
        return max(ready_in, 0)
    return _LATE_S[min(tries, len(_LATE_S) - 1)] if prefetched else None


class Prefetch:
    """The prefetched messages of a worker, and the pops after which it may prefetch.

    Args:
        leases: the memory for their leases, which the successor of this worker reads.
        new_lease: makes leases.
        now: a clock in seconds that goes on while the process is stopped; the loop's clock stands still within a turn.

    Attributes:
        taken, in_vain: the numbers of batches that pops took, and of those that were released.
        due_at: when ``due`` returns a batch, by ``now``; ``inf`` if there is none.
        fresh: the pops for which messages were prefetched and not yet handed out.
    """

    def __init__(
        self,
        leases: PrefetchedLeases | None = None,
        now: Callable[[], float] = time.monotonic,
        new_lease: Callable[[], UUID] = uuid4,
    ) -> None:
        self.now, self._new_lease = now, new_lease
        self._leases = PrefetchedLeases() if leases is None else leases
        self._served: OrderedDict[UUID, tuple[Pop, float]] = OrderedDict()
        #: By kind of pop, and all of them by lease; the oldest first.
        self._batches: dict[Hashable, deque[PrefetchedBatch]] = {}
        self._all: dict[UUID, PrefetchedBatch] = {}
        self._success: OrderedDict[Hashable, _Success] = OrderedDict()
        self.taken = self.in_vain = 0
        self.fresh: list[Pop] = []
        self.due_at = inf
        self.stopping = False

    def __len__(self) -> int:
        return len(self._all)

    def served(self, pop: Pop, popped: Popped, begun: float | None = None) -> None:
        """Notes that a pop was answered: after the acknowledgement of its messages, a similar pop may come.

        ``begun``: since when its partition has been prefetched; by default it was not.
        """
        if popped.lease is not None and kind_of(pop) is not None:
            self._served[popped.lease] = pop, self.now() if begun is None else begun
            if len(self._served) > _SERVED_MAX:
                self._served.popitem(last=False)

    def next_of(self, lease: UUID) -> NextLease | None:
        """The prefetch to request when all messages under a lease are acknowledged; ``None`` for no prefetch."""
        served = self._served.pop(lease, None)
        if served is None or self.stopping or self.now() - served[1] > CHAIN_S:
            return None
        pop, begun = served
        success = self._success.get(kind_of(pop))
        if success is not None and success.skips():
            return None
        following = NextLease(self._new_lease(), pop, begun)
        return following if self._leases.note(following.lease) else None

    def unfollow(self, leases: Iterable[UUID]) -> None:
        """Makes ``next_of`` return nothing for these leases."""
        for lease in leases:
            self._served.pop(lease, None)

    def forget(self, leases: Iterable[UUID]) -> None:
        """Removes leases from the shared memory: no messages are prefetched under them, or not any more."""
        for lease in leases:
            self._leases.strike(lease)

    def put(self, batch: PrefetchedBatch) -> None:
        """Keeps prefetched messages for a pop."""
        self._batches.setdefault(kind_of(batch.asked.pop), deque()).append(batch)
        self._all[batch.asked.lease] = batch
        self.fresh.append(batch.asked.pop)
        self._set_due_at()

    def take_fresh(self) -> list[Pop]:
        """The pops for which messages were prefetched since the last call."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def take(self, pop: Pop) -> Popped | None:
        """Removes and returns prefetched messages for a pop."""
        kind = kind_of(pop)
        batches = self._batches.get(kind)
        if not batches or batches[0].since + HOLD_S <= self.now():
            return None
        batch = batches[0]
        self._remove(batch)
        if (success := self._success.get(kind)) is not None:
            success.in_vain = 0
        self.taken += 1
        lease = batch.asked.lease
        self.forget([lease])
        popped = Popped(lease, [batch.claim])
        self.served(pop, popped, batch.asked.begun)
        return popped

    def due(self) -> list[PrefetchedBatch]:
        """Removes and returns the batches that no pop has taken in time."""
        return self._take_out(self.now())

    def _take_out(self, now: float) -> list[PrefetchedBatch]:
        late: list[PrefetchedBatch] = []
        while self._all and (oldest := next(iter(self._all.values()))).since + HOLD_S <= now:
            self._remove(oldest)
            late.append(oldest)
        for kind in {kind_of(batch.asked.pop) for batch in late}:
            self._missed(kind)
        self.in_vain += len(late)
        return late

    def _remove(self, batch: PrefetchedBatch) -> None:
        """Removes a batch, the oldest of its kind."""
        del self._all[batch.asked.lease]
        kind = kind_of(batch.asked.pop)
        self._batches[kind].popleft()
        if not self._batches[kind]:
            del self._batches[kind]
        self._set_due_at()

    def _set_due_at(self) -> None:
        self.due_at = next(iter(self._all.values())).since + HOLD_S if self._all else inf

    def drain(self) -> list[PrefetchedBatch]:
        """Removes and returns all batches, because the worker stops."""
        self.stopping = True
        return self._take_out(inf)

    def _missed(self, kind: Hashable) -> None:
        success = self._success.setdefault(kind, _Success())
        self._success.move_to_end(kind)
        if len(self._success) > _KINDS_MAX:
            self._success.popitem(last=False)
        success.missed()
