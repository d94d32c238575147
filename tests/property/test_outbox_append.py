"""Messages of a deleted queue are not for a queue that has its name now."""

from collections.abc import Sequence
from typing import Any

from queen.engine.context import Context, ignore_notification
from queen.engine.metadata_cache import MetadataCache
from queen.engine.outbox_append import append, push_of
from queen.engine.ports import Moved, OutboxPartition, PartitionName, PushOptions
from queen.log.append import AppendBatch
from spec.guarantees import Level, checks


class Database:
    """The queue ``q`` has number 2, and its partition ``p`` number 5."""

    async def read_push_options(self) -> PushOptions:
        return PushOptions(1, frozenset(), {})

    async def resolve_partitions(self, names: Sequence[tuple[str, str]], *, create: bool) -> list[tuple[int, int]]:
        assert create
        return [(2, 5) for _ in names]

    async def describe_partitions(self, part_ids: Sequence[int]) -> list[PartitionName]:
        return [PartitionName(part_id, 2, "q", "p") for part_id in part_ids]


@checks("G-OUT-1", level=Level.MODEL)
async def test_messages_of_a_deleted_queue_are_not_appended_to_its_successor() -> None:
    """Its options may be others: it may not encrypt."""
    moves: list[AppendBatch] = []

    async def move(batch: AppendBatch) -> Moved:
        moves.append(batch)
        return Moved(True, (), False)

    database: Any = Database()
    context = Context(database, database, MetadataCache(database, 100), ignore_notification, retry_timeout_s=1)
    push = push_of([OutboxPartition(1, "q", "p", [None], [None], [b"1"])])
    assert not await append(context, push, {"q": 1}, move)
    assert moves == []
    assert await append(context, push, {"q": 2}, move)
    assert len(moves) == 1
