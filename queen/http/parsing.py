"""Requests into operations: types, names and limits are checked here, before anything is fused with others."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeVar
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from queen.core.errors import BadRequestError
from queen.core.limits import GROUP_CHARS_MAX, NAME_CHARS_MAX, TRANSACTION_ID_CHARS_MAX
from queen.core.operations import Lot, Push
from queen.core.segment import encode_entry, encode_identified, encode_plain, plain_length
from queen.http.fields import Name, TransactionId

T = TypeVar("T")

_PATH = re.compile(r" - at `\$\.?(.*)`$")
_NULL = Raw(b"null")


def decode(decoder: "msgspec.json.Decoder[T]", body: bytes, texts: Mapping[str, str]) -> T:
    """The body as the decoder's type.

    Args:
        decoder: of a ``Struct``.
        body: JSON in UTF-8.
        texts: error text by field, list places left out (``items.queue``), where the original's text is to be kept.

    Raises:
        BadRequestError: it is not JSON in UTF-8, or a field has the wrong type; names the field.
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
    """A consumer group; none and ``""`` are queue mode."""
    return check_name(name, field, GROUP_CHARS_MAX) if name else queue_mode


def parse_time(text: str, field: str) -> datetime:
    """An ISO 8601 time; without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequestError(f"{field} is not an ISO 8601 time: {text[:100]!r}", field) from None
    try:
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise BadRequestError(f"{field} is a time that no clock shows: {text[:100]!r}", field) from None


def parse_integer(given: str | int | None, field: str, default: int, low: int, high: int) -> int:
    """A whole number, as text where it comes from a query; ``None`` and an empty text mean the default."""
    if given is None or given == "":
        return default
    text = str(given)
    number = int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None
    if number is None or not low <= number <= high:
        shown = repr(text[:40]) if isinstance(given, str) else text[:40]
        raise BadRequestError(f"{field} must be a whole number from {low} to {high}, not {shown}", field)
    return number


def parse_boolean(given: str | bool | None) -> bool:
    """A switch, as text where it comes from a query: on for ``true`` and ``1``."""
    return given in (True, "true", "1")


# ---------------------------------------------------------------- push


class PushItem(Struct, gc=False):
    """One item of a push, as it comes.

    Attributes:
        queue: comes into being with its first message.
        partition: messages of one partition stay in order.
        payload: any JSON, kept as it is.
        transactionId: stored once a partition, however often it is pushed; by default the id of the message.
        traceId: a UUID that goes along with the message.
    """

    queue: Name
    partition: Name = "Default"
    payload: Raw = _NULL
    transactionId: TransactionId | None = None  # noqa: N815 - the interface's name
    traceId: str | None = None  # noqa: N815


class PushBody(Struct):
    """The body of a push.

    Attributes:
        items: stored all or none, in this order.
    """

    items: list[PushItem]


push_decoder = msgspec.json.Decoder(PushBody)
_PUSH_TEXTS = {
    "items": "items array is required",
    "items.queue": "Queue must be a string",
    "items.partition": "Partition must be a string",
    "items.transactionId": "TransactionId must be a string",
    "items.traceId": "TraceId must be a string",
}


def parse_push_items(body: bytes) -> list[PushItem]:
    """The items of a push; not yet checked for names."""
    return decode(push_decoder, body, _PUSH_TEXTS).items


def to_push(items: Sequence[PushItem], producer_sub: str | None = None, fields: Sequence[str] | None = None) -> Push:
    """Items as lots, one for each queue and partition.

    Args:
        items: in the order of the request.
        producer_sub: who pushes, as the token says.
        fields: where each item stands in the request, if not in a list ``items``.

    Raises:
        BadRequestError: a name or an id is out of its limits; names the item.
    """
    places: dict[tuple[str, str], list[int]] = {}
    for number, item in enumerate(items):
        places.setdefault((item.queue, item.partition), []).append(number)
    lots = []
    for (queue, partition), numbers in places.items():
        first = fields[numbers[0]] if fields else f"items[{numbers[0]}]"
        check_name(queue, f"{first}.queue")
        check_name(partition, f"{first}.partition")
        members = [items[number] for number in numbers]
        if _must_check_ids(members):
            for number, item in zip(numbers, members, strict=True):
                _check_ids(item, fields[number] if fields else f"items[{number}]")
        lots.append(_lot(queue, partition, numbers, members, producer_sub))
    return Push(lots, len(items))


def _lot(queue: str, partition: str, places: list[int], items: list[PushItem], producer_sub: str | None) -> Lot:
    payloads = [item.payload for item in items]
    chosen = [item.transactionId or "" for item in items]
    simple = producer_sub is None and not any([item.traceId for item in items])
    if simple and not any(chosen):
        return Lot(queue, partition, places, encode_plain(payloads), [plain_length(p) for p in payloads], None)
    if simple and all(chosen):
        entries = encode_identified(payloads, chosen)
    else:
        entries = [
            encode_entry(bytes(item.payload), item.transactionId or None, item.traceId or None, producer_sub)
            for item in items
        ]
    lengths = [len(entry) + 1 for entry in entries]
    return Lot(queue, partition, places, b",".join(entries), lengths, chosen if any(chosen) else None)


def _must_check_ids(items: Sequence[PushItem]) -> bool:
    """Whether each id has to be looked at by itself: some item has a trace id, or one of the chosen ids is wrong."""
    if any([item.traceId for item in items]):
        return True
    chosen = [item.transactionId for item in items if item.transactionId]
    return bool(chosen) and (max(map(len, chosen)) > TRANSACTION_ID_CHARS_MAX or "\0" in "".join(chosen))


def _check_ids(item: PushItem, field: str) -> None:
    if item.transactionId:
        check_name(item.transactionId, f"{field}.transactionId", TRANSACTION_ID_CHARS_MAX)
    if item.traceId:
        try:
            UUID(item.traceId)
        except ValueError:
            field = f"{field}.traceId"
            raise BadRequestError(f"{field} is not a UUID: {item.traceId[:50]!r}", field) from None
