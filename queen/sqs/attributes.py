"""The attributes and tags of queues: which exist, their ranges and defaults."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from queen.sqs.addresses import name_of_arn
from queen.sqs.contents import NOT_XML
from queen.sqs.errors import SqsError, invalid_value

MESSAGE_BYTES_MAX = 1 << 20
#: Maximum of tags of a queue, and of the characters of a key and a value.
_TAGS_MAX, _KEY_CHARS_MAX, _VALUE_CHARS_MAX = 50, 128, 256
_RECEIVES_MAX = 1000
_SOURCES_MAX = 10

#: Numbers with their range and default.
_NUMBERS: Mapping[str, tuple[int, int, int]] = {
    "DelaySeconds": (0, 900, 0),
    "MaximumMessageSize": (1024, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX),
    "MessageRetentionPeriod": (60, 1_209_600, 345_600),
    "ReceiveMessageWaitTimeSeconds": (0, 20, 0),
    "VisibilityTimeout": (0, 43_200, 30),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400, 300),
}
_SHOWN_NUMBERS = frozenset(_NUMBERS) - {"KmsDataKeyReusePeriodSeconds"}
#: Words with their values; the first one is the default.
_FIFO_WORDS: Mapping[str, tuple[str, ...]] = {
    "ContentBasedDeduplication": ("false", "true"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
_POLICIES = ("RedrivePolicy", "RedriveAllowPolicy", "Policy")
#: Of encryption: a queue with either is encrypted with the server's own key.
_STORED = ("KmsMasterKeyId", "SqsManagedSseEnabled")
FIFO_QUEUE = "FifoQueue"
_BOOLEANS = (FIFO_QUEUE, "ContentBasedDeduplication", "SqsManagedSseEnabled")

FIGURES = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_FACTS = ("QueueArn", "CreatedTimestamp", "LastModifiedTimestamp", *FIGURES)
_SETTABLE = frozenset([*_NUMBERS, *_FIFO_WORDS, *_POLICIES, *_STORED, FIFO_QUEUE])
_KNOWN = frozenset([*_SETTABLE, *_FACTS, "All"])
_PERMISSIONS = ("allowAll", "denyAll", "byQueue")
_WHOLE = re.compile(r"[0-9]{1,9}")


class Redrive(Struct, frozen=True):
    """Where the messages of a queue go that were received too often."""

    target: str
    receives_max: int


class Allowed(Struct, frozen=True):
    """Which queues may have a queue as their dead-letter queue; ``sources``: names, with ``byQueue``."""

    permission: str = "allowAll"
    sources: Sequence[str] = ()

    def admits(self, source: str) -> bool:
        """Whether a queue may."""
        return self.permission == "allowAll" or source in self.sources


def tidied(given: Mapping[str, str]) -> dict[str, str]:
    """Attributes as they are stored: AWS takes ``True`` for ``true``, and shows the number of receives as a number."""
    return {name.strip(): _tidied(name.strip(), value) for name, value in given.items()}


def _tidied(name: str, value: str) -> str:
    if name in _BOOLEANS:
        return value.lower()
    if name == "RedrivePolicy" and value and isinstance(_object(name, value).get("maxReceiveCount"), str):
        policy = {**_object(name, value), "maxReceiveCount": redrive_of(value).receives_max}
        return msgspec.json.encode(policy).decode()
    return value


def check_settable(given: Mapping[str, str], *, fifo: bool) -> None:
    """Checks attributes to set; an empty text removes a policy."""
    for name, value in given.items():
        _check(name, value, fifo=fifo)
    if given.get("KmsMasterKeyId") and given.get("SqsManagedSseEnabled") == "true":
        raise SqsError(
            "InvalidAttributeName",
            "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS "
            "SSE.",
        )


def _check(name: str, value: str, *, fifo: bool) -> None:
    if name not in _SETTABLE:
        raise unknown_attribute(name)
    if name in _FIFO_WORDS or name == FIFO_QUEUE:
        _check_fifo(name, value, fifo=fifo)
    elif name in _NUMBERS:
        low, high, _ = _NUMBERS[name]
        if not _WHOLE.fullmatch(value) or not low <= int(value) <= high:
            raise _invalid(name)
    elif name == "SqsManagedSseEnabled":
        if value not in ("true", "false"):
            raise _invalid(name)
    elif NOT_XML.search(value):
        raise _invalid(name)
    elif value:
        _check_policy(name, value)


def _check_fifo(name: str, value: str, *, fifo: bool) -> None:
    if not fifo:
        if name in ("DeduplicationScope", "FifoThroughputLimit"):
            raise SqsError("InvalidAttributeName", f"You can specify the {name} only when FifoQueue is set to true.")
        raise unknown_attribute(name)
    if name == FIFO_QUEUE:
        if value != "true":
            raise SqsError(
                "InvalidAttributeValue",
                "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
            )
    elif value not in _FIFO_WORDS[name]:
        raise _invalid(name)


def _check_policy(name: str, value: str) -> None:
    match name:
        case "RedrivePolicy":
            redrive_of(value)
        case "RedriveAllowPolicy":
            allowed_of(value)
        case "Policy":
            _object(name, value)


def unknown_attribute(name: str) -> SqsError:
    """An attribute does not exist, or not for this type of queue."""
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")


def _invalid(name: str) -> SqsError:
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}.")


def _object(name: str, value: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(value, type=dict[str, Any])
        storable = b"\\u0000" not in msgspec.json.encode(found)
    except (msgspec.DecodeError, RecursionError):
        storable = False
    if storable:
        return found
    if name == "Policy":
        raise _invalid(name)
    raise _bad_policy(name, value, f"{_words(name)} is not a valid JSON map.")


def _bad_policy(name: str, value: str, reason: str) -> SqsError:
    return invalid_value(f"Value {value} for parameter {name} is invalid. Reason: {reason}")


def _words(name: str) -> str:
    return {"RedrivePolicy": "Redrive policy", "RedriveAllowPolicy": "Redrive allow policy"}[name]


def redrive_of(value: str) -> Redrive:
    """A redrive policy."""
    policy = _object("RedrivePolicy", value)
    for name in ("deadLetterTargetArn", "maxReceiveCount"):
        if name not in policy:
            reason = f"Redrive policy does not contain mandatory attribute: {name}."
            raise _bad_policy("RedrivePolicy", value, reason)
    target, receives = policy["deadLetterTargetArn"], str(policy["maxReceiveCount"])
    if not _WHOLE.fullmatch(receives) or not 1 <= int(receives) <= _RECEIVES_MAX:
        reason = (
            f"Invalid value for maxReceiveCount: {receives[:20]}, valid values are from 1 to {_RECEIVES_MAX} both "
            "inclusive."
        )
        raise _bad_policy("RedrivePolicy", value, reason)
    return Redrive(_target(target, value), int(receives))


def _target(arn: object, value: str) -> str:
    try:
        return name_of_arn(str(arn), "deadLetterTargetArn")
    except SqsError:
        raise _bad_policy("RedrivePolicy", value, "Invalid value for deadLetterTargetArn.") from None


def allowed_of(value: str | None) -> Allowed:
    """A redrive allow policy."""
    if not value:
        return Allowed()
    name = "RedriveAllowPolicy"
    policy = _object(name, value)
    permission, arns = policy.get("redrivePermission"), policy.get("sourceQueueArns", [])
    if permission not in _PERMISSIONS:
        raise _bad_policy(name, value, f"redrivePermission must be one of {', '.join(_PERMISSIONS)}.")
    if not isinstance(arns, list) or (permission == "byQueue") != bool(arns) or len(arns) > _SOURCES_MAX:
        raise _bad_policy(name, value, f"sourceQueueArns must have 1 to {_SOURCES_MAX} ARNs with byQueue, else none.")
    return Allowed(permission, [name_of_arn(str(arn), name) for arn in arns])


def check_same(existing: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Raises ``QueueNameExists`` if a queue that exists has another value for a given attribute."""
    for name, value in given.items():
        if not _same(name, existing.get(name, default_of(name)), value):
            raise SqsError(
                "QueueNameExists",
                f"A queue already exists with the same name and a different value for attribute {name}",
            )


