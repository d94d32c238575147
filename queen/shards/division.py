"""How requests are divided among shards, and how the answers of their parts become one. Pure, but for the look-up.

What spans databases is all or none on each of them, not together. A transaction must not be divided, so it is refused.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, structs

from queen.core.errors import CapacityError, ConflictError, PartlyStoredError
from queen.core.job_type import JobType
from queen.core.placement import slot_of_lease, slot_of_queue
from queen.log import ids
from queen.log.requests import (
    Ack,
    Acked,
    AckItem,
    AckResult,
    Buffered,
    Cycle,
    CycleResult,
    PartitionBatch,
    PartlyBuffered,
    Pop,
    Push,
    Pushed,
    Renewed,
    RenewLease,
    Stored,
    TimerChange,
    TimerVerdict,
    Transaction,
)
from queen.shards.homes import Homes, Key

#: The shard that answers for numbers that no shard has given.
FIRST = 0
_ABSENT = "absent"


class Divided(Protocol):
    """A request in parts.

    Attributes:
        requests: the part of each shard, by its slot.
    """

    @property
    def requests(self) -> Mapping[int, Any]: ...  # noqa: D102

    def join(self, results: Mapping[int, Any]) -> Any:  # noqa: ANN401 - any operation's
        """The result from those of the parts, which may be exceptions."""


class Division(Protocol):
    """How requests of a kind are divided."""

    def slots(self, request: Any) -> Sequence[int] | None:  # noqa: ANN401 - any operation
        """The shards that it concerns, if they are known; ``None``: ``divide`` finds them."""

    def partitions(self, request: Any) -> Iterable[Key]:  # noqa: ANN401
        """The partitions that it names."""

    async def divide(self, request: Any) -> Divided | None:  # noqa: ANN401
        """The parts; ``None``: any shard may answer."""


class Whole(Struct, frozen=True):
    """A request for one shard."""

    slot: int
    request: Any

    @property
    def requests(self) -> Mapping[int, Any]:  # noqa: D102
        return {self.slot: self.request}

    def join(self, results: Mapping[int, Any]) -> Any:  # noqa: ANN401, D102
        return unwrap(results[self.slot])


def unwrap(result: Any) -> Any:  # noqa: ANN401 - any result
    """A result; raises it if it is an exception."""
    if isinstance(result, BaseException):
        raise result
    return result


class Refused(Struct, frozen=True):
    """A request that no shard gets."""

    result: Any

    @property
    def requests(self) -> Mapping[int, Any]:  # noqa: D102
        return {}

    def join(self, _results: Mapping[int, Any]) -> Any:  # noqa: ANN401, D102
        return self.result


def _places(slots: Sequence[int]) -> dict[int, list[int]]:
    """The indexes of elements by their shard."""
    places: dict[int, list[int]] = {}
    for index, slot in enumerate(slots):
        places.setdefault(slot, []).append(index)
    return places


def _gathered(places: Mapping[int, Sequence[int]], results: Mapping[int, Sequence[Any]]) -> list[Any]:
    """The elements of all parts in their order."""
    found = [(index, each) for slot in places for index, each in zip(places[slot], results[slot], strict=True)]
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


# ---------------------------------------------------------------- push


def keys_of(batches: Iterable[PartitionBatch]) -> list[Key]:
    """The partitions of batches."""
    return [(batch.queue, batch.partition) for batch in batches]


class DividedPush(Struct, frozen=True):
    """A push to partitions of several shards: all or none on each of them (G-SHARD-2)."""

    push: Push
    places: Mapping[int, Sequence[int]]

    @property
    def requests(self) -> Mapping[int, Push]:  # noqa: D102
        parts = {slot: [self.push.batches[index] for index in places] for slot, places in self.places.items()}
        return {slot: Push(batches, sum([len(b.places) for b in batches])) for slot, batches in parts.items()}

    def join(self, results: Mapping[int, Any]) -> Pushed | Buffered | PartlyBuffered:  # noqa: D102
        _all_or_error(list(results.values()))
        if all(isinstance(each, Buffered) for each in results.values()):
            return Buffered()
        if all(isinstance(each, Pushed) for each in results.values()):
            return Pushed(_gathered(self.places, {slot: each.stored for slot, each in results.items()}))
        stored: dict[int, Sequence[Stored | Buffered]] = {
            slot: [each] * len(self.places[slot]) if isinstance(each, Buffered) else each.stored
            for slot, each in results.items()
        }
        return PartlyBuffered(_gathered(self.places, stored))


def _all_or_error(results: Sequence[Any]) -> None:
    """Raises an error if a part of a push has failed."""
    failed = [each for each in results if isinstance(each, BaseException)]
    if len(failed) == len(results):
        raise failed[0]
    if failed:
        why = f" ({failed[0]})" if isinstance(failed[0], CapacityError) else ""
        raise PartlyStoredError(
            f"The push was stored in some of its databases only{why}. Repeat it with the same transaction ids"
        ) from failed[0]


class PushDivision:
    """Pushes go to the shards of their partitions."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes

    def slots(self, request: Push) -> list[int] | None:  # noqa: D102
        return self._homes.known_of(keys_of(request.batches))

    def partitions(self, request: Push) -> list[Key]:  # noqa: D102
        return keys_of(request.batches)

    async def divide(self, request: Push) -> DividedPush:  # noqa: D102
        keys = keys_of(request.batches)
        found = await self._homes.find(keys, behind_spools=True)
        return DividedPush(request, _places([found[key] for key in keys]))


