"""A table with one row per message, in a schema of its own, to compare Queen's procedures with."""

import itertools
import json
import time
from collections.abc import Sequence
from importlib.resources import files
from uuid import UUID, uuid4

from bench import database
from bench.messages import Call, Message
from queen.postgres.pool import Pool

_SCHEMA = "queen_bench_rows"
_SCRIPT = files(__package__) / "rows.sql"
_LEASE_S = 60

_MAKE = f"""
    WITH made AS (
        INSERT INTO {_SCHEMA}.partitions (queue, number) SELECT $1, generate_series(0, $2 - 1) RETURNING id, number
    ), head AS (
        INSERT INTO {_SCHEMA}.partition_lookup (partition_id, queue) SELECT id, $1 FROM made
    )
    SELECT id FROM made ORDER BY number"""
_SUBSCRIBE = f"""
    INSERT INTO {_SCHEMA}.partition_consumers (partition_id, consumer_group)
    SELECT id, $2 FROM {_SCHEMA}.partitions WHERE queue = $1"""
_SKIP = f"""
    UPDATE {_SCHEMA}.partition_consumers AS c SET consumed_at = l.last_at, consumed_id = l.last_id
    FROM {_SCHEMA}.partition_lookup AS l
    WHERE l.queue = $1 AND c.partition_id = l.partition_id AND c.consumer_group = $2"""
_PUSH = f"SELECT {_SCHEMA}.push($1)"
_POP = f"SELECT * FROM {_SCHEMA}.pop($1, $2, $3, $4, {_LEASE_S})"
_ACK = f"SELECT {_SCHEMA}.ack($1, $2, $3, $4)"
_POP_JSON = f"SELECT {_SCHEMA}.pop_json($1, $2, $3, $4, {_LEASE_S}) AS messages"
_ACK_JSON = f"SELECT {_SCHEMA}.ack_json($1)"
_ACK_FIELDS = ("partitionId", "consumerGroup", "leaseId", "transactionId")


class Rows:
    """One row per message, three indexes, log ends and cursors: the schema ``queen_bench_rows``."""

    name: str = "row per message"
    tables: Sequence[str] = tuple(
        f"{_SCHEMA}.{table}" for table in ("messages", "partition_lookup", "partition_consumers")
    )

    def __init__(self, pool: Pool, url: str) -> None:
        self._pool, self._url = pool, url
        self._partitions: dict[str, list[str]] = {}
        self._counter = itertools.count()

    async def set_up(self) -> None:
        """Creates tables and procedures."""
        async with database.connection(self._url) as connection, connection.transaction():
            await connection.execute(_SCRIPT.read_text())

    async def make_partitions(self, queue: str, count: int) -> None:
        """Creates partitions 0 to count - 1 of a queue."""
        self._partitions[queue] = [str(row["id"]) for row in await self._pool.fetch(_MAKE, queue, count)]

    async def subscribe(self, queue: str, group: str) -> None:
        """Creates a consumer group that begins with the oldest message."""
        await self._pool.fetch(_SUBSCRIBE, queue, group)

    def push(self, queue: str, messages: Sequence[Message]) -> Call:
        """One call; the transaction id of a message without one is its message id, as in a server."""
        items = ",".join(self._item(queue, message) for message in messages)
        argument = f"[{items}]"

        async def call() -> object:
            return await self._pool.fetch(_PUSH, argument)

        return call

    def _item(self, queue: str, message: Message) -> str:
        own = str(_time_ordered_uuid(self._counter))
        partition = self._partitions[queue][message.partition]
        transaction_id = json.dumps(message.transaction_id or own)
        return (
            f'{{"id":"{own}","partitionId":"{partition}","transactionId":{transaction_id},'
            f'"payload":{message.payload.decode()}}}'
        )

    async def pop_and_ack(self, queue: str, group: str, batch: int) -> int:
        """A pop of any partition, then one ack of its messages."""
        lease = uuid4()
        rows = await self._pool.fetch(_POP, queue, group, lease, batch)
        if not rows:
            return 0
        partition: UUID = rows[0]["partition_id"]
        await self._pool.fetch(_ACK, partition, group, lease, [row["transaction_id"] for row in rows])
        return len(rows)

    async def skip_all(self, queue: str, group: str) -> None:
        """Moves the cursors of a group to the newest messages."""
        await self._pool.fetch(_SKIP, queue, group)

    def pop_statement(self, queue: str, group: str, batch: int) -> str:
        """The SQL of one pop of any partition, without parameters."""
        return f"SELECT * FROM {_SCHEMA}.pop('{queue}', '{group}', '{uuid4()}', {batch}, {_LEASE_S})"

    async def stored(self) -> int:
        """The number of stored messages."""
        [row] = await self._pool.fetch(f"SELECT count(*) AS messages FROM {_SCHEMA}.messages")
        return int(row["messages"])


class LoggedRows(Rows):
    """The same rows, consumed as the original is described to do it: JSON both ways, and a log of consumption."""

    name = "with the original's log"

    async def pop_and_ack(self, queue: str, group: str, batch: int) -> int:
        """A pop of any partition, then one ack that names each message."""
        [row] = await self._pool.fetch(_POP_JSON, queue, group, uuid4(), batch)
        if row["messages"] is None:
            return 0
        messages = json.loads(row["messages"])
        items = [{field: message[field] for field in _ACK_FIELDS} for message in messages]
        await self._pool.fetch(_ACK_JSON, json.dumps(items))
        return len(messages)


def _time_ordered_uuid(counter: "itertools.count[int]") -> UUID:
    """A version 7 UUID: milliseconds, then a counter, so that index pages are filled in order."""
    milliseconds = time.time_ns() // 1_000_000
    return UUID(int=milliseconds << 80 | 0x7 << 76 | 0x2 << 62 | next(counter) & ((1 << 62) - 1))
