"""The administrative procedures, over a small pool of their own, so that they never delay messages."""

from uuid import UUID

from queen.core.administration import BegunWork, ConfiguredQueue, QueueConfiguration, Registered, Registration
from queen.core.errors import ConflictError, DataRejectedError
from queen.core.limits import CURSORS_STEP
from queen.core.placement import Move, ShardList
from queen.postgres.catalogue import CatalogueStore
from queen.postgres.consumer_groups import ConsumerGroupStore
from queen.postgres.dead_letters import DeadLetterStore
from queen.postgres.messages import MessageStore
from queen.postgres.moves import READ as READ_MOVES
from queen.postgres.pool import Pool
from queen.postgres.shard_list import READ as READ_SHARDS
from queen.postgres.shard_list import shards_of
from queen.postgres.statement import call
from queen.postgres.statistics import StatisticsStore
from queen.postgres.timers import TimerStore
from queen.postgres.traces import TraceStore

_CONFIGURE = call("configure_queue_v1", 21)
_SETTLE = call("settle_queue_v1", 2)
_BEGUN = "SELECT * FROM queen.find_begun_v1()"
_INSTALLATION = "SELECT value #>> '{}' AS id FROM queen.system_state WHERE key = 'installation'"
_PEER_SECRET = "SELECT value #>> '{}' AS secret FROM queen.system_state WHERE key = 'peer_secret'"  # noqa: S105 - a query
_SWITCHES = "SELECT * FROM queen.switches_v1()"
_SET_SWITCH = "SELECT queen.set_switch_v1($1, $2)"
_REGISTER = "SELECT * FROM queen.register_stream_v1($1, $2, $3, $4, $5, $6)"
_REGISTER_AS = "SELECT * FROM queen.register_stream_as_v1($1, $2, $3, $4, $5, $6, $7)"
_DELETE = call("delete_queue_v1", 2)
_PURGE = "SELECT queen.purge_partitions_v1($1) AS more"

#: PostgreSQL's code for a queue whose partitions have their places (sql/procedures/configure_queue.sql).
_PLACED = "QN008"
#: Maximum of partitions and cursors that one transaction of a deletion removes.
_DELETE_STEP = 5000
#: Maximum of rows of a stream's state that one transaction of a reset deletes.
_FORGET_STEP = 5000
#: Maximum of rows of deleted queues that one transaction removes.
PURGE_STEP = 5000


class AdministrationStore:
    """Implements ``queen.engine.administration.Administration``, with a store for each topic."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.catalogue = CatalogueStore(pool)
        self.messages = MessageStore(pool)
        self.dead_letters = DeadLetterStore(pool)
        self.consumer_groups = ConsumerGroupStore(pool)
        self.traces = TraceStore(pool)
        self.timers = TimerStore(pool)
        self.statistics = StatisticsStore(pool)

    async def installation(self) -> UUID:
        """The id of the database, by which a spool knows where its messages belong."""
        [row] = await self._pool.fetch(_INSTALLATION)
        return UUID(row["id"])

    async def peer_secret(self) -> str:
        """The secret of the instances of this database, where the settings have none."""
        [row] = await self._pool.fetch(_PEER_SECRET)
        return str(row["secret"])

    async def shards(self) -> ShardList | None:
        """The list of shards as this database has it; ``None``: it is used alone."""
        return shards_of(await self._pool.fetch(READ_SHARDS))

    async def moves(self, seq: int) -> list[Move]:
        """What has changed of moved partitions after a number."""
        return [Move(**row) for row in await self._pool.fetch(READ_MOVES, seq)]

    async def switches(self) -> dict[str, bool]:
        """The switches of the whole installation that were set."""
        return {row["key"]: row["enabled"] for row in await self._pool.fetch(_SWITCHES)}

    async def set_switch(self, key: str, enabled: bool) -> None:
        """Sets a switch of the whole installation."""
        await self._pool.fetch(_SET_SWITCH, key, enabled)

    async def configure_queue(self, configuration: QueueConfiguration) -> ConfiguredQueue:
        """Creates or replaces a queue; if it has many partitions, ``settle_queue`` must follow."""
        try:
            return await self._configure_queue(configuration)
        except DataRejectedError as problem:
            if problem.sqlstate != _PLACED:
                raise
            raise ConflictError(
                f"Queue {configuration.queue!r} exists and its partitions have their places: colocateWith cannot change"
            ) from problem

    async def _configure_queue(self, c: QueueConfiguration) -> ConfiguredQueue:
        [row] = await self._pool.fetch(
            _CONFIGURE, c.queue, c.namespace, c.task, c.priority, c.lease_time, c.retry_limit, c.retry_delay,
            c.delayed_processing, c.window_buffer, c.dead_letter_queue, c.dlq_after_max_retries,
            c.retention_enabled, c.retention_seconds, c.completed_retention_seconds, c.ttl, c.max_wait_time_seconds,
            c.max_size, c.encryption_enabled, CURSORS_STEP, c.sql_push, c.colocate_with,
        )  # fmt: skip
        return ConfiguredQueue(row["queue_id"], row["part_id"] or 0, row["more"])

    async def settle_queue(self, queue_id: int) -> tuple[int, bool]:
        """Applies new options to a page of partitions: the released cursors, and whether there are more pages."""
        [row] = await self._pool.fetch(_SETTLE, queue_id, CURSORS_STEP)
        return row["woken"], row["more"]

    async def begun(self) -> list[BegunWork]:
        """Work in pages that is not finished: options of queues, and deletions of groups."""
        return [BegunWork(*row) for row in await self._pool.fetch(_BEGUN)]

    async def delete_queue(self, queue: str) -> tuple[bool, bool]:
        """Deletes a page of a queue: whether it existed, and whether there is more to delete."""
        [row] = await self._pool.fetch(_DELETE, queue, _DELETE_STEP)
        return row["existed"], row["more"]

    async def purge_partitions(self) -> bool:
        """Removes a page of the data of deleted queues; whether there is more."""
        [row] = await self._pool.fetch(_PURGE, PURGE_STEP)
        return bool(row["more"])

    async def register_stream(self, registration: Registration, number: int | None = None) -> Registered:
        """Creates or finds a stream; a reset deletes a page of its state. ``number``: given by another database."""
        r = registration
        query, given = (_REGISTER, ()) if number is None else (_REGISTER_AS, (number,))
        [row] = await self._pool.fetch(
            query, *given, r.name, r.source_queue, r.sink_queue, r.config_hash, r.reset, _FORGET_STEP
        )
        return Registered(*row)
