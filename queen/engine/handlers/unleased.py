"""Acks without a lease: they wait until workers have released what they prefetched and no consumer has asked for."""

from collections.abc import Sequence

from queen.core.errors import QueenError
from queen.engine.context import Context
from queen.engine.handlers.ack import locate
from queen.log.requests import Ack, AckItem, Transaction

#: A busy worker releases late: it is asked about as often as a pop asks that finds nothing.
_LOOKS = 5


def unleased_of_ack(ack: Ack) -> Sequence[AckItem]:
    """The acks that name no lease."""
    return [item for item in ack.items if not item.lease]


def unleased_of_transaction(transaction: Transaction) -> Sequence[AckItem]:
    """The same; none if it requires a lease, which is that of its consumer."""
    if transaction.required_leases is not None:
        return ()
    return [item for item in transaction.acks if not item.lease]


async def outlive_unasked(context: Context, items: Sequence[AckItem]) -> None:
    """Returns when no worker holds messages of these cursors that it has prefetched, or when that takes too long."""
    try:
        ranges = await locate(context, items)
    except QueenError:
        return  # the acks themselves find out what is wrong
    cursors = {(acks.cursor.part_id, acks.cursor.grp_id) for acks in ranges if not isinstance(acks.cursor, str)}
    for _ in range(_LOOKS):
        if not cursors or not await context.outlive_prefetched(
            lambda: context.database.cursors_prefetched_for(sorted(cursors))
        ):
            return
