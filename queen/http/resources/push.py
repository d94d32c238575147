"""``POST /api/v1/push``."""

import falcon
import falcon.asgi

from queen.core.operations import Buffered, JobType
from queen.engine.thread import EngineThread
from queen.http.parsing import parse_push_items, push_decoder, to_push
from queen.http.rendering import render_buffered, render_push
from queen.http.request import QueenRequest, read_body


class PushResource:
    """Appends messages."""

    def __init__(self, engine: EngineThread, body_bytes_max: int) -> None:
        self._engine, self._body_bytes_max = engine, body_bytes_max

    async def on_post(self, req: QueenRequest, resp: falcon.asgi.Response) -> None:
        """Stores all items of the request, or none; while PostgreSQL is away, in the spool."""
        body = await read_body(req, self._body_bytes_max)
        req.room.check(push_decoder, body)
        items = parse_push_items(body)
        resp.status = 201
        resp.content_type = falcon.MEDIA_JSON
        if not items:
            resp.data = b"[]"
            return
        push = to_push(items, req.subject)
        pushed = await self._engine.submit(JobType.PUSH, push).future
        resp.data = render_buffered(items) if isinstance(pushed, Buffered) else render_push(items, push.lots, pushed)
