"""RENEW_LEASE: puts off the ends of leases."""

from collections.abc import Sequence
from uuid import UUID

from queen.core.errors import OutcomeUnknownError
from queen.core.operations import Renewed, RenewLease
from queen.engine.context import Context
from queen.engine.handlers.ack import lease_of

#: Never given out: stands for a request that names none, so that each has its place in the call.
_NO_LEASE = UUID(int=0)


async def renew_lease(context: Context, requests: Sequence[RenewLease]) -> list[Renewed | OutcomeUnknownError]:
    """Renews all leases; one answer each, or an error where a call that was lost may have renewed what is over now."""
    leases = [lease_of(request.lease) or _NO_LEASE for request in requests]
    seconds = [request.seconds for request in requests]
    rows, lost = await context.tried(lambda _again: context.database.renew_leases(leases, seconds))
    return [
        OutcomeUnknownError("PostgreSQL went away during a renewal, and the lease is over now")
        if lost and not cursors
        else Renewed(cursors, expires_at)
        for cursors, expires_at in rows
    ]
