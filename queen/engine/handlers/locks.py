"""What requests lock, as far as the worker knows without asking, and which of that others have locked."""

from collections.abc import Iterable

from queen.core import ids
from queen.core.errors import QueenError, TooSlowError
from queen.core.operations import Ack, AckItem, Cycle, Pop, Push, RenewLease, Transaction
from queen.core.simple_mq import Enqueue
from queen.engine.context import Context
from queen.engine.directory import Directory
from queen.engine.handlers.ack import lease_of
from queen.engine.ports import Lock, LockKind


async def find_locked(context: Context, locks: frozenset[Lock]) -> frozenset[Lock]:
    """Those that others have locked now; all, if not even that can be asked because of a lock."""
    if not locks:
        return locks
    try:
        return await context.database.find_locked(locks)
    except TooSlowError:
        return locks
    except QueenError:
        return frozenset()  # the call that follows finds out what is wrong


def locks_of_push(directory: Directory, push: Push) -> frozenset[Lock]:
    """Partitions, or queues in which they are made; and queues with a maximum size."""
    options = directory.known_push_options
    limited = options.limited if options is not None else {}
    locks = set()
    for lot in push.lots:
        part_id = directory.known_partition(lot.queue, lot.partition)
        if part_id is None:
            locks.add(Lock(LockKind.MAKING, name=lot.queue))
        else:
            locks.add(Lock(LockKind.PARTITION, part_id))
        if lot.queue in limited:
            locks.add(Lock(LockKind.LIMITED, limited[lot.queue].queue_id))
    return frozenset(locks)


def locks_of_pop(directory: Directory, pop: Pop) -> frozenset[Lock]:
    """At first contact the group; later it waits for nobody."""
    if not pop.queue or directory.known_group(pop.queue, None, pop.group):
        return frozenset()
    return frozenset([Lock(LockKind.SUBSCRIBING, name=pop.queue, group=pop.group)])


def locks_of_ack(directory: Directory, ack: Ack) -> frozenset[Lock]:
    """Cursors."""
    return _locks_of_acks(directory, ack.items)


def locks_of_transaction(directory: Directory, transaction: Transaction) -> frozenset[Lock]:
    """Those of its pushes and of its acks."""
    return locks_of_push(directory, transaction.push) | _locks_of_acks(directory, transaction.acks)


def locks_of_cycle(directory: Directory, cycle: Cycle) -> frozenset[Lock]:
    """Those of its outputs, and the cursor of its input."""
    return locks_of_push(directory, cycle.push) | _cursors(directory, [(cycle.part_id, cycle.group)])


def locks_of_renewal(_directory: Directory, renewal: RenewLease) -> frozenset[Lock]:
    """The cursors under a lease."""
    return frozenset([Lock(LockKind.LEASE, name=str(lease_of(renewal.lease)))])


def locks_of_enqueue(_directory: Directory, enqueue: Enqueue) -> frozenset[Lock]:
    """A queue of simple-mq."""
    return frozenset([Lock(LockKind.ENQUEUING, name=str(enqueue.queue))])


def _locks_of_acks(directory: Directory, items: Iterable[AckItem]) -> frozenset[Lock]:
    places = {(item.partition_id, item.group) for item in items}
    return _cursors(directory, [(ids.parse_partition_id(text), group) for text, group in places])


def _cursors(directory: Directory, places: Iterable[tuple[int | None, str]]) -> frozenset[Lock]:
    cursors = [(part_id, directory.known_group_at(part_id, group)) for part_id, group in places if part_id is not None]
    return frozenset([Lock(LockKind.CURSOR, part_id, grp_id) for part_id, grp_id in cursors if grp_id is not None])
