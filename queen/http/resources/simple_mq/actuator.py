"""``/actuator``: what the original's operators look at."""

import falcon
import falcon.asgi
import msgspec

from queen.core.operations import JobType
from queen.engine.context import Context
from queen.engine.thread import EngineThread
from queen.http.resources.health import VERSION
from queen.metrics.simple_mq import METER_NAMES


async def _database_answers(context: Context) -> bool:
    return await context.database_answers()


class ActuatorHealthResource:
    """Whether the server can do its work."""

    def __init__(self, engine: EngineThread) -> None:
        self._engine = engine

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """``UP`` with 200 when the database answers, else ``DOWN`` with 503."""
        up = await self._engine.submit(JobType.CUSTOM, _database_answers).future
        status = "UP" if up else "DOWN"
        resp.status = 200 if up else 503
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode({"status": status, "components": {"db": {"status": status}}})


class ActuatorInfoResource:
    """What runs here."""

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """Name and version."""
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode({"app": {"name": "Queen for Python", "version": VERSION}})


class ActuatorMetricsResource:
    """Which metrics there are; their values are at ``/actuator/prometheus``."""

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """The names, as the original writes them."""
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode({"names": METER_NAMES})
