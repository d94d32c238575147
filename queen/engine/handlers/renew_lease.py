"""RENEW_LEASE: extends leases."""

from collections.abc import Sequence
from uuid import UUID

from queen.core.errors import OutcomeUnknownError
from queen.engine.context import Context
from queen.engine.handlers.ack import lease_of
from queen.log.requests import Renewed, RenewLease

#: Is never assigned; stands for a request without a lease, so that the call has one element per request.
_NO_LEASE = UUID(int=0)


async def renew_lease(context: Context, requests: Sequence[RenewLease]) -> list[Renewed | OutcomeUnknownError]:
    """Renews all leases; one answer each, or an error if a lost call may have renewed a lease that has ended since."""
    leases = [lease_of(request.lease) or _NO_LEASE for request in requests]
    seconds = [request.seconds for request in requests]
    rows, lost = await context.tried(lambda _again: context.database.renew_leases(leases, seconds))
    return [
        OutcomeUnknownError("PostgreSQL became unavailable during the renewal, and the lease has expired")
        if lost and not cursors
        else Renewed(cursors, expires_at)
        for cursors, expires_at in rows
    ]
