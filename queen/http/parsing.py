"""Parses requests into operations: checks types, names and limits before requests are batched."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, TypeVar
from uuid import UUID, uuid4

import msgspec
from msgspec import Raw, Struct

from queen.core.errors import BadRequestError
from queen.core.limits import (
    GROUP_CHARS_MAX,
    LEASE_SECONDS_MAX,
    MESSAGE_HEADERS_BYTES_MAX,
    MESSAGE_HEADERS_MAX,
    NAME_CHARS_MAX,
    TIMER_SECONDS_MAX,
    TRANSACTION_ID_CHARS_MAX,
)
from queen.http.fields import Name, Time, TransactionId, between
from queen.log import ids
from queen.log.requests import PartitionBatch, Push, RenewLease, TimerChange
from queen.log.segment import encode_entry, encode_identified, encode_plain, plain_length

T = TypeVar("T")

_PATH = re.compile(r" - at `\$\.?(.*)`$")
_NULL = Raw(b"null")
HEADERS_TEXT = "Headers must be an object whose values are strings"


def decode(decoder: "msgspec.json.Decoder[T]", body: bytes, texts: Mapping[str, str]) -> T:
    """The decoded body.

    Args:
        decoder: of a ``Struct``.
        body: JSON in UTF-8.
        texts: error texts of the original by field, without list indexes (``items.queue``).

    Raises:
        BadRequestError: the body is not JSON in UTF-8, or a field has the wrong type; names the field.
    """
    try:
        str(body, "utf-8")
        return decoder.decode(body)
    except msgspec.ValidationError as problem:
        text = str(problem)
        match = _PATH.search(text)
        field = match.group(1) if match else ""
        missing = re.match(r"Object missing required field `(\w+)`", text)
        if missing:
            field = f"{field}.{missing.group(1)}".lstrip(".")
        known = texts.get(re.sub(r"\[.*?\]", "", field))
        plain = f"{field or 'body'}: {_PATH.sub('', text)}"
        raise BadRequestError(known or plain, field) from None
    except UnicodeDecodeError as problem:
        raise BadRequestError(f"Invalid JSON: the body is not UTF-8 (byte {problem.start})") from None
    except (msgspec.DecodeError, RecursionError) as problem:
        reason = "nested too deeply" if isinstance(problem, RecursionError) else str(problem)
        raise BadRequestError(f"Invalid JSON: {reason}") from None


@lru_cache(maxsize=4096)
def _name_problem(name: str, chars_max: int) -> str | None:
    if not name:
        return "must not be empty"
    if len(name) > chars_max:
        return f"has {len(name)} characters, more than {chars_max}"
    if "\0" in name:
        return "must not contain NUL"
    return None


def check_name(name: str, field: str, chars_max: int = NAME_CHARS_MAX) -> str:
    """The name; raises BadRequestError naming the field if it is empty, too long or contains NUL."""
    if problem := _name_problem(name, chars_max):
        raise BadRequestError(f"{field} {problem}", field)
    return name


def check_group(name: str | None, field: str, queue_mode: str) -> str:
    """A consumer group; ``None`` and ``""`` mean queue mode."""
    return check_name(name, field, GROUP_CHARS_MAX) if name else queue_mode


def check_own_id(text: str, field: str) -> str:
    """A transaction id; raises BadRequestError naming the field for one that only the server may make."""
    check_name(text, field, TRANSACTION_ID_CHARS_MAX)
    if ids.parse_message_id(text) is not None:
        raise BadRequestError(f"{field} has the form of a message id, which only the server makes", field)
    return text


def parse_time(text: str, field: str) -> datetime:
    """An ISO 8601 timestamp; UTC if it has no zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequestError(f"{field} is not an ISO 8601 timestamp: {text[:100]!r}", field) from None
    try:
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise BadRequestError(f"{field} is out of range: {text[:100]!r} is no valid timestamp", field) from None


def parse_integer(given: str | int | None, field: str, default: int, low: int, high: int) -> int:
    """A whole number, as a string if it comes from a query; ``None`` and an empty string mean the default."""
    if given is None or given == "":
        return default
    text = str(given)
    number = int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None
    if number is None or not low <= number <= high:
        shown = repr(text[:40]) if isinstance(given, str) else text[:40]
        raise BadRequestError(f"{field} must be a whole number from {low} to {high}, not {shown}", field)
    return number


