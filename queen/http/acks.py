"""Parses acks: of requests, transactions, cycles and WebSockets."""

from collections.abc import Sequence

from msgspec import Struct

from queen.core import limits
from queen.core.errors import BadRequestError
from queen.http.fields import Required
from queen.log.requests import AckItem


class AckBody(Struct):
    """One acknowledgment.

    Attributes:
        transactionId: that of the message, as it was delivered.
        partitionId: that of the message, as it was delivered.
        leaseId: the lease of the pop. An ack with another lease is refused; without one the lease is not checked.
        status: `completed` (default) or `success`, `failed`, `retry`, `dlq`.
        error: the reason of the failure; stored with the dead letter, up to 10,000 characters.
        consumerGroup: the group that got the message; empty is queue mode. In a batch, the group of the batch applies.
    """

    transactionId: Required  # noqa: N815 - the interface's names
    partitionId: str  # noqa: N815
    leaseId: str | None = None  # noqa: N815
    status: str | None = None
    error: str | None = None
    consumerGroup: str | None = None  # noqa: N815


def to_ack_item(body: AckBody, group: str, field: str = "") -> AckItem:
    """An acknowledgment for the engine; raises BadRequestError for an empty transactionId."""
    if not body.transactionId:
        raise BadRequestError(f"{field}transactionId must not be empty", f"{field}transactionId")
    error = body.error[: limits.ERROR_TEXT_CHARS_MAX].replace("\0", "\N{REPLACEMENT CHARACTER}") if body.error else None
    return AckItem(body.transactionId, body.partitionId, group, body.leaseId or None, body.status or "completed", error)


def to_ack_items(bodies: Sequence[AckBody], group: str) -> list[AckItem]:
    """The same for the elements of ``acknowledgments``."""
    try:
        return [to_ack_item(body, group) for body in bodies]
    except BadRequestError:
        # Field names are built only if there is an error.
        return [to_ack_item(body, group, f"acknowledgments[{number}].") for number, body in enumerate(bodies)]
