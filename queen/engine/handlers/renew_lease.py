"""RENEW_LEASE: puts off the ends of leases."""

from collections.abc import Sequence

from queen.core.operations import Renewed, RenewLease
from queen.engine.context import Context
from queen.engine.handlers.ack import lease_of


async def renew_lease(context: Context, requests: Sequence[RenewLease]) -> list[Renewed]:
    """Renews all leases; one answer each."""
    leases = [lease for request in requests if (lease := lease_of(request.lease)) is not None]
    seconds = [request.seconds for request in requests]
    rows = await context.patiently(lambda _again: context.database.renew_leases(leases, seconds))
    return [Renewed(cursors, expires_at) for cursors, expires_at in rows]
