"""``GET /metrics/prometheus``."""

import falcon
import falcon.asgi

from queen.http.figures import Figures
from queen.metrics.registry import CONTENT_TYPE, render


class PrometheusResource:
    """All metrics of the instance, and those of its queues, in Prometheus' text format."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    async def on_get(self, _req: falcon.asgi.Request, resp: falcon.asgi.Response) -> None:
        """200, while the database is away too: then without what only it knows."""
        families = await self._figures.asked()
        resp.content_type = CONTENT_TYPE
        resp.set_header("Cache-Control", "no-cache")
        resp.data = render(families)
