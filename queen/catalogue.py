"""All operations of the HTTP interface, and the metrics that it shows: those of Queen, of simple-mq and of SQS."""

from collections.abc import Sequence

from queen.config import Settings
from queen.engine.handle import EngineHandle
from queen.http.metrics_collector import MetricsCollector
from queen.http.operation import Topic
from queen.http.routes import Route, routes_of
from queen.http.socket.sockets import Sockets
from queen.operations import catalogue as queen
from queen.operations.server import server_of
from queen.simple_mq.catalogue import SIMPLE_MQ
from queen.simple_mq.metrics import statistics_of_queues
from queen.simple_mq.sqs_metrics import statistics_of_sqs
from queen.sqs.catalogue import SQS

TOPICS: Sequence[Topic] = (*queen.TOPICS, SIMPLE_MQ, SQS)


def routes(settings: Settings, engine: EngineHandle, sockets: Sockets) -> Sequence[Route]:
    """All routes of a server."""
    server = server_of(settings, engine, sockets, metrics_of(settings, engine), TOPICS)
    return routes_of([operation for topic in TOPICS for operation in topic.operations], server)


def metrics_of(settings: Settings, engine: EngineHandle) -> MetricsCollector:
    """Collects all metrics of an instance."""
    return MetricsCollector(engine, settings.telemetry.series_max, [statistics_of_queues, statistics_of_sqs])
