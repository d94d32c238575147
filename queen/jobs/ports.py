"""The protocol of the database for background jobs; ``queen.postgres.maintenance`` implements it."""

from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import Protocol
from uuid import UUID

from msgspec import Struct


class State(Enum):
    """What a call left in a partition: nothing, more work, or rows that others had locked."""

    DONE = "done"
    MORE = "more"
    BUSY = "busy"


class Page(Struct, frozen=True):
    """Partitions of a queue with work; ``last_name`` is where the next page starts, ``None`` at the end."""

    last_name: str | None
    part_ids: Sequence[int]


class Place(Struct, frozen=True):
    """A partition, and the offset up to which it is known to be empty."""

    part_id: int
    empty_upto: int = -1


class Step(Struct, frozen=True):
    """The result of one call in one partition; ``count`` in messages, for the clean-up in partitions."""

    place: Place
    count: int
    state: State


class ClockStep(Struct, frozen=True):
    """A check of PostgreSQL's clock.

    Attributes:
        seconds: size of its step since the previous check, negative for a step back; 0 if there was none.
        repairs: whether times that are now in the future have to be repaired.
    """

    seconds: float
    repairs: bool


class Maintenance(Protocol):
    """The procedures of the background jobs: see ``sql/procedures``. Errors as in ``queen.engine.ports.Database``."""

    async def lead(self, holder: UUID, seconds: float) -> bool: ...
    async def resign(self, holder: UUID) -> None: ...
    async def look_at_clock(self, holder: UUID) -> ClockStep: ...
    async def repair_times(self) -> bool: ...
    async def find_queues(self, service: str) -> list[int]: ...
    async def find_expired(self, queue_id: int, after: str, limit: int) -> Page: ...
    async def remove_expired(self, queue_id: int, places: Sequence[Place], messages: int, wait: bool) -> list[Step]: ...
    async def find_overdue(self, queue_id: int, after: str, limit: int) -> Page: ...
    async def evict_overdue(self, queue_id: int, places: Sequence[Place], messages: int, wait: bool) -> list[Step]: ...
    async def find_idle(self, queue_id: int, after: str, limit: int, idle: timedelta) -> Page: ...
    async def remove_idle(self, queue_id: int, places: Sequence[Place], idle: timedelta) -> list[Step]: ...
    async def purge_partitions(self) -> bool: ...
    async def count_backlog(self) -> bool: ...
    async def forget_fenced_flushes(self) -> None: ...