# ---------------------------------------------------------------- pop


class PopDivision:
    """A pop of one partition goes to its shard; others may be answered by any shard."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes

    def slots(self, request: Pop) -> list[int] | None:  # noqa: D102
        if request.partition is None:
            return None
        slot = self._homes.trusted((request.queue, request.partition))
        return None if slot is None else [slot]

    def partitions(self, request: Pop) -> list[Key]:  # noqa: D102
        return [] if request.partition is None else [(request.queue, request.partition)]

    async def divide(self, request: Pop) -> Whole | None:  # noqa: D102
        keys = self.partitions(request)
        if not keys:
            return None
        return Whole((await self._homes.find(keys))[keys[0]], request)


# ---------------------------------------------------------------- ack


class DividedAck(Struct, frozen=True):
    """Acks of messages of several shards; they are independent anyway."""

    ack: Ack
    places: Mapping[int, Sequence[int]]

    @property
    def requests(self) -> Mapping[int, Ack]:  # noqa: D102
        items = self.ack.items
        return {
            slot: structs.replace(self.ack, items=[items[i] for i in places]) for slot, places in self.places.items()
        }

    def join(self, results: Mapping[int, Any]) -> Acked:  # noqa: D102
        failed = [each for each in results.values() if isinstance(each, BaseException)]
        if len(failed) == len(results):
            raise failed[0]
        # What one shard has answered stands; the others' acks have failed, each with the reason.
        answered: dict[int, Sequence[AckResult]] = {
            slot: [AckResult(str(each))] * len(self.places[slot]) if isinstance(each, BaseException) else each.results
            for slot, each in results.items()
        }
        return Acked(_gathered(self.places, answered))


class AckDivision:
    """Acks go to the shards that the ids of their partitions name, or to which these were moved."""

    def __init__(self, homes: Homes, engines: Container[int]) -> None:
        self._homes, self._engines = homes, engines

    def slot(self, item: AckItem) -> int:
        """The shard of a message."""
        number = ids.parse_partition_id(item.partition_id)
        slot = FIRST if number is None else self._homes.moves.slot(number)
        return slot if slot in self._engines else FIRST

    def slots(self, request: Ack) -> list[int]:  # noqa: D102
        return [self.slot(item) for item in request.items]

    def partitions(self, _request: Ack) -> list[Key]:  # noqa: D102
        return []

    async def divide(self, request: Ack) -> DividedAck:  # noqa: D102
        return DividedAck(request, _places(self.slots(request)))


# ---------------------------------------------------------------- leases


class DividedRenewal(Struct, frozen=True):
    """A lease that does not say where it is, because SQL made it or there was one database: all shards are asked.

    One that says so is on other shards, too, if partitions of it were moved.
    """

    request: RenewLease
    slots: Sequence[int]

    @property
    def requests(self) -> Mapping[int, RenewLease]:  # noqa: D102
        return dict.fromkeys(self.slots, self.request)

    def join(self, results: Mapping[int, Any]) -> Renewed:  # noqa: D102
        renewed = [each for each in results.values() if isinstance(each, Renewed) and each.cursors]
        if renewed:
            ends = [each.expires_at for each in renewed if each.expires_at is not None]
            return Renewed(sum([each.cursors for each in renewed]), min(ends, default=None))
        failed = [each for each in results.values() if isinstance(each, BaseException)]
        if failed:
            raise failed[0]
        return Renewed(0, None)


class RenewalDivision:
    """Renewals go to the shard of the lease."""

    def __init__(self, homes: Homes, slots: Collection[int]) -> None:
        self._homes, self._slots = homes, slots

    def slots(self, request: RenewLease) -> list[int] | None:  # noqa: D102
        slot = slot_of_lease(request.lease)
        return None if slot is None or slot not in self._slots or self._homes.moves.places else [slot]

    def partitions(self, _request: RenewLease) -> list[Key]:  # noqa: D102
        return []

    async def divide(self, request: RenewLease) -> DividedRenewal:  # noqa: D102
        slot, moves = slot_of_lease(request.lease), self._homes.moves
        if slot is None or slot not in self._slots or moves.active:
            return DividedRenewal(request, self._homes.available() or list(self._slots))
        return DividedRenewal(request, sorted({slot, *(place for place in moves.places if place in self._slots)}))


# ---------------------------------------------------------------- transaction, cycle


class TransactionDivision:
    """A transaction belongs to one shard, or is refused."""

    def __init__(self, homes: Homes, acks: AckDivision) -> None:
        self._homes, self._acks = homes, acks

    def slots(self, request: Transaction) -> list[int] | None:  # noqa: D102
        if request.timers and self._homes.moves.active:
            return None
        pushed = self._homes.known_of(self.partitions(request))
        return None if pushed is None else [*pushed, *map(self._acks.slot, request.acks)]

    def partitions(self, request: Transaction) -> list[Key]:  # noqa: D102
        return [*keys_of(request.push.batches), *_of_timers(request.timers)]

    async def divide(self, request: Transaction) -> Whole:  # noqa: D102
        self._homes.moves.check_partitions(_of_timers(request.timers))
        found = await self._homes.find(self.partitions(request))
        slots = {*found.values(), *map(self._acks.slot, request.acks)}
        if len(slots) > 1:
            raise ConflictError(spans("transaction", self._homes, slots))
        return Whole(next(iter(slots), FIRST), request)


class CycleDivision:
    """A cycle belongs to the shard of its source partition, or is refused."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes

    def slots(self, request: Cycle) -> list[int] | None:  # noqa: D102
        pushed = self._homes.known_of(self.partitions(request))
        return None if pushed is None else [self._homes.moves.slot(request.part_id), *pushed]

    def partitions(self, request: Cycle) -> list[Key]:  # noqa: D102
        return keys_of(request.push.batches)

    async def divide(self, request: Cycle) -> Whole | Refused:  # noqa: D102
        found = await self._homes.find(self.partitions(request))
        slots = {self._homes.moves.slot(request.part_id), *found.values()}
        if len(slots) > 1:
            return Refused(CycleResult(spans("cycle", self._homes, slots)))
        return Whole(slots.pop(), request)


