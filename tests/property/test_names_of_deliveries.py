"""Names of partitions that a pop has delivered from: nothing is left out, and a failed look-up is no failed pop."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from queen.core.errors import DatabaseUnavailableError, OutcomeUnknownError
from queen.engine.context import Context, ignore_notification
from queen.engine.handlers.pop import Outcome, pop
from queen.engine.metadata_cache import MetadataCache
from queen.engine.ports import Delivered, PartitionName, PopColumns, Subscription, Unserved
from queen.log.requests import Pop, Slice
from spec.guarantees import Level, checks

NOW = datetime(2026, 11, 26, tzinfo=UTC)
PARTS = [1, 2, 3]
AUTO = Pop("q", partitions=3, batch=3, auto_ack=True)
Pops = tuple[list[Delivered], list[Unserved]]


class Database:
    """Delivers a message of each partition to the first pop; ``describing`` runs before names are told."""

    def __init__(self, describing: Callable[[], None] = lambda: None) -> None:
        self._describing = describing
        self.pops: list[PopColumns] = []

    async def pop(self, columns: PopColumns) -> Pops:
        self.pops.append(columns)
        return [Delivered(1, 7, part, 0, None, -1, 1, Slice(0, NOW, b"\0\0\0\3", 0, b"[1]")) for part in PARTS], []

    async def describe_partitions(self, part_ids: Sequence[int]) -> list[PartitionName]:
        self._describing()
        return [PartitionName(part, 1, "q", f"p{part}") for part in part_ids]

    async def subscribe(self, *_: Any, **__: Any) -> Subscription:
        return Subscription(1, 7, True, None)


def context_of(database: Any, limit: int = 100) -> Context:
    return Context(database, database, MetadataCache(database, limit), ignore_notification, retry_timeout_s=1)


async def delivered(context: Context, request: Pop) -> list[str]:
    [outcome] = await pop(context, [request])
    assert isinstance(outcome, Outcome)
    return [claim.partition for claim in outcome.popped.claims]


@checks("G-GRP-1", level=Level.MODEL)
async def test_a_queue_that_is_configured_during_a_pop_costs_no_message() -> None:
    """The notification makes the worker forget its partitions while it looks up another one."""
    database = Database(lambda: context.cache.forget_queue("q"))
    context = context_of(database)
    await context.cache.names([1])
    assert await delivered(context, AUTO) == ["p1", "p2", "p3"]


@checks("G-GRP-1", level=Level.MODEL)
async def test_a_pop_of_more_partitions_than_the_cache_holds_gets_them_all() -> None:
    assert await delivered(context_of(Database(), limit=2), AUTO) == ["p1", "p2", "p3"]


@checks("G-GRP-1", level=Level.MODEL)
@pytest.mark.parametrize("auto_ack", [True, False])
def test_a_pop_whose_names_cannot_be_looked_up_is_not_taken_for_one_that_did_nothing(auto_ack: bool) -> None:
    """With autoAck its outcome is unknown; a lease is released."""

    def fail() -> None:
        raise DatabaseUnavailableError("down")

    database = Database(fail)
    context = context_of(database)
    context.failover = Down()  # type: ignore[assignment]
    request = Pop("q", partitions=3, batch=3, auto_ack=auto_ack, wait_ms=1)
    if auto_ack:
        [outcome] = asyncio.run(pop(context, [request]))
        assert isinstance(outcome, OutcomeUnknownError)
    else:
        with pytest.raises(OutcomeUnknownError):
            asyncio.run(pop(context, [request]))
        assert context.orphans
    assert len(database.pops) == 1


class Down:
    """PostgreSQL is known to be down."""

    unavailable = True
