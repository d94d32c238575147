"""Where partitions are that were moved (ADR 69), as this worker knows it.

A partition keeps its number, which names the database that made it. So a worker knows those that are elsewhere. It
reads what has changed each second, and a move begins only when all workers know of it.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from queen.core.errors import DatabaseUnavailableError, QueenError
from queen.core.placement import Move, slot_of
from queen.engine.context import Context

#: How long after the last change requests are still looked at as during a move, in seconds.
_CALM_S = 10.0
#: How often a request is tried again because its partition turned out to be on another shard, or on its way, and the
#: pause before, in seconds: longer together than a change of the list takes.
ATTEMPTS, PAUSE_S = 30, 0.25


def moving() -> DatabaseUnavailableError:
    """The error of a request whose partition is on its way."""
    return DatabaseUnavailableError("The partition is being moved to another database (queen shards move): try again")


class Moves:
    """Moved partitions.

    Args:
        contexts: what asks each shard, by its slot; shards may be added to it.
        clock: monotonic, in seconds.
    """

    def __init__(self, contexts: Mapping[int, Context], clock: Callable[[], float] = time.monotonic) -> None:
        self._contexts, self._clock = contexts, clock
        self._here: dict[int, int] = {}
        #: Those that are to be moved, or are on their way.
        self._going: dict[int, Move] = {}
        #: What was read of each shard.
        self._seq: dict[int, int] = {}
        self._calm_at = -1.0
        #: Grows with each change.
        self.changes = 0
        self._reading = asyncio.Lock()

    @property
    def active(self) -> bool:
        """Whether partitions are being moved, or were a moment ago."""
        return bool(self._going) or self._clock() < self._calm_at

    @property
    def places(self) -> frozenset[int]:
        """The shards to which partitions were moved."""
        return frozenset(self._here.values())

    def slot(self, part_id: int) -> int:
        """The slot of the shard of a partition."""
        return self._here.get(part_id, slot_of(part_id)) if self._here else slot_of(part_id)

    def is_sealed(self, part_id: int) -> bool:
        """Whether a partition is on its way, and no database serves it."""
        move = self._going.get(part_id)
        return move is not None and move.state == "sealed"

    @property
    def sealed(self) -> frozenset[int]:
        """The partitions that are on their way."""
        return frozenset([part_id for part_id, move in self._going.items() if move.state == "sealed"])

    def check(self, queue: str | None) -> None:
        """Raises DatabaseUnavailableError if partitions of a queue (``None``: of any) are being moved."""
        if any(queue in (None, move.queue) for move in self._going.values()):
            raise DatabaseUnavailableError(
                "Partitions are being moved to other databases (queen shards move), so nothing that concerns all "
                "partitions of a queue is changed: try again"
            )

    def check_partitions(self, keys: Collection[tuple[str, str]]) -> None:
        """Raises DatabaseUnavailableError if one of these partitions is being moved: a timer could stay behind."""
        if any((move.queue, move.partition) in keys for move in self._going.values()):
            raise moving()

    async def refresh(self) -> list[Move]:
        """Reads what has changed; returns the partitions that have come to another shard.

        It reads until nothing new is found: what has gone from one shard has come to another one before.
        """
        come: list[Move] = []
        async with self._reading:
            while rows := await self._read():
                self._calm_at, self.changes = self._clock() + _CALM_S, self.changes + len(rows)
                come += [move for slot, move in rows if self._take(slot, move)]
        return come

    async def _read(self) -> list[tuple[int, Move]]:
        slots = [slot for slot, context in self._contexts.items() if not context.unavailable]
        parts = await asyncio.gather(*[self._read_one(slot) for slot in slots])
        return [(slot, move) for slot, part in zip(slots, parts, strict=True) for move in part]

    async def _read_one(self, slot: int) -> Sequence[Move]:
        try:
            moves = await self._contexts[slot].administration.moves(self._seq.get(slot, -1))
        except QueenError:
            return []
        if moves:
            self._seq[slot] = moves[-1].seq
        return moves

    def _take(self, slot: int, move: Move) -> bool:
        """Notes a change on a shard; says whether a partition has come there."""
        if move.state == "here":
            self._here[move.part_id] = slot
            self._going.pop(move.part_id, None)
            return True
        if move.state == "gone":
            self._going.pop(move.part_id, None)
        elif move.state == "sealed":
            if self._here.get(move.part_id) != move.slot:
                self._going[move.part_id] = move
        elif not self.is_sealed(move.part_id):
            self._going[move.part_id] = move
        return False