def spans(what: str, homes: Homes, slots: Iterable[int]) -> str:
    """The sentence for a request that would have to be atomic over several databases."""
    names = " and ".join(sorted(shard.name for shard in homes.shards.shards if shard.slot in slots))
    return (
        f"The {what} concerns partitions on several databases ({names}), which share no transaction. Push to a "
        "partition on the database of the messages that it acknowledges: `partition@database` names one"
    )


# ---------------------------------------------------------------- timers


def _of_timers(changes: Iterable[TimerChange]) -> list[Key]:
    return [(change.queue, change.partition) for change in changes if change.op == "schedule"]


class DividedTimers(Struct, frozen=True):
    """Timers are on the shards of their partitions; what names only a key goes to all, and one of them has it."""

    places: Mapping[int, Sequence[int]]
    changes: Sequence[TimerChange]

    @property
    def requests(self) -> Mapping[int, Sequence[TimerChange]]:  # noqa: D102
        return {slot: [self.changes[index] for index in places] for slot, places in self.places.items()}

    def join(self, results: Mapping[int, Any]) -> list[TimerVerdict]:  # noqa: D102
        verdicts: list[TimerVerdict | None] = [None] * len(self.changes)
        for slot, places in self.places.items():
            for index, verdict in zip(places, unwrap(results[slot]), strict=True):
                before = verdicts[index]
                if before is None or before.status == _ABSENT:
                    verdicts[index] = verdict
        return [verdict for verdict in verdicts if verdict is not None]


