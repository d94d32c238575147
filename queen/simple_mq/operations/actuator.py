"""``/actuator``: health, version and metric names in the form of the original."""

import falcon.asgi
from msgspec import Struct

from queen.core.version import VERSION
from queen.http.access import PUBLIC
from queen.http.answers import answer
from queen.http.operation import Answer, operation
from queen.http.request import QueenRequest
from queen.operations.server import Server
from queen.simple_mq.metrics import METER_NAMES


class ComponentHealth(Struct):
    """`UP` or `DOWN`."""

    status: str


class HealthComponents(Struct):
    """The health of the components."""

    db: ComponentHealth


class ActuatorHealth(Struct):
    """`UP` or `DOWN`, in total and per component."""

    status: str
    components: HealthComponents


@operation(
    "GET",
    "/actuator/health",
    "getActuatorHealth",
    "Show whether PostgreSQL is available",
    access=PUBLIC,
    answers=[Answer("`UP`", ActuatorHealth), Answer("`DOWN`", ActuatorHealth, 503)],
    errors=(),
)
async def get_health(server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """``UP`` with 200 if PostgreSQL is available, else ``DOWN`` with 503."""
    up = await server.run(lambda context: context.database_answers())
    status = "UP" if up else "DOWN"
    answer(resp, ActuatorHealth(status, HealthComponents(ComponentHealth(status))), 200 if up else 503)


class AppInfo(Struct):
    """The application."""

    name: str
    version: str


class ActuatorInfo(Struct):
    """Name and version of the server."""

    app: AppInfo


@operation(
    "GET",
    "/actuator/info",
    "getActuatorInfo",
    "Show name and version",
    access=PUBLIC,
    answers=[Answer("Name and version", ActuatorInfo)],
    errors=(),
)
async def get_info(_server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """Needs no database."""
    answer(resp, ActuatorInfo(AppInfo("Queen for Python", VERSION)))


class MeterNames(Struct):
    """Names of metrics."""

    names: list[str]


@operation(
    "GET",
    "/actuator/metrics",
    "listActuatorMetrics",
    "List metric names",
    access=PUBLIC,
    answers=[Answer("Names of metrics as in the original simple-mq", MeterNames)],
    errors=(),
)
async def list_metrics(_server: Server, _req: QueenRequest, resp: falcon.asgi.Response) -> None:
    """The values are at ``/actuator/prometheus``."""
    answer(resp, MeterNames(list(METER_NAMES)))
