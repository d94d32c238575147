"""The product's side: its procedures, called as a worker calls them."""

from collections.abc import Sequence
from uuid import UUID, uuid4

from queen.core.limits import POP_BYTES
from queen.core.operations import Lot, Push
from queen.core.segment import encode_entry, encode_plain, plain_length
from queen.db.pool import Pool
from queen.db.setup import prepare
from queen.db.store import Store
from queen.engine.flush import Flush
from queen.engine.ports import AckColumns, Delivered, PopColumns
from queen_bench.database import CONNECT_TIMEOUT_MS
from queen_bench.procedures.side import Call, Message

_MAKE_STEP = 5000
_SKIP_STEP = 1000
_HASHES = (
    "SELECT part_id, array_agg(hash ORDER BY off) AS hashes FROM queen.transaction_ids WHERE part_id = ANY($1) "
    "GROUP BY part_id"
)


class Segments:
    """Segments of messages, heads and cursors: the schema ``queen``."""

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
        """Makes the schema as ``queen init`` does."""
        await prepare(self._url, CONNECT_TIMEOUT_MS)

    async def make_partitions(self, queue: str, count: int) -> None:
        """Makes partitions 0 to count - 1 of a queue."""
        names = [(queue, str(number)) for number in range(count)]
        for begin in range(0, count, _MAKE_STEP):
            step = names[begin : begin + _MAKE_STEP]
            for name, (_queue_id, part_id) in zip(
                step, await self._store.resolve_partitions(step, create=True), strict=True
            ):
                if part_id is not None:
                    self._part_ids[name] = part_id

    async def subscribe(self, queue: str, group: str) -> None:
        """Makes a consumer group that begins with the oldest message."""
        complete: bool | None = False
        while not complete:
            made = await self._store.subscribe(queue, group, "all", None, create_queue=False, create_group=True)
            complete = made.complete
            if made.grp_id is not None:
                self._groups[queue, group] = made.grp_id
        await self._know_hashes([part_id for (of, _), part_id in self._part_ids.items() if of == queue])

    async def join(self, queue: str, group: str) -> None:
        """Makes a consumer group that begins now, and that names messages by the ids that the server made."""
        made = await self._store.subscribe(queue, group, "new", None, create_queue=False, create_group=True)
        if made.grp_id is not None:
            self._groups[queue, group] = made.grp_id

    async def _know_hashes(self, part_ids: Sequence[int]) -> None:
        """Reads the hashes of the transaction ids that a consumer of these partitions will name, by offset."""
        if any(part_id in self._hashes for part_id in part_ids):
            return
        for row in await self._pool.fetch(_HASHES, part_ids):
            self._hashes[row["part_id"]] = [value.bytes for value in row["hashes"]]

    def push(self, queue: str, messages: Sequence[Message]) -> Call:
        """One flush, laid out as a worker does it."""
        by_partition: dict[int, list[Message]] = {}
        for message in messages:
            by_partition.setdefault(message.partition, []).append(message)
        request = Push([_lot(queue, number, lot) for number, lot in by_partition.items()], len(messages))
        columns = Flush(uuid4(), [request], self._part_ids, {}, frozenset()).columns

        async def call() -> object:
            return await self._store.push(columns, again=False)

        return call

    async def pop_and_ack(self, queue: str, group: str, batch: int) -> int:
        """A pop of any partition, then the ack that a worker makes of a request that names each message."""
        lease = uuid4()
        columns = PopColumns([batch], [1], [lease], [None], [1], [self._groups[queue, group]], [None])
        delivered, *_ = await self._store.pop(columns)
        if not delivered:
            return 0
        await self._store.ack(self._ack(delivered[0], lease))
        return delivered[0].upto - delivered[0].slice.first + 1

    def _ack(self, row: Delivered, lease: UUID) -> AckColumns:
        """One run where the server made the ids; else one element a message, for only the database knows its offset."""
        part, grp, first, last = row.part_id, row.grp_id, row.slice.first, row.upto
        if part not in self._hashes:
            return AckColumns([part], [grp], [lease], ["c"], [first], [last], [None], [None])
        hashes: list[bytes | None] = [*self._hashes[part][first : last + 1]]
        n = len(hashes)
        nothing: list[None] = [None] * n
        return AckColumns([part] * n, [grp] * n, [lease] * n, ["c"] * n, [*nothing], [*nothing], hashes, [*nothing])

    async def skip_all(self, queue: str, group: str) -> None:
        """Pops with autoAck until nothing comes."""
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
        """How many messages are stored."""
        [row] = await self._pool.fetch("SELECT coalesce(sum(n), 0)::int8 AS messages FROM queen.segments")
        return int(row["messages"])


def _lot(queue: str, number: int, messages: Sequence[Message]) -> Lot:
    places = range(len(messages))
    if messages[0].transaction_id is None:
        body = encode_plain([message.payload for message in messages])
        return Lot(queue, str(number), places, body, [plain_length(message.payload) for message in messages], None)
    entries = [encode_entry(message.payload, message.transaction_id, None, None) for message in messages]
    ids = [message.transaction_id or "" for message in messages]
    return Lot(queue, str(number), places, b",".join(entries), [len(entry) + 1 for entry in entries], ids)
