"""What becomes of acks and renewals of leases while their partition moves to another database: they follow it."""

from typing import Any

from msgspec import structs

from queen.core.job_type import JobType
from queen.engine.handlers.ack import MESSAGE_NOT_FOUND
from queen.log import ids
from queen.log.requests import Ack, Acked
from queen.shards.moves import Moves


class Following:
    """One request, which is repeated where the database that it was sent to does not know its partition any more.

    Args:
        moves: where partitions are.
        kind: an ack, or the renewal of a lease.
        request: as it was sent.
    """

    def __init__(self, moves: Moves, kind: JobType, request: Any) -> None:  # noqa: ANN401 - one of two
        self._moves, self._kind, self._request = moves, kind, request
        self._numbers: list[int] = []
        self._asked = [self._slot(item) for item in request.items] if kind is JobType.ACK else []
        self._changes = moves.changes
        self._sealed: frozenset[int] | None = None

    def _slot(self, item: Any) -> int | None:  # noqa: ANN401 - an item of an ack
        number = ids.parse_partition_id(item.partition_id)
        return None if number is None else self._moves.slot(number)

    def rest(self, result: Any) -> Any:  # noqa: ANN401
        """What of the request is to be sent again; ``None``: nothing."""
        return self._rest_of_ack(result) if self._kind is JobType.ACK else self._rest_of_renewal()

    def _rest_of_ack(self, result: Acked) -> Ack | None:
        self._numbers = []
        for number, (item, answer) in enumerate(zip(self._request.items, result.results, strict=True)):
            if answer.problem != MESSAGE_NOT_FOUND or (part_id := ids.parse_partition_id(item.partition_id)) is None:
                continue
            slot, sealed = self._moves.slot(part_id), self._moves.is_sealed(part_id)
            if sealed or slot != self._asked[number]:
                self._numbers.append(number)
                self._asked[number] = slot
        if not self._numbers:
            return None
        request: Ack = self._request
        return structs.replace(request, items=[request.items[number] for number in self._numbers])

    def _rest_of_renewal(self) -> Any:  # noqa: ANN401
        """Partitions under the lease may have been on their way: it is renewed again until all of them are there."""
        if self._sealed is None:
            self._sealed = self._moves.sealed
            return self._request if self._sealed or self._moves.changes != self._changes else None
        if not self._sealed:
            return None
        self._sealed &= self._moves.sealed
        return self._request

    def joined(self, result: Any, again: Any) -> Any:  # noqa: ANN401
        """The result, with that of the repetition."""
        if self._kind is not JobType.ACK:
            return again
        results = list(result.results)
        for number, answer in zip(self._numbers, again.results, strict=True):
            results[number] = answer
        return Acked(results)
