"""``POST /internal/api/notify``: what other instances say happened in a queue."""

import time

import falcon
import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.errors import BadRequestError
from queen.core.limits import NOTICES_BYTES_MAX
from queen.core.seal import is_signed, may_be_signed
from queen.engine.notices import sheet_of
from queen.engine.ports import Notice
from queen.engine.thread import EngineThread
from queen.http import problems
from queen.http.fields import Label
from queen.http.parsing import check_name
from queen.http.request import QueenRequest, read_body


class NotifyBody(Struct):
    """One notice, as the original's interface has it.

    Attributes:
        queue: in which something happened; required.
        partition: says nothing more to those who wait.
    """

    queue: Label = ""
    partition: str | None = None


_NOT_SIGNED = "Queen-Signature is missing, wrong, or too old (do the clocks agree?)"
_sheets = msgspec.json.Decoder(list[msgspec.Raw] | NotifyBody)


class NotifyResource:
    """Wakes long polls. The request is signed with the secret of all instances, or refused.

    Anybody may send one, so as little as possible of it is read: nothing where the header shows already that the
    signature cannot be good.
    """

    def __init__(self, engine: EngineThread, secret: str) -> None:
        self._engine, self._secret = engine, secret.encode()

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """Answers when the notice is on its way to the waiters; a repeated one is passed over."""
        signature = req.get_header("Queen-Signature") or ""
        if not self._secret:
            _refuse(req, resp, "Notices need QUEEN_SYNC_SECRET, which this server was not given")
            return
        if not may_be_signed(signature, _now_ms()):
            _refuse(req, resp, _NOT_SIGNED)
            return
        body = await read_body(req, NOTICES_BYTES_MAX, "the limit of notices")
        if not is_signed(self._secret, signature, body, _now_ms()):
            _refuse(req, resp, _NOT_SIGNED)
            return
        try:
            decoded = _sheets.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise BadRequestError(f"The body is neither a notice nor a list of sheets: {problem}") from None
        sheets = [bytes(sheet) for sheet in decoded] if isinstance(decoded, list) else [_sheet(decoded)]
        for sheet in sheets:
            self._engine.hear(sheet)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = b'{"status":"ok"}'


def _refuse(req: QueenRequest, resp: falcon.asgi.Response, why: str) -> None:
    problems.answer(resp, problems.problem(req, 403, why, "not_signed"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _sheet(body: NotifyBody) -> bytes:
    if not body.queue:
        raise BadRequestError("queue is required", "queue")
    return sheet_of(Notice(check_name(body.queue, "queue"), 1))
