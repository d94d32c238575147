"""Leases whose messages never reached a consumer: given back as if they had never been given."""

from queen.core.operations import Popped
from queen.engine.context import Context
from queen.engine.ports import Notice


async def give_back(context: Context, popped: Popped, group: str) -> None:
    """Takes the lease of a pop back and wakes who waits for its partitions."""
    lease = popped.lease
    if lease is None:
        return
    try:
        await context.patiently(lambda _again: context.database.release_leases([lease]))
    finally:
        for claim in popped.claims:
            context.heard(Notice(claim.queue, 1, group))
