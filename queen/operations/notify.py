"""Receives notifications of another instance: ``POST /internal/api/notify``."""

import time

import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.errors import BadRequestError
from queen.core.limits import NOTICES_BYTES_MAX
from queen.core.seal import is_signed, may_be_signed
from queen.engine.notifications import packet_of
from queen.engine.ports import Notification
from queen.http import problems
from queen.http.access import PUBLIC
from queen.http.answers import StatusOnly, answer
from queen.http.fields import Label
from queen.http.operation import Answer, Parameter, operation
from queen.http.parsing import check_name
from queen.http.request import QueenRequest, read_body
from queen.operations.server import Server


class NotifyBody(Struct):
    """One notification, in the form of the original.

    Attributes:
        queue: the queue that has news; required.
        partition: ignored.
    """

    queue: Label = ""
    partition: str | None = None


_NOT_SIGNED = "Queen-Signature is missing, wrong, or too old (are the clocks in sync?)"
_sheets = msgspec.json.Decoder(list[msgspec.Raw] | NotifyBody)


@operation(
    "POST",
    "/internal/api/notify",
    "notify",
    "Receive notifications of another instance",
    # Needs no token: the request is signed with the secret of the instances.
    access=PUBLIC,
    answers=[Answer("They are passed to waiting consumers", StatusOnly)],
    errors=(400, 403, 413),
    description="Signed with the secret of the instances (`QUEEN_SYNC_SECRET`). A list holds batches of "
    "notifications, each signed.",
    parameters=[
        Parameter(
            "Queen-Signature",
            "Time and HMAC-SHA-256 of the body, computed by the sending instance",
            {"type": "string"},
            "header",
        ),
    ],
    body=NotifyBody | list,
)
async def notify(server: Server, req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Passes notifications to waiting long polls; repeated ones are ignored.

    Anybody can send a request, so the server reads as little as possible: nothing if the header already shows that the
    signature is invalid.
    """
    secret, signature = server.settings.peers.secret.encode(), req.get_header("Queen-Signature") or ""
    if not secret:
        _refuse(req, resp, "This server has no peers: set QUEEN_UDP_PEERS, QUEEN_PEERS or QUEEN_SYNC_SECRET")
        return
    if not may_be_signed(signature, _now_ms()):
        _refuse(req, resp, _NOT_SIGNED)
        return
    body = await read_body(req, NOTICES_BYTES_MAX, "the limit for notifications")
    if not is_signed(secret, signature, body, _now_ms()):
        _refuse(req, resp, _NOT_SIGNED)
        return
    for packet in _packets(body):
        server.engine.receive_packet(packet)
    answer(resp, StatusOnly("ok"))


def _packets(body: bytes) -> list[bytes]:
    try:
        decoded = _sheets.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise BadRequestError(f"The body is neither a notification nor a list of notifications: {problem}") from None
    if isinstance(decoded, list):
        return [bytes(packet) for packet in decoded]
    if not decoded.queue:
        raise BadRequestError("queue is required", "queue")
    return [packet_of(Notification(check_name(decoded.queue, "queue"), 1))]


def _refuse(req: QueenRequest, resp: falcon.asgi.Response, why: str) -> None:
    problems.answer(resp, problems.problem(req, 403, why, "not_signed"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
