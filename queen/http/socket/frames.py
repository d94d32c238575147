"""The frames of the protocol ``queen.v1``: JSON texts whose ``type`` says which they are."""

from typing import TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from queen.http.parsing import decode
from queen.http.problems import Problem
from queen.http.resources.ack import AckBody

PROTOCOL = "queen.v1"

#: Chosen by the client to find the answer to a frame.
Ref: TypeAlias = str | int | None


# ---------------------------------------------------------------- from the client


class WindowBody(Struct):
    """How to cut windows: by number, by time, or both."""

    messages: int | None = None
    seconds: int | None = None


class Subscribe(Struct, tag="subscribe"):
    """Begins the delivery: a pop that is repeated for as long as there is credit."""

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
    """Says what became of all messages of a batch that are still held, or of single ones."""

    ref: Ref = None
    batch: int | None = None
    status: str | None = None
    error: str | None = None
    acknowledgments: list[AckBody] | None = None
    consumerGroup: str | None = None  # noqa: N815


class Renew(Struct, tag="renew"):
    """Asks for more time for a lease."""

    leaseId: str  # noqa: N815
    ref: Ref = None
    seconds: int = 60


class SetCredit(Struct, tag="credit"):
    """How many messages the consumer wants to hold from now on."""

    messages: int
    ref: Ref = None


class Unsubscribe(Struct, tag="unsubscribe"):
    """Ends the delivery; what is held may still be acked."""

    ref: Ref = None


class Ping(Struct, tag="ping"):
    """Is anybody there? For clients that cannot send pings of the WebSocket itself."""

    ref: Ref = None


ClientFrame: TypeAlias = Subscribe | AckFrame | Renew | SetCredit | Unsubscribe | Ping

_decoder = msgspec.json.Decoder(ClientFrame)
_TEXTS = {
    "type": "type must be one of: subscribe, ack, renew, credit, unsubscribe, ping",
    "acknowledgments.transactionId": "Each acknowledgment must have a valid transactionId string",
    "acknowledgments.partitionId": "Each acknowledgment must have a valid partitionId string",
}


def parse_frame(body: bytes) -> ClientFrame:
    """A frame of the client.

    Raises:
        BadRequestError: it is none; names the field.
    """
    frame: ClientFrame = decode(_decoder, body, _TEXTS)
    return frame


class _AnyFrame(Struct):
    ref: Ref = None


_any = msgspec.json.Decoder(_AnyFrame)


def ref_of(body: bytes) -> Ref:
    """The ``ref`` of a frame that is otherwise wrong, if it has one."""
    try:
        return _any.decode(body).ref
    except (msgspec.DecodeError, RecursionError):
        return None


# ---------------------------------------------------------------- from the server


class SocketLimits(Struct, rename="camel"):
    """What the server allows, told to every client.

    Attributes:
        credit: the most that a consumer may hold, in messages.
        frame_bytes: the largest frame of a client.
        ping_seconds: how often the server pings; a client that does not answer within that time is cut off.
    """

    credit: int
    frame_bytes: int
    ping_seconds: int


class Welcome(Struct, tag="welcome"):
    """The first frame of the server."""

    protocol: str
    limits: SocketLimits


class Subscribed(Struct, tag="subscribed"):
    """The delivery begins; says what holds, defaults included."""

    ref: Ref
    consumerGroup: str  # noqa: N815
    credit: int
    batch: int
    partitions: int
    window: WindowBody | None


class Refused(Struct):
    """One ack that was not carried out."""

    index: int
    transactionId: str  # noqa: N815
    partitionId: str  # noqa: N815
    error: str


class AckedFrame(Struct, tag="acked"):
    """What became of the acks of one frame; ``held`` counts what the consumer holds after them."""

    ref: Ref
    acked: int
    dlq: int
    refused: list[Refused]
    held: int


class Renewed(Struct, tag="renewed"):
    """What became of a lease; the fields of its extension over HTTP."""

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
    """Nothing more is delivered."""

    ref: Ref
    held: int


class Pong(Struct, tag="pong"):
    """The answer to a ping frame."""

    ref: Ref


class ErrorFrame(Struct, tag="error"):
    """Something went wrong; ``problem`` is what HTTP would have answered."""

    ref: Ref | UnsetType
    problem: Problem


ServerFrame: TypeAlias = Welcome | Subscribed | AckedFrame | Renewed | CreditSet | Unsubscribed | Pong | ErrorFrame

_encode = msgspec.json.encode


def render_frame(frame: ServerFrame) -> str:
    """A frame as it is sent."""
    return _encode(frame).decode()


class WindowTimes(Struct):
    """What a window's frame says of it; without slots there are no times."""

    messages: int
    closedBy: str  # noqa: N815
    start: str | UnsetType = UNSET
    end: str | UnsetType = UNSET
