"""``GET /api/v1/pop…``: pops of a queue, a partition, or all queues of a namespace and task."""

from typing import Any
from urllib.parse import unquote_to_bytes

import falcon
import falcon.asgi

from queen.core.errors import BadRequestError
from queen.core.operations import JobType
from queen.engine.thread import EngineThread
from queen.http.parsing import parse_boolean
from queen.http.pops import Pops, place_of
from queen.http.request import QueenRequest


class PopResource:
    """Delivers messages, at once or when there are some."""

    def __init__(self, engine: EngineThread, pops: Pops) -> None:
        self._engine, self._pops = engine, pops

    async def on_get(self, req: QueenRequest, resp: falcon.asgi.Response, place: str = "") -> None:
        """``place`` says whether the path names a queue: ``…/queue/name`` or ``…/queue/name/partition/name``."""
        pop = self._pops.of(req.get_param, _split(req.scope["raw_path"]) if place else _labels(req))
        popped = await self._pops.answered(req, self._engine.submit(JobType.POP, pop))
        if not popped.claims:
            resp.status = 204
            return
        resp.content_type = falcon.MEDIA_JSON
        resp.data = self._pops.render(popped, pop, autopilot=parse_boolean(req.get_param("autopilot")))


def _labels(req: QueenRequest) -> dict[str, Any]:
    namespace, task = req.get_param("namespace"), req.get_param("task")
    if not namespace and not task:
        raise BadRequestError("namespace or task is required", "namespace")
    return place_of(None, None, namespace, task)


def _split(path: bytes) -> dict[str, Any]:
    """Queue and partition of a path, cut before it is decoded: names may hold slashes, encoded or not."""
    place = path.partition(b"/pop/queue/")[2]
    queue, separator, partition = place.partition(b"/partition/")
    named = separator and partition not in (b"", b"null")
    return place_of(_decoded(queue, "queue"), _decoded(partition, "partition") if named else None, None, None)


def _decoded(text: bytes, field: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise BadRequestError(f"{field} is not UTF-8", field) from None
