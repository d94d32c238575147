"""Queen's procedures, called like a worker calls them."""

from collections.abc import Sequence
from uuid import UUID, uuid4

from bench.database import CONNECT_TIMEOUT_MS
from bench.messages import Call, Message
from queen.core.limits import POP_BYTES
from queen.engine.ports import AckColumns, Delivered, PopColumns
from queen.log.append import lay_out
from queen.log.requests import PartitionBatch, Push
from queen.log.segment import encode_entry, encode_plain, plain_length
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.store import Store

_MAKE_STEP = 5000
_SKIP_STEP = 1000
_HASHES = (
    "SELECT part_id, array_agg(hash ORDER BY off) AS hashes FROM queen.transaction_ids WHERE part_id = ANY($1) "
    "GROUP BY part_id"
)


class Segments:
    """Segments of messages, log ends and cursors: the schema ``queen``."""

    name: str = "queen"
    tables: Sequence[str] = (
        "queen.segments",
        "queen.transaction_ids",
        "queen.partition_locks",
        "queen.partition_consumers",
    )

    def __init__(self, pool: Pool, url: str) -> None:
        self._pool, self._url = pool, url
        self._store = Store(pool)
        self._part_ids: dict[tuple[str, str], int] = {}
        self._groups: dict[tuple[str, str], int] = {}
        self._hashes: dict[int, list[bytes]] = {}

    async def set_up(self) -> None:
        """Creates the schema like ``queen init``."""
        await prepare(self._url, CONNECT_TIMEOUT_MS)

    async def make_partitions(self, queue: str, count: int) -> None:
        """Creates partitions 0 to count - 1 of a queue."""
        names = [(queue, str(number)) for number in range(count)]
        for begin in range(0, count, _MAKE_STEP):
            step = names[begin : begin + _MAKE_STEP]
            for name, (_queue_id, part_id) in zip(
                step, await self._store.resolve_partitions(step, create=True), strict=True
            ):
                if part_id is not None:
                    self._part_ids[name] = part_id

    async def subscribe(self, queue: str, group: str) -> None:
        """Creates a consumer group that begins with the oldest message."""
        complete: bool | None = False
        while not complete:
            made = await self._store.subscribe(queue, group, "all", None, create_queue=False, create_group=True)
            complete = made.complete
            if made.grp_id is not None:
                self._groups[queue, group] = made.grp_id
        await self._know_hashes([part_id for (of, _), part_id in self._part_ids.items() if of == queue])

    async def join(self, queue: str, group: str) -> None:
        """Creates a consumer group that begins now, and acks messages by server-assigned ids."""
        made = await self._store.subscribe(queue, group, "new", None, create_queue=False, create_group=True)
        if made.grp_id is not None:
            self._groups[queue, group] = made.grp_id

    async def _know_hashes(self, part_ids: Sequence[int]) -> None:
        """Reads the hashes of the transaction ids for the acks in these partitions, by offset."""
        if any(part_id in self._hashes for part_id in part_ids):
            return
        for row in await self._pool.fetch(_HASHES, part_ids):
            self._hashes[row["part_id"]] = [value.bytes for value in row["hashes"]]

    def push(self, queue: str, messages: Sequence[Message]) -> Call:
        """One push call, laid out like a worker does it."""
        by_partition: dict[int, list[Message]] = {}
        for message in messages:
            by_partition.setdefault(message.partition, []).append(message)
        request = Push([_batch(queue, number, texts) for number, texts in by_partition.items()], len(messages))
        columns = lay_out(uuid4(), [request], self._part_ids)

        async def call() -> object:
            return await self._store.push(columns, again=False)

        return call

    async def pop_and_ack(self, queue: str, group: str, batch: int, requests: int = 1) -> int:
        """A call of pops of any partition, then a call with their acks; returns the number of messages."""
        leases, grp, n = [uuid4() for _ in range(requests)], self._groups[queue, group], requests
        pops = list(range(1, n + 1))
        columns = PopColumns([batch] * n, [1] * n, [*leases], [None] * n, pops, [grp] * n, [None] * n)
        delivered, *_ = await self._store.pop(columns)
        # The first slice of a pop from a partition has all that the ack needs.
        rows = list({(row.pop, row.part_id): row for row in reversed(delivered)}.values())
        if rows:
            await self._store.ack(self._acks(rows, leases))
        return sum(row.upto - row.slice.first + 1 for row in rows)

    def _acks(self, rows: Sequence[Delivered], leases: Sequence[UUID]) -> AckColumns:
        """One run for server-assigned ids; else one element per message, because only the database knows its offset."""
        columns = AckColumns()
        for row in rows:
            first, last, named = row.slice.first, row.upto, self._hashes.get(row.part_id)
            hashes: list[bytes | None] = [None] if named is None else [*named[first : last + 1]]
            n = len(hashes)
            columns.part += [row.part_id] * n
            columns.grp += [row.grp_id] * n
            columns.lease += [leases[row.pop - 1]] * n
            columns.kind += ["c"] * n
            columns.first += [first] if named is None else [None] * n
            columns.last += [last] if named is None else [None] * n
            columns.hash += hashes
            columns.error += [None] * n
        return columns

    async def skip_all(self, queue: str, group: str) -> None:
        """Pops with autoAck until the queue is empty."""
        columns = PopColumns([_SKIP_STEP], [_SKIP_STEP], [None], [None], [1], [self._groups[queue, group]], [None])
        while (await self._store.pop(columns))[0]:
            pass

    def pop_statement(self, queue: str, group: str, batch: int) -> str:
        """The SQL of one pop of any partition, without parameters."""
        grp_id = self._groups[queue, group]
        pop = f"'{{{batch}}}', '{{1}}', '{{{uuid4()}}}', '{{NULL}}', '{{1}}', '{{{grp_id}}}', '{{NULL}}'"
        arguments = f"{pop}, {POP_BYTES}, {POP_BYTES}"
        return f"SELECT * FROM queen.pop_unified_batch_v1({arguments})"

    async def stored(self) -> int:
        """The number of stored messages."""
        [row] = await self._pool.fetch("SELECT coalesce(sum(n), 0)::int8 AS messages FROM queen.segments")
        return int(row["messages"])


def _batch(queue: str, number: int, messages: Sequence[Message]) -> PartitionBatch:
    places = range(len(messages))
    if messages[0].transaction_id is None:
        body = encode_plain([message.payload for message in messages])
        return PartitionBatch(
            queue, str(number), places, body, [plain_length(message.payload) for message in messages], None
        )
    entries = [encode_entry(message.payload, message.transaction_id, None, None) for message in messages]
    ids = [message.transaction_id or "" for message in messages]
    return PartitionBatch(queue, str(number), places, b",".join(entries), [len(entry) + 1 for entry in entries], ids)
