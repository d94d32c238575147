"""A long poll that waits on all shards: the first that has messages answers, and the others give back what they find.

The messages of a pop with autoAck could not be given back. So each shard leases them, and those of the answer are
acknowledged before it is given.
"""

from queen.core.errors import OutcomeUnknownError
from queen.log import ids
from queen.log.requests import Ack, Acked, AckItem, Claim, Popped
from queen.log.segment import decode_ends


def offsets_of(claim: Claim) -> list[int]:
    """The offsets of the messages of a claim."""
    found = []
    for piece in claim.slices:
        upto = min(piece.first + len(decode_ends(piece.ends)) - 1, claim.upto)
        found += [offset for offset in range(piece.first, upto + 1) if offset not in claim.skip]
    return found


def ack_of(popped: Popped, group: str) -> Ack:
    """The ack of all messages of a pop."""
    lease = str(popped.lease)
    items = [
        AckItem(ids.message_id(claim.part_id, offset), ids.partition_id(claim.part_id), group, lease, "completed")
        for claim in popped.claims
        for offset in offsets_of(claim)
    ]
    return Ack(items, alone=False)


def acknowledged(popped: Popped, acked: Acked) -> Popped:
    """A pop whose messages are acknowledged.

    Raises:
        OutcomeUnknownError: some could not be; they are delivered again.
    """
    problem = next((result.problem for result in acked.results if result.problem), None)
    if problem is not None:
        raise OutcomeUnknownError(f"Messages that were found could not be acknowledged: {problem}")
    return Popped(None, popped.claims)
