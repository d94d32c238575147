"""Renders results as JSON by formatting bytes: payloads and stored texts are copied unchanged."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET, Struct, UnsetType

from queen.core.errors import DecryptionError
from queen.http.parsing import PushItem
from queen.log import ids
from queen.log.requests import (
    AckItem,
    AckResult,
    Claim,
    PartitionBatch,
    PartlyBuffered,
    Popped,
    Pushed,
    Renewed,
    Stored,
)
from queen.log.segment import Entry, decode_entries
from queen.security.keyring import Keyring
from queen.security.messages import open_entry

_json = msgspec.json.encode


def timestamp(time: datetime, decimals: int = 6) -> str:
    """ISO 8601 in UTC with ``Z``."""
    text = time.strftime("%Y-%m-%dT%H:%M:%S.%f") if time.tzinfo is None else time.isoformat(timespec="microseconds")
    return text[: 20 + decimals] + "Z"


# ---------------------------------------------------------------- push


def render_push(items: Sequence[PushItem], batches: Sequence[PartitionBatch], pushed: Pushed | PartlyBuffered) -> bytes:
    """The answer to a push: an array with one object per item, in the order of the request."""
    parts: list[bytes] = [b""] * len(items)
    for batch, stored in zip(batches, pushed.stored, strict=True):
        if isinstance(stored, Stored):
            _render_batch(parts, items, batch, stored)
            continue
        for place in batch.places:
            parts[place] = _json(_buffered(place, items[place]))
    return b"[" + b",".join(parts) + b"]"


def _render_batch(parts: list[bytes], items: Sequence[PushItem], batch: PartitionBatch, stored: Stored) -> None:
    prefix = ids.message_id_prefix(stored.part_id).encode()
    queue = _json(batch.queue)
    partition_id = ids.partition_id(stored.part_id).encode()
    if stored.first is not None and not any([items[place].traceId for place in batch.places]):
        own = b'"' + prefix + b'%012x"'
        rest = b',"status":"queued","message_id":' + own + b',"partition_id":"' + partition_id
        rest += b'","trace_id":null,"queueName":' + queue.replace(b"%", b"%%") + b"}"
        if batch.ids is None:
            template = b'{"index":%d,"transaction_id":' + own + rest
            for offset, place in enumerate(batch.places, stored.first):
                parts[place] = template % (place, offset, offset)
            return
        # An empty id was not chosen by the producer: it is the message id.
        template = b'{"index":%d,"transaction_id":%b' + rest
        for offset, (place, text) in enumerate(zip(batch.places, batch.ids, strict=True), stored.first):
            parts[place] = template % (place, _json(text) if text else own % offset, offset)
        return
    for number, place in enumerate(batch.places):
        parts[place] = _render_item(items[place], place, number, stored, queue)


def _render_item(item: PushItem, place: int, number: int, stored: Stored, queue: bytes) -> bytes:
    if number in stored.refused:
        return _json(
            {
                "index": place, "transaction_id": item.transactionId, "status": "failed", "queueName": item.queue,
                "error": "transactionId has the form of a message id of this partition. Only the server creates those",
            }
        )  # fmt: skip
    message_id = ids.message_id(stored.part_id, stored.offset(number))
    head = b'{"index":%d,"transaction_id":%b,' % (place, _json(item.transactionId or message_id))
    if number in stored.duplicates:
        return head + b'"status":"duplicate","message_id":"%b","queueName":%b}' % (message_id.encode(), queue)
    return head + b'"status":"queued","message_id":"%b","partition_id":"%b","trace_id":%b,"queueName":%b}' % (
        message_id.encode(), ids.partition_id(stored.part_id).encode(), _json(item.traceId or None), queue,
    )  # fmt: skip


class BufferedItem(Struct):
    """An item in the spool: it is safe, but its message id is not known yet."""

    index: int
    transaction_id: str | None
    transactionId: str | None  # noqa: N815 - one name in answers of a push, another in those of maintenance
    message_id: None
    queue: str
    queueName: str  # noqa: N815
    partition: str
    status: str = "buffered"


def render_buffered(items: Sequence[PushItem]) -> bytes:
    """The answer to a push that went to the spool."""
    return _json([_buffered(index, item) for index, item in enumerate(items)])


def _buffered(index: int, item: PushItem) -> BufferedItem:
    chosen = item.transactionId or None
    return BufferedItem(index, chosen, chosen, None, item.queue, item.queue, item.partition)


# ---------------------------------------------------------------- pop


def render_pop(popped: Popped, group: str, more: bytes = b"", keys: Keyring | None = None) -> bytes:
    """The answer to a pop with messages.

    Args:
        popped: with at least one claim.
        group: the consumer group, or the name of queue mode.
        more: additional fields, with commas.
        keys: open encrypted payloads.
    """
    head = popped.claims[0]
    lease = b'"%b"' % str(popped.lease).encode() if popped.lease is not None else b'""'
    messages = b",".join([_render_claim(claim, lease, _json(group), keys) for claim in popped.claims])
    return (
        b'{"success":true,"queue":%b,"partition":%b,"partitionId":"%b","leaseId":%b,"consumerGroup":%b,"messages":[%b],'
        b'"partitionsClaimed":%d%b}'
    ) % (
        _json(head.queue), _json(head.partition), ids.partition_id(head.part_id).encode(), lease, _json(group),
        messages, len(popped.claims), more,
    )  # fmt: skip


def _render_claim(claim: Claim, lease: bytes, group: bytes, keys: Keyring | None) -> bytes:
    prefix = ids.message_id_prefix(claim.part_id).encode()
    tail = b',"partitionId":"%b","queue":%b,"partition":%b,"leaseId":%b,"consumerGroup":%b,' % (
        ids.partition_id(claim.part_id).encode(), _json(claim.queue), _json(claim.partition), lease, group,
    )  # fmt: skip
    parts: list[bytes] = []
    skip, seen = claim.skip, claim.seen
    for piece in claim.slices:
        stamp = b'"createdAt":"%b"' % timestamp(piece.created_at).encode() + tail.replace(b"%", b"%%")
        stamp += b'"offset":%d,"deliveryAttempt":%d}'
        plain = (
            b'{"id":"'
            + prefix
            + b'%012x","transactionId":"'
            + prefix
            + b'%012x","traceId":null,"data":%b,"producerSub":null,'
        ) + stamp
        entries = decode_entries(piece.data, piece.ends, piece.start)[: max(claim.upto + 1 - piece.first, 0)]
        for offset, entry in enumerate(entries, piece.first):
            if skip and offset in skip:
                continue
            attempt = claim.attempt if offset <= seen else 1
            if isinstance(entry, bytes):
                parts.append(plain % (offset, offset, entry, offset, attempt))
            else:
                parts.append(_render_entry(entry, prefix, offset, claim, keys) + stamp % (offset, attempt))
    return b",".join(parts)


def _render_entry(entry: Entry, prefix: bytes, offset: int, claim: Claim, keys: Keyring | None) -> bytes:
    own = b"%b%012x" % (prefix, offset)
    data, more = bytes(entry.payload), b""
    if entry.keyId:
        data, more = _open(entry, claim, keys)
    if entry.traceparent:
        more += b'"traceparent":%b,' % bytes(entry.traceparent)
    if entry.headers:
        more += b'"headers":%b,' % entry.headers_json()
    return b'{"id":"%b","transactionId":%b,"traceId":%b,"data":%b,%b"producerSub":%b,' % (
        own, entry.transactionId or b'"%b"' % own, entry.traceId or b"null", data, more,
        entry.producerSub or b"null",
    )  # fmt: skip


def _open(entry: Entry, claim: Claim, keys: Keyring | None) -> tuple[bytes, bytes]:
    """The payload of an encrypted message, or null and fields with the reason; other messages are not affected."""
    try:
        return open_entry(entry, claim.queue, claim.partition, keys), b""
    except DecryptionError as problem:
        return b"null", b'"error":%b,"errorCode":"%b",' % (_json(str(problem)), problem.code.encode())


# ---------------------------------------------------------------- ack


class AckAnswer(Struct):
    """One element of the answer to an ack."""

    index: int
    transactionId: str  # noqa: N815 - the interface's names
    success: bool
    error: str | None
    queueName: str | None  # noqa: N815
    partitionName: str | None  # noqa: N815
    leaseReleased: bool  # noqa: N815
    dlq: bool
    noop: bool | UnsetType = UNSET


_ACK_HEAD = b'{"index":0,"transactionId":""'


def render_ack(items: Sequence[AckItem], results: Sequence[AckResult]) -> bytes:
    """The answer to an ack: an array with one object per item, in the order of the request."""
    parts: list[bytes] = []
    last, tail = None, b""
    for index, (item, result) in enumerate(zip(items, results, strict=True)):
        if result is not last:  # neighbours mostly share one
            last, tail = result, _ack_tail(result)
        parts.append(b'{"index":%d,"transactionId":%b%b' % (index, _json(item.transaction_id), tail))
    return b"[" + b",".join(parts) + b"]"


def _ack_tail(result: AckResult) -> bytes:
    """The fields of an answer after its index and transaction id."""
    answer = AckAnswer(
        0, "", result.problem is None, result.problem, result.queue, result.partition, result.released, result.dead,
        result.noop or UNSET,
    )  # fmt: skip
    return _json(answer).removeprefix(_ACK_HEAD)


# ---------------------------------------------------------------- lease


class LeaseAnswer(Struct):
    """The answer to a lease extension; clients read the end of the lease from three fields."""

    leaseId: str  # noqa: N815 - the interface's names
    success: bool
    renewed: int
    error: str | None
    expiresAt: str | None  # noqa: N815
    newExpiresAt: str | None  # noqa: N815
    lease_expires_at: str | None


def render_lease(lease: str, renewed: Renewed) -> bytes:
    """The answer to a lease extension."""
    if renewed.expires_at is None:
        return _json(LeaseAnswer(lease, False, 0, "Lease not found or expired", None, None, None))
    end = timestamp(renewed.expires_at, 3)
    return _json(LeaseAnswer(lease, True, renewed.cursors, None, end, end, end))
