"""The locks that requests need, as far as the cache knows, and which of them other transactions hold."""

from collections.abc import Iterable

from queen.core.errors import QueenError, TooSlowError
from queen.engine.context import Context
from queen.engine.handlers.ack import lease_of
from queen.engine.metadata_cache import MetadataCache
from queen.engine.ports import Lock, LockKind
from queen.log import ids
from queen.log.requests import Ack, AckItem, Cycle, Pop, Push, RenewLease, Transaction


async def find_locked(context: Context, locks: frozenset[Lock]) -> frozenset[Lock]:
    """The locks that other transactions hold now; all of ``locks`` if even this query meets a lock."""
    if not locks:
        return locks
    try:
        return await context.database.find_locked(locks)
    except TooSlowError:
        return locks
    except QueenError:
        return frozenset()  # the next call finds out what is wrong


def locks_of_push(cache: MetadataCache, push: Push) -> frozenset[Lock]:
    """Partitions, or queues in which partitions are created; and queues with a maximum size."""
    options = cache.known_push_options
    limited = options.limited if options is not None else {}
    locks = set()
    for batch in push.batches:
        part_id = cache.known_partition(batch.queue, batch.partition)
        if part_id is None:
            locks.add(Lock(LockKind.MAKING, name=batch.queue))
        else:
            locks.add(Lock(LockKind.PARTITION, part_id))
        if batch.queue in limited:
            locks.add(Lock(LockKind.LIMITED, limited[batch.queue].queue_id))
    return frozenset(locks)


def locks_of_pop(cache: MetadataCache, pop: Pop) -> frozenset[Lock]:
    """The group, at its first pop; later pops wait for no lock."""
    if not pop.queue or cache.known_group(pop.queue, None, pop.group):
        return frozenset()
    return frozenset([Lock(LockKind.SUBSCRIBING, name=pop.queue, group=pop.group)])


def locks_of_ack(cache: MetadataCache, ack: Ack) -> frozenset[Lock]:
    """Cursors."""
    return _locks_of_acks(cache, ack.items)


def locks_of_transaction(cache: MetadataCache, transaction: Transaction) -> frozenset[Lock]:
    """The locks of its pushes and of its acks."""
    return locks_of_push(cache, transaction.push) | _locks_of_acks(cache, transaction.acks)


def locks_of_cycle(cache: MetadataCache, cycle: Cycle) -> frozenset[Lock]:
    """The locks of its pushes, and the cursor of its input."""
    return locks_of_push(cache, cycle.push) | _cursors(cache, [(cycle.part_id, cycle.group)])


def locks_of_renewal(_cache: MetadataCache, renewal: RenewLease) -> frozenset[Lock]:
    """The cursors under a lease."""
    return frozenset([Lock(LockKind.LEASE, name=str(lease_of(renewal.lease)))])


def _locks_of_acks(cache: MetadataCache, items: Iterable[AckItem]) -> frozenset[Lock]:
    cursors = {(item.partition_id, item.group) for item in items}
    return _cursors(cache, [(ids.parse_partition_id(text), group) for text, group in cursors])


def _cursors(cache: MetadataCache, keys: Iterable[tuple[int | None, str]]) -> frozenset[Lock]:
    cursors = [(part_id, cache.known_group_at(part_id, group)) for part_id, group in keys if part_id is not None]
    return frozenset([Lock(LockKind.CURSOR, part_id, grp_id) for part_id, grp_id in cursors if grp_id is not None])
