"""A flush as the engine makes it, for tests of the procedures."""

from uuid import uuid4

from queen.log.append import AppendBatch
from queen.log.segment import encode_ends, encode_plain
from queen.postgres.store import Store


async def flush_of(store: Store, queue: str, payloads: list[bytes], partition: str = "p") -> AppendBatch:
    """One segment for a partition of a queue, with ids made by the server."""
    [(_, part_id)] = await store.resolve_partitions([(queue, partition)], create=True)
    assert part_id is not None
    ends = encode_ends([len(payload) + 13 for payload in payloads])
    return AppendBatch(uuid4(), [part_id], [len(payloads)], [b"[" + encode_plain(payloads) + b"]"], [ends], [None])
