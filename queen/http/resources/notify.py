"""``POST /internal/api/notify``: what other instances say happened in a queue."""

import time

import falcon
import falcon.asgi
import msgspec
from msgspec import Struct

from queen.core.errors import BadRequestError
from queen.core.seal import is_signed
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


_sheets = msgspec.json.Decoder(list[msgspec.Raw] | NotifyBody)


class NotifyResource:
    """Wakes long polls. The request is signed with the secret of all instances, or refused."""

    def __init__(self, engine: EngineThread, secret: str, body_bytes_max: int) -> None:
        self._engine, self._secret, self._body_bytes_max = engine, secret.encode(), body_bytes_max

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """Answers when the notice is on its way to the waiters; a repeated one is passed over."""
        body = await read_body(req, self._body_bytes_max)
        if refusal := self._refusal(req.get_header("Queen-Signature") or "", body):
            problems.answer(resp, problems.problem(req, 403, refusal, "not_signed"))
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

    def _refusal(self, header: str, body: bytes) -> str:
        if not self._secret:
            return "Notices need QUEEN_SYNC_SECRET, which this server was not given"
        if not is_signed(self._secret, header, body, time.time_ns() // 1_000_000):
            return "Queen-Signature is missing, wrong, or too old (do the clocks agree?)"
        return ""


def _sheet(body: NotifyBody) -> bytes:
    if not body.queue:
        raise BadRequestError("queue is required", "queue")
    return sheet_of(Notice(check_name(body.queue, "queue"), 1))
