"""The frames of the protocol ``queen.v1``: JSON objects with a ``type``."""

from typing import TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from queen.http.acks import AckBody
from queen.http.parsing import decode
from queen.http.problems import Problem

PROTOCOL = "queen.v1"

#: Chosen by the client to match the answer to a frame.
Ref: TypeAlias = str | int | None


# ---------------------------------------------------------------- from the client


class WindowBody(Struct):
    """How to cut windows: by number, by time, or both."""

    messages: int | None = None
    seconds: int | None = None


class Subscribe(Struct, tag="subscribe"):
    """Starts the delivery: a pop that is repeated as long as there is credit."""

    ref: Ref = None
    queue: str | None = None
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None
    consumerGroup: str | None = None  # noqa: N815 - the interface's names
    credit: int | None = None
    batch: int | None = None
    partitions: int | None = None
    leaseSeconds: int | None = None  # noqa: N815
    subscriptionMode: str | None = None  # noqa: N815
    subscriptionFrom: str | None = None  # noqa: N815
    window: WindowBody | None = None


class AckFrame(Struct, tag="ack"):
    """Acknowledges all messages of a batch that are still in flight, or single ones."""

    ref: Ref = None
    batch: int | None = None
    status: str | None = None
    error: str | None = None
    acknowledgments: list[AckBody] | None = None
    consumerGroup: str | None = None  # noqa: N815


class Renew(Struct, tag="renew"):
    """Extends a lease."""

    leaseId: str  # noqa: N815
    ref: Ref = None
    seconds: int = 60


class SetCredit(Struct, tag="credit"):
    """Sets the credit."""

    messages: int
    ref: Ref = None


class Unsubscribe(Struct, tag="unsubscribe"):
    """Ends the delivery; messages in flight may still be acknowledged."""

    ref: Ref = None


class Ping(Struct, tag="ping"):
    """A ping, for clients that cannot send WebSocket pings."""

    ref: Ref = None


ClientFrame: TypeAlias = Subscribe | AckFrame | Renew | SetCredit | Unsubscribe | Ping

_decoder = msgspec.json.Decoder(ClientFrame)
_TEXTS = {
    "type": "type must be one of: subscribe, ack, renew, credit, unsubscribe, ping",
    "acknowledgments.transactionId": "Each acknowledgment must have a valid transactionId string",
    "acknowledgments.partitionId": "Each acknowledgment must have a valid partitionId string",
}


def parse_frame(body: bytes) -> ClientFrame:
    """Parses a frame of the client.

    Raises:
        BadRequestError: it is invalid; names the field.
    """
    frame: ClientFrame = decode(_decoder, body, _TEXTS)
    return frame


class _AnyFrame(Struct):
    ref: Ref = None


_any = msgspec.json.Decoder(_AnyFrame)


def ref_of(body: bytes) -> Ref:
    """The ``ref`` of an invalid frame, if it has one."""
    try:
        return _any.decode(body).ref
    except (msgspec.DecodeError, RecursionError):
        return None


# ---------------------------------------------------------------- from the server


class SocketLimits(Struct, rename="camel"):
    """The limits of the server, sent to every client.

    Attributes:
        credit: maximum credit, in messages.
        frame_bytes: maximum size of a client's frame.
        ping_seconds: interval of the server's pings; a client that does not answer within that time is disconnected.
    """

    credit: int
    frame_bytes: int
    ping_seconds: int


class Welcome(Struct, tag="welcome"):
    """The first frame of the server."""

    protocol: str
    limits: SocketLimits


class Subscribed(Struct, tag="subscribed"):
    """The delivery starts; with the options in force, including defaults."""

    ref: Ref
    consumerGroup: str  # noqa: N815
    credit: int
    batch: int
    partitions: int
    window: WindowBody | None


class Refused(Struct):
    """One refused ack."""

    index: int
    transactionId: str  # noqa: N815
    partitionId: str  # noqa: N815
    error: str


class AckedFrame(Struct, tag="acked"):
    """The results of the acks of one frame; ``held`` is the number of messages in flight after them."""

    ref: Ref
    acked: int
    dlq: int
    refused: list[Refused]
    held: int


class Renewed(Struct, tag="renewed"):
    """The result of a lease extension, with the fields of the HTTP answer."""

    ref: Ref
    leaseId: str  # noqa: N815
    success: bool
    expiresAt: str | None  # noqa: N815
    error: str | None


class CreditSet(Struct, tag="credit"):
    """The credit from now on."""

    ref: Ref
    messages: int
    held: int


class Unsubscribed(Struct, tag="unsubscribed"):
    """The delivery has ended."""

    ref: Ref
    held: int


class Pong(Struct, tag="pong"):
    """The answer to a ping frame."""

    ref: Ref


class ErrorFrame(Struct, tag="error"):
    """An error; ``problem`` is the problem document of HTTP."""

    ref: Ref | UnsetType
    problem: Problem


ServerFrame: TypeAlias = Welcome | Subscribed | AckedFrame | Renewed | CreditSet | Unsubscribed | Pong | ErrorFrame

_encode = msgspec.json.encode


def render_frame(frame: ServerFrame) -> bytes:
    """Encodes a frame."""
    return _encode(frame)


class WindowTimes(Struct):
    """The times of a window; without slots there are none."""

    messages: int
    closedBy: str  # noqa: N815
    start: str | UnsetType = UNSET
    end: str | UnsetType = UNSET