class TimerDivision:
    """New timers go to the shards of their partitions, other changes to all shards."""

    def __init__(self, homes: Homes, slots: Collection[int]) -> None:
        self._homes, self._all = homes, slots

    def slots(self, _request: Sequence[TimerChange]) -> None:  # noqa: D102
        return None

    def partitions(self, request: Sequence[TimerChange]) -> list[Key]:  # noqa: D102
        return _of_timers(request)

    async def divide(self, request: Sequence[TimerChange]) -> DividedTimers:  # noqa: D102
        self._homes.moves.check_partitions(self.partitions(request))
        found = await self._homes.find(self.partitions(request))
        places: dict[int, list[int]] = {}
        for index, change in enumerate(request):
            home = found.get((change.queue, change.partition)) if change.op == "schedule" else None
            for slot in self._all if home is None else (home,):
                places.setdefault(slot, []).append(index)
        return DividedTimers(places, request)


class SimpleMqDivision:
    """A queue of simple-mq or SQS is on the shard that its number names."""

    def __init__(self, engines: Container[int]) -> None:
        self._engines = engines

    def slots(self, request: Any) -> list[int]:  # noqa: ANN401, D102
        slot = slot_of_queue(getattr(request, "queue_id", None) or request.queue)
        return [slot if slot in self._engines else FIRST]

    def partitions(self, _request: Any) -> list[Key]:  # noqa: ANN401, D102
        return []

    async def divide(self, request: Any) -> Whole:  # noqa: ANN401, D102
        return Whole(self.slots(request)[0], request)


def divisions(homes: Homes, slots: Collection[int]) -> Mapping[JobType, Division]:
    """How each kind of job is divided; ``slots`` are those of the shards, to which others may be added."""
    acks = AckDivision(homes, slots)
    found: dict[JobType, Division] = {
        JobType.PUSH: PushDivision(homes),
        JobType.POP: PopDivision(homes),
        JobType.ACK: acks,
        JobType.RENEW_LEASE: RenewalDivision(homes, slots),
        JobType.TRANSACTION: TransactionDivision(homes, acks),
        JobType.CYCLE: CycleDivision(homes),
        JobType.TIMER: TimerDivision(homes, slots),
    }
    simple_mq = SimpleMqDivision(slots)
    return {kind: found.get(kind, simple_mq) for kind in JobType}
