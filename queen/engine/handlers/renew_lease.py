"""RENEW_LEASE: puts off the ends of leases."""

from collections.abc import Sequence
from uuid import UUID

from queen.core.operations import Renewed, RenewLease
from queen.engine.context import Context
from queen.engine.handlers.ack import lease_of

#: Never given out: stands for a request that names none, so that each has its place in the call.
_NO_LEASE = UUID(int=0)


async def renew_lease(context: Context, requests: Sequence[RenewLease]) -> list[Renewed]:
    """Renews all leases; one answer each."""
    leases = [lease_of(request.lease) or _NO_LEASE for request in requests]
    seconds = [request.seconds for request in requests]
    rows = await context.patiently(lambda _again: context.database.renew_leases(leases, seconds))
    return [Renewed(cursors, expires_at) for cursors, expires_at in rows]