def _same(name: str, first: str, second: str) -> bool:
    if name in _POLICIES and first and second:
        return bool(msgspec.json.decode(first) == msgspec.json.decode(second))
    return first == second


def default_of(name: str) -> str:
    """The value of an attribute that was not set."""
    if name in _NUMBERS:
        return str(_NUMBERS[name][2])
    if name in _FIFO_WORDS:
        return _FIFO_WORDS[name][0]
    return "true" if name in (FIFO_QUEUE, "SqsManagedSseEnabled") else ""


def check_known(names: Sequence[str] | None) -> frozenset[str]:
    """The names of attributes in a request, which must exist; with ``All`` every one."""
    for name in names or ():
        if name not in _KNOWN:
            raise unknown_attribute(name)
    return _KNOWN if "All" in (names or ()) else frozenset(names or ())


def encrypted(attributes: Mapping[str, str], *, encrypts: bool) -> bool:
    """Whether messages of a queue are stored encrypted: always with a key of KMS, and if the server can by default."""
    return bool(attributes.get("KmsMasterKeyId")) or (encrypts and attributes.get("SqsManagedSseEnabled") != "false")


def shown(attributes: Mapping[str, str], *, fifo: bool) -> dict[str, str]:
    """The attributes of a queue with their defaults."""
    found = {name: default_of(name) for name in _SHOWN_NUMBERS}
    if fifo:
        found.update({name: default_of(name) for name in (FIFO_QUEUE, *_FIFO_WORDS)})
    found["SqsManagedSseEnabled"] = "false" if attributes.get("KmsMasterKeyId") else "true"
    return {**found, **attributes}


def number_of(attributes: Mapping[str, str], name: str) -> int:
    """The value of a number."""
    value = attributes.get(name)
    return _NUMBERS[name][2] if value is None else int(value)


def check_tag_keys(keys: Iterable[str]) -> None:
    """Checks the keys of tags."""
    for key in keys:
        if not 1 <= len(key) <= _KEY_CHARS_MAX or NOT_XML.search(key) or key.lower().startswith("aws:"):
            raise invalid_value(f"Tag keys must have 1 to {_KEY_CHARS_MAX} characters and must not begin with aws:.")


def check_tags(name: str, tags: Mapping[str, str]) -> None:
    """Checks the tags of a queue."""
    if len(tags) > _TAGS_MAX:
        raise invalid_value(f"Too many tags added for queue {name}.")
    check_tag_keys(tags)
    for value in tags.values():
        if len(value) > _VALUE_CHARS_MAX or NOT_XML.search(value):
            raise invalid_value(f"Tag values can have at most {_VALUE_CHARS_MAX} characters.")