def parse_boolean(given: str | bool | None) -> bool:
    """A flag, as a string if it comes from a query: true for ``true`` and ``1``."""
    return given in (True, "true", "1")


# ---------------------------------------------------------------- push


class PushItem(Struct, gc=False):
    """One item of a push.

    Attributes:
        queue: created by its first message.
        partition: messages of one partition stay in order.
        payload: any JSON, stored unchanged.
        transactionId: stored once per partition, however often it is pushed; by default the id of the message.
        traceId: a UUID that is stored with the message.
        headers: texts by name, delivered beside the payload.
        delaySeconds: deliver it so many seconds from now. Only in a push; for all items of the request, or for none.
        deliverAt: deliver it at this time; a time that is past: now. Instead of `delaySeconds`.
    """

    queue: Name
    partition: Name = "Default"
    payload: Raw = _NULL
    transactionId: TransactionId | None = None  # noqa: N815 - the interface's name
    traceId: str | None = None  # noqa: N815
    headers: dict[str, str] | None = None
    delaySeconds: Annotated[float, between(0, TIMER_SECONDS_MAX)] | None = None  # noqa: N815
    deliverAt: Time | None = None  # noqa: N815

    @property
    def waits(self) -> bool:
        """Whether it is to be delivered at a time."""
        return self.delaySeconds is not None or self.deliverAt is not None


def may_wait(body: bytes) -> bool:
    """Whether a body may have an item with a time: looking at each item would cost every push."""
    # A name may be escaped. Most bodies have no backslash at all, and one character is found fastest.
    return b'"del' in body or (b"\\" in body and b"\\u" in body)


def to_timers(items: Sequence[PushItem], producer_sub: str | None) -> list[TimerChange]:
    """Items with a time as timers, with keys that the server makes.

    Raises:
        BadRequestError: an item is invalid, or some have a time and others have none; names the item.
    """
    return [to_timer(item, f"items[{number}]", producer_sub) for number, item in enumerate(items)]


def to_timer(item: PushItem, field: str, producer_sub: str | None) -> TimerChange:
    """An item with a time as a timer, with a key that the server makes; raises as ``to_timers``."""
    if not item.waits:
        raise BadRequestError(f"{field} has no time, and others have one: send them in a request of their own", field)
    if item.delaySeconds is not None and item.deliverAt is not None:
        raise BadRequestError(f"{field}: give only one of delaySeconds and deliverAt", f"{field}.deliverAt")
    if item.delaySeconds is not None and not 0 <= item.delaySeconds <= TIMER_SECONDS_MAX:
        raise BadRequestError(
            f"{field}.delaySeconds must be a number from 0 to {TIMER_SECONDS_MAX}", f"{field}.delaySeconds"
        )
    at = None if item.deliverAt is None else parse_time(item.deliverAt, f"{field}.deliverAt")
    if at is not None and (at - datetime.now(UTC)).total_seconds() > TIMER_SECONDS_MAX:
        raise BadRequestError(f"{field}.deliverAt must be at most ten years ahead", f"{field}.deliverAt")
    check_name(item.queue, f"{field}.queue")
    check_name(item.partition, f"{field}.partition")
    _check_item(item, field)
    key = str(uuid4())
    text = check_own_id(item.transactionId, f"{field}.transactionId") if item.transactionId else key
    message = encode_entry(bytes(item.payload), text, item.traceId or None, producer_sub, item.headers)
    return TimerChange("schedule", item.queue, key, item.partition, text, item.delaySeconds, at, message)


def to_push(items: Sequence[PushItem], producer_sub: str | None = None, fields: Sequence[str] | None = None) -> Push:
    """Items as batches, one per queue and partition.

    Args:
        items: in the order of the request.
        producer_sub: subject of the producer's token.
        fields: the path of each item in the request, if it is not in a list ``items``. Then no item may have a time.

    Raises:
        BadRequestError: a name or an id is invalid; names the item.
    """
    if fields:
        _refuse_times(items, fields)
    places: dict[tuple[str, str], list[int]] = {}
    for number, item in enumerate(items):
        places.setdefault((item.queue, item.partition), []).append(number)
    return Push([_to_batch(items, numbers, producer_sub, fields) for numbers in places.values()], len(items))


