"""The contents of messages: which characters and attributes are allowed, their size, and the hashes that SDKs check."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, structs

from queen.log.trace_context import CONTEXT
from queen.sqs.errors import SqsError, invalid_parameter, invalid_value

#: Maximum of attributes of a message, and of characters of a name or type.
_ATTRIBUTES_MAX, _NAME_CHARS_MAX = 10, 256
TRACE_HEADER = "AWSTraceHeader"

#: What XML 1.0 cannot contain.
NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: With letters beyond ASCII: AWS takes them, although its reference names A to Z only.
_ATTRIBUTE_NAME = re.compile(r"[\w-]+(\.[\w-]+)*")
_RESERVED = re.compile(r"(aws|amazon)\.", re.IGNORECASE)
_TYPE = re.compile(r"(String|Number|Binary)(\..*)?", re.DOTALL)
_NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*")
_ID = re.compile(r"[!-~]{1,128}")


class Value(Struct, frozen=True, array_like=True, omit_defaults=True):
    """The value of an attribute: a text, or bytes."""

    kind: str
    text: str | None = None
    data: bytes | None = None

    @property
    def content(self) -> bytes:
        """Its bytes."""
        return self.data if self.data is not None else (self.text or "").encode()

    @property
    def shown(self) -> dict[str, Any]:
        """It as a client sees it."""
        if self.data is not None:
            return {"BinaryValue": self.data, "DataType": self.kind}
        return {"StringValue": self.text, "DataType": self.kind}


_SHORT = {"attributes": "m", "trace": "t", "sender": "s", "context": "c"}


class Kept(Struct, frozen=True, omit_defaults=True, rename=_SHORT):
    """What is stored beside the body of a message.

    Attributes:
        attributes: of the message.
        trace: ``AWSTraceHeader``.
        sender: who sent it; ``None`` without authentication.
        context: ``traceparent`` of its request, if the message has none itself; ``None`` without telemetry.
    """

    attributes: Mapping[str, Value] = msgspec.field(default_factory=dict)
    trace: str | None = None
    sender: str | None = None
    context: str | None = None


NOTHING_KEPT = Kept()
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Kept)


def pack(kept: Kept) -> bytes | None:
    """As it is stored; ``None`` for nothing."""
    return None if kept == NOTHING_KEPT else _encoder.encode(kept)


def unpack(data: bytes | None) -> Kept:
    """What was stored."""
    return NOTHING_KEPT if data is None else _decoder.decode(data)


def context_of(kept: Kept) -> str | None:
    """The trace context of a message as ``traceparent``: its attribute, else that of its header or request."""
    given = kept.attributes.get("traceparent")
    if given is not None and given.text is not None and CONTEXT.fullmatch(given.text):
        return given.text
    return _of_trace_header(kept.trace or "") or kept.context


def _of_trace_header(header: str) -> str | None:
    """A trace header of AWS X-Ray (``Root=1-…;Parent=…;Sampled=1``) in the form of W3C."""
    parts = dict(part.strip().partition("=")[::2] for part in header.split(";"))
    root, parent = parts.get("Root", "").removeprefix("1-").replace("-", ""), parts.get("Parent", "")
    found = f"00-{root}-{parent}-{'01' if parts.get('Sampled') == '1' else '00'}"
    return found if CONTEXT.fullmatch(found) else None


def with_context(attributes: bytes | None, traceparent: str) -> bytes | None:
    """What is stored of a message, with the trace context of its request, unless it has one itself."""
    kept = unpack(attributes)
    return attributes if context_of(kept) else pack(structs.replace(kept, context=traceparent))


def trace_header_of(kept: Kept) -> str | None:
    """``AWSTraceHeader`` of a message: the one that was given, else its context in the form of AWS X-Ray."""
    if kept.trace is not None or kept.context is None:
        return kept.trace
    _, trace, span, flags = kept.context.split("-")
    return f"Root=1-{trace[:8]}-{trace[8:]};Parent={span};Sampled={int(flags, 16) & 1}"


def check_body(body: str) -> None:
    """Checks the characters of a body."""
    if NOT_XML.search(body):
        raise SqsError(
            "InvalidMessageContents",
            "Invalid characters found. Valid unicode characters are #x9 | #xA | "
            "#xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
        )


def check_id(name: str, value: str) -> str:
    """Checks the id of a group or of deduplication."""
    if not _ID.fullmatch(value):
        reason = f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        raise invalid_parameter(name, value, reason)
    return value


def attributes_of(given: Mapping[str, Any] | None) -> dict[str, Value]:
    """The attributes of a message, checked."""
    if not given:
        return {}
    if len(given) > _ATTRIBUTES_MAX:
        raise invalid_value(
            f"Number of message attributes [{len(given)}] exceeds the allowed maximum [{_ATTRIBUTES_MAX}]."
        )
    return {name: _attribute(name, value) for name, value in given.items()}


def trace_of(given: Mapping[str, Any] | None) -> str | None:
    """The trace header of a message: the only system attribute that a client may set."""
    for name, value in (given or {}).items():
        if name != TRACE_HEADER:
            raise invalid_value(f"The message system attribute '{name}' is not supported. Only {TRACE_HEADER} is.")
        found = _value(name, value)
        if found.kind != "String":
            raise invalid_value(f"The message system attribute {TRACE_HEADER} must have the type String.")
        return found.text
    return None


def _attribute(name: str, given: Any) -> Value:  # noqa: ANN401 - a struct made from the model
    if not _ATTRIBUTE_NAME.fullmatch(name) or len(name) > _NAME_CHARS_MAX or _RESERVED.match(name):
        raise invalid_value(
            f"Message (user) attribute name '{name[:_NAME_CHARS_MAX]}' is invalid: 1 to {_NAME_CHARS_MAX} letters, "
            "digits, hyphens, underscores and single periods inside; it must not begin with AWS. or Amazon."
        )
    return _value(name, given)


def _value(name: str, given: Any) -> Value:  # noqa: ANN401
    kind = given.DataType
    if not kind:
        raise invalid_value(f"The message attribute '{name}' must contain a non-empty message attribute type.")
    found = _TYPE.fullmatch(kind)
    if found is None:
        raise invalid_value(
            f"The message attribute '{name}' has an invalid message attribute type, the set of supported type prefixes "
            "is Binary, Number, and String."
        )
    if len(kind) > _NAME_CHARS_MAX or NOT_XML.search(kind):
        raise invalid_value(f"The type of the message attribute '{name}' has more than {_NAME_CHARS_MAX} characters.")
    if given.StringListValues or given.BinaryListValues:
        raise invalid_value("Message attribute list values in SendMessage operation are not supported.")
    if found[1] == "Binary":
        return _binary(name, kind, given)
    return _textual(name, kind, given, number=found[1] == "Number")


def _binary(name: str, kind: str, given: Any) -> Value:  # noqa: ANN401
    if given.StringValue is not None:
        raise invalid_value(f"The message attribute '{name}' with type 'Binary' must use field 'Binary'.")
    if not given.BinaryValue:
        raise _empty(name, kind)
    return Value(kind, data=given.BinaryValue)


def _textual(name: str, kind: str, given: Any, *, number: bool) -> Value:  # noqa: ANN401
    if given.BinaryValue is not None:
        raise invalid_value(f"The message attribute '{name}' with type '{kind}' must use field 'String'.")
    text = given.StringValue
    if not text:
        raise _empty(name, kind)
    if NOT_XML.search(text):
        raise invalid_value(f"Message (user) attribute '{name}' has characters in its value that are not allowed.")
    if number and not _NUMBER.fullmatch(text):
        raise invalid_value(f"Can't cast the value of message (user) attribute '{name}' to a number.")
    return Value(kind, text)


def _empty(name: str, kind: str) -> SqsError:
    return invalid_value(f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'.")


def size_of(given: Any) -> int:  # noqa: ANN401 - a struct made from the model
    """The size of a message: its body and the names, types and values of its attributes."""
    size = len((given.MessageBody or "").encode())
    for name, value in (given.MessageAttributes or {}).items():
        parts = (name, value.DataType or "", value.StringValue or "")
        size += sum([len(part.encode()) for part in parts]) + len(value.BinaryValue or b"")
    return size


def md5(text: str) -> str:
    """The hash of a body."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Mapping[str, Value]) -> str:
    """The hash of attributes: of each, in the order of the names, the name, the type and the value with its form."""
    found = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        value = attributes[name]
        _add(found, name.encode())
        _add(found, value.kind.encode())
        found.update(b"\2" if value.data is not None else b"\1")
        _add(found, value.content)
    return found.hexdigest()


def _add(found: "hashlib._Hash", data: bytes) -> None:
    found.update(len(data).to_bytes(4))
    found.update(data)


def deduplication_id_of(body: str) -> str:
    """The deduplication id of a body, by its content."""
    return hashlib.sha256(body.encode()).hexdigest()


def selected(attributes: Mapping[str, Value], names: "list[str] | None") -> Mapping[str, Value]:
    """The attributes that a consumer asks for: by name, by prefix (``foo.*``), or all."""
    if not names or not attributes:
        return {}
    if not {"All", "*", ".*"}.isdisjoint(names):
        return attributes
    prefixes = tuple(name[:-2] for name in names if name.endswith(".*"))
    return {name: value for name, value in attributes.items() if name in names or name.startswith(prefixes)}
