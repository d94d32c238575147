"""The counters of a worker, by queue and minute: some additions per batch, and no query.

``queen.engine.statistics_writer`` adds the counts to the statistics in the database from time to time.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from queen.core.job_type import JobType
from queen.core.metrics import Counted, QueueCounts
from queen.log.requests import Acked, AckResult, Pop, Popped, Push, Pushed, Transaction, TransactionResult

#: The most pairs of queue and minute between two reports; more are counted without a name.
_QUEUES_MAX = 10_000


class QueueCounters:
    """The counts of one worker that are not written yet, and its totals since the start.

    Args:
        clock: seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._counts: dict[tuple[int, str], QueueCounts] = {}
        self._started_at = clock()
        #: The maximum of long polls by queue in a minute: lower values need no update, which matters with many queues.
        self._parked_minute = 0
        self._parked: dict[str, int] = {}
        self.requests = 0
        self.messages = 0
        self.db_errors = 0

    def batch(self, kind: JobType, requests: Sequence[Any], results: Sequence[Any]) -> None:
        """Counts the results of a call. Pops are counted when they are answered."""
        self.requests += len(requests)
        minute = self.minute
        if kind is JobType.PUSH:
            for request, result in zip(requests, results, strict=True):
                # Spooled messages are counted when the replay stores them.
                if isinstance(result, Pushed):
                    self._push(minute, request, result)
        elif kind is JobType.ACK:
            for result in results:
                # Others have an unknown outcome.
                if isinstance(result, Acked):
                    self._ack(minute, result)
        elif kind is JobType.TRANSACTION:
            for request, result in zip(requests, results, strict=True):
                # Others were refused because they would have overtaken the spool.
                if isinstance(result, TransactionResult):
                    self._transaction(minute, request, result)

    def pop(self, request: Pop, popped: Popped) -> None:
        """Counts a pop that is answered, with messages or without."""
        minute, now = self.minute, self._clock()
        if not popped.claims:
            counts = self._of(minute, request.queue)
            counts.pop_requests += 1
            counts.pop_empty += 1
            return
        self._of(minute, popped.claims[0].queue).pop_requests += 1
        for claim in popped.claims:
            counts = self._of(minute, claim.queue)
            number = -len(claim.skip)
            for piece in claim.slices:
                messages = len(piece.ends) // 4
                lag_ms = max(now - piece.created_at.timestamp(), 0.0) * 1000
                counts.lag_ms_sum += lag_ms * messages
                counts.lag_ms_max = max(counts.lag_ms_max, lag_ms)
                number += messages
            counts.pop_messages += number
            self.messages += number

    def parked(self, queue: str, waiting: int) -> None:
        """Counts the long polls of a queue that wait now; of each minute the maximum is kept."""
        minute = self.minute
        if minute != self._parked_minute:
            self._parked_minute, self._parked = minute, {}
        if waiting > self._parked.get(queue, 0):
            self._parked[queue] = waiting
            counts = self._of(minute, queue)
            counts.parked = max(counts.parked, waiting)

    def take(self) -> list[Counted]:
        """Removes and returns the counts that are not written yet."""
        counts, self._counts = self._counts, {}
        return [Counted(minute, queue, each) for (minute, queue), each in counts.items()]

    def give_back(self, counted: Sequence[Counted]) -> None:
        """Adds counts again that could not be written."""
        for each in counted:
            self._of(each.minute, each.queue).add(each.counts)

    @property
    def age_s(self) -> float:
        """Seconds since the start of the worker."""
        return self._clock() - self._started_at

    @property
    def minute(self) -> int:
        """The current minute since 1970."""
        return int(self._clock()) // 60

    def _of(self, minute: int, queue: str) -> QueueCounts:
        counts = self._counts.get((minute, queue))
        if counts is None:
            # Pops of random queue names must not fill the memory: counts above the limit get an empty name.
            key = (minute, queue) if len(self._counts) < _QUEUES_MAX else (minute, "")
            counts = self._counts.setdefault(key, QueueCounts())
        return counts

    def _push(self, minute: int, request: Push, result: Pushed) -> None:
        for batch, stored in zip(request.batches, result.stored, strict=True):
            counts = self._of(minute, batch.queue)
            number = len(batch.places) - len(stored.duplicates) - len(stored.refused)
            counts.push_requests += 1
            counts.push_messages += number
            self.messages += number

    def _ack(self, minute: int, result: Acked) -> None:
        queues = {each.queue for each in result.results if each.queue is not None}
        for queue in queues:
            counts = self._of(minute, queue)
            counts.ack_requests += 1
            own = result.results if len(queues) == 1 else [each for each in result.results if each.queue == queue]
            self._count_acks(counts, own)

    def _count_acks(self, counts: QueueCounts, results: Sequence[AckResult]) -> None:
        refused = sum([each.problem is not None for each in results])
        counts.ack_success += len(results) - refused
        counts.ack_failed += refused
        counts.dead_letters += sum([each.dead for each in results])

    def _transaction(self, minute: int, request: Transaction, result: TransactionResult) -> None:
        queues = {batch.queue for batch in request.push.batches} | {each.queue for each in result.acked if each.queue}
        for queue in queues:
            self._of(minute, queue).transactions += 1
        if not result.undone:
            self._push(minute, request.push, result.pushed)
            self._ack(minute, Acked(result.acked))