def _refuse_times(items: Sequence[PushItem], fields: Sequence[str]) -> None:
    for item, field in zip(items, fields, strict=True):
        if item.waits:
            raise BadRequestError(f"{field}: only a push and a transaction take delaySeconds and deliverAt", field)


def _to_batch(
    items: Sequence[PushItem], numbers: list[int], producer_sub: str | None, fields: Sequence[str] | None
) -> PartitionBatch:
    """The items with these numbers, which are all of one partition."""
    members = [items[number] for number in numbers]
    queue, partition, first = members[0].queue, members[0].partition, _field(fields, numbers[0])
    check_name(queue, f"{first}.queue")
    check_name(partition, f"{first}.partition")
    chosen = [item.transactionId or "" for item in members]
    more = any([item.traceId or item.headers for item in members])
    # Checking items one by one is rarely necessary.
    if more or max(map(len, chosen)) > TRANSACTION_ID_CHARS_MAX or "\0" in "".join(chosen):
        for number, item in zip(numbers, members, strict=True):
            _check_item(item, _field(fields, number))
    encoded = _encode(members, chosen, producer_sub, plain=not (more or producer_sub is not None))
    return PartitionBatch(queue, partition, numbers, *encoded)


def _field(fields: Sequence[str] | None, number: int) -> str:
    return fields[number] if fields else f"items[{number}]"


def _encode(
    items: list[PushItem], chosen: list[str], producer_sub: str | None, *, plain: bool
) -> tuple[bytes, list[int], list[str] | None]:
    """The JSON objects of these items, their sizes, and the ids; ``plain``: they have payloads and ids only."""
    texts = chosen if any(chosen) else None
    if plain and texts is None:
        payloads = [item.payload for item in items]
        return encode_plain(payloads), [*map(plain_length, payloads)], None
    if plain and all(chosen):
        entries = encode_identified([item.payload for item in items], chosen)
    else:
        entries = [_entry(item, producer_sub) for item in items]
    return b",".join(entries), [len(entry) + 1 for entry in entries], texts


def _entry(item: PushItem, producer_sub: str | None) -> bytes:
    chosen, traced = item.transactionId or None, item.traceId or None
    return encode_entry(bytes(item.payload), chosen, traced, producer_sub, item.headers)


def _check_item(item: PushItem, field: str) -> None:
    if item.transactionId:
        check_name(item.transactionId, f"{field}.transactionId", TRANSACTION_ID_CHARS_MAX)
    if item.traceId:
        try:
            UUID(item.traceId)
        except ValueError:
            field = f"{field}.traceId"
            raise BadRequestError(f"{field} is not a UUID: {item.traceId[:50]!r}", field) from None
    if item.headers:
        check_headers(item.headers, f"{field}.headers")


def check_headers(headers: Mapping[str, str], field: str) -> None:
    """Raises BadRequestError, which names the field, for headers that are too many, too large or malformed."""
    if len(headers) > MESSAGE_HEADERS_MAX:
        raise BadRequestError(f"{field} has {len(headers)} names, more than {MESSAGE_HEADERS_MAX}", field)
    size = sum([len(text.encode()) for pair in headers.items() for text in pair])
    if size > MESSAGE_HEADERS_BYTES_MAX:
        raise BadRequestError(f"{field} has {size} bytes, more than {MESSAGE_HEADERS_BYTES_MAX}", field)
    if "" in headers:
        raise BadRequestError(f"{field}: a name must not be empty", field)
    if any(["\0" in text for pair in headers.items() for text in pair]):
        raise BadRequestError(f"{field} must not contain NUL", field)


def renewal(lease: str, seconds: int) -> RenewLease:
    """Parses the renewal of a lease; raises BadRequestError for more seconds than a lease may have."""
    if seconds > LEASE_SECONDS_MAX:
        raise BadRequestError(f"seconds must be at most {LEASE_SECONDS_MAX}, not {seconds}", "seconds")
    return RenewLease(lease, max(seconds, 0))
