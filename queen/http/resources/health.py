"""``GET /health``."""

import os
from importlib.metadata import version

import falcon
import falcon.asgi
import msgspec

from queen.core.errors import DatabaseUnavailableError
from queen.core.operations import JobType
from queen.engine.context import Context
from queen.engine.thread import EngineThread

VERSION = version("queen-for-python")


async def _ping(context: Context) -> None:
    await context.administration.ping()


class HealthResource:
    """Whether the server can do its work."""

    def __init__(self, engine: EngineThread) -> None:
        self._engine = engine

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """200 when the database answers, else 503."""
        try:
            await self._engine.submit(JobType.CUSTOM, _ping).future
            healthy = True
        except DatabaseUnavailableError:
            healthy = False
        resp.status = 200 if healthy else 503
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(
            {
                "status": "healthy" if healthy else "unhealthy",
                "database": "connected" if healthy else "disconnected",
                "server": "Queen for Python",
                "version": VERSION,
                "worker_id": os.getpid(),
            }
        )
