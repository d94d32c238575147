"""The route table: path, resource, and the access level of each method. OpenAPI, authentication and tests read it."""

from collections.abc import Mapping, Sequence
from typing import Any

import falcon.asgi
from msgspec import Struct

from queen.config import Settings
from queen.engine.thread import EngineThread
from queen.http.access import Access, Levels
from queen.http.contract.document import document
from queen.http.figures import Figures
from queen.http.pops import PopDefaults, Pops
from queen.http.resources import catalogue, consumer_groups, dead_letters, messages, status, traces
from queen.http.resources.ack import AckResource
from queen.http.resources.analytics import postgres, queues, workers
from queen.http.resources.contract import ContractResource, DocumentationResource
from queen.http.resources.dashboard import DashboardResource
from queen.http.resources.health import HealthResource
from queen.http.resources.identity import IdentityResource
from queen.http.resources.leases import LeaseResource
from queen.http.resources.maintenance import BuffersResource, MaintenanceResource
from queen.http.resources.metrics import MetricsResource
from queen.http.resources.notify import NotifyResource
from queen.http.resources.pop import PopResource
from queen.http.resources.prometheus import PrometheusResource
from queen.http.resources.push import PushResource
from queen.http.resources.queues import ConfigureResource, QueueResource
from queen.http.resources.simple_mq.actuator import (
    ActuatorHealthResource,
    ActuatorInfoResource,
    ActuatorMetricsResource,
)
from queen.http.resources.simple_mq.messages import MessageResource, MessagesResource
from queen.http.resources.simple_mq.queues import QueueResource as SimpleMqQueueResource
from queen.http.resources.simple_mq.queues import QueuesResource as SimpleMqQueuesResource
from queen.http.resources.streams import StreamCycleResource, StreamQueriesResource, StreamStateResource
from queen.http.resources.subscribe import SubscribeResource
from queen.http.resources.transactions import TransactionResource
from queen.http.socket.frames import SocketLimits
from queen.http.socket.session import SessionSettings
from queen.http.socket.sockets import Sockets
from queen.security.authentication import role_names
from queen.security.keyring import Keyring

PUBLIC, READ_ONLY, READ_WRITE, ADMIN = Access


#: Levels whose GET changes nothing: a pop's does.
_READING = (PUBLIC, READ_ONLY)
#: Stands among the methods of a route for its WebSocket.
WEBSOCKET = "WEBSOCKET"


class Route(Struct, frozen=True):
    """One path.

    Attributes:
        path: falcon's URI template.
        resource: answers it.
        access: the level that each method needs; exactly the methods that the resource answers here, ``WEBSOCKET``
            being one.
        suffix: falcon's, where a resource answers several paths.
        audited: whether what is changed here is administration, and not messages that come and go: the log names
            who did it.
    """

    path: str
    resource: object
    access: Mapping[str, Access]
    suffix: str | None = None
    audited: bool = False


def routes(settings: Settings, engine: EngineThread, sockets: Sockets) -> Sequence[Route]:
    """All routes of the server."""
    body_bytes_max = settings.max_body_bytes
    keys = Keyring.from_settings(settings.encryption_key, settings.encryption_old_keys)
    defaults = PopDefaults(settings.default_batch, settings.default_timeout_ms, settings.default_subscription_mode)
    pops = Pops(engine, defaults, keys)
    ack, pop = AckResource(engine, body_bytes_max, pops), PopResource(engine, pops)
    replayer = dead_letters.Replayer(engine)
    health, maintenance = HealthResource(engine), MaintenanceResource(engine)
    prometheus = PrometheusResource(Figures.of(settings, engine))
    documentation, dashboard = DocumentationResource(), DashboardResource()
    table = [
        Route("/health", health, {"GET": PUBLIC}),
        Route("/health/live", health, {"GET": PUBLIC}, suffix="live"),
        Route("/health/ready", health, {"GET": PUBLIC}, suffix="ready"),
        Route("/metrics/prometheus", prometheus, {"GET": PUBLIC}),
        Route("/actuator/prometheus", prometheus, {"GET": PUBLIC}),
        Route("/auth/me", IdentityResource(Levels(role_names(settings))), {"GET": READ_ONLY}),
        # ------------------------------------------------------------ messages
        Route("/api/v1/push", PushResource(engine, body_bytes_max), {"POST": READ_WRITE}),
        Route("/api/v1/pop", pop, {"GET": READ_WRITE}),
        Route("/api/v1/pop/queue/{place:path}", pop, {"GET": READ_WRITE}),
        Route(
            "/api/v1/subscribe",
            SubscribeResource(engine, sockets, _session_settings(settings), keys),
            {"GET": PUBLIC, WEBSOCKET: READ_WRITE},
        ),
        Route("/api/v1/ack", ack, {"POST": READ_WRITE}),
        Route("/api/v1/ack/batch", ack, {"POST": READ_WRITE}, suffix="batch"),
        Route("/api/v1/lease/{lease}/extend", LeaseResource(engine), {"POST": READ_WRITE}),
        Route("/api/v1/transaction", TransactionResource(engine, body_bytes_max), {"POST": READ_WRITE}),
        # ------------------------------------------------------------ streams
        Route("/streams/v1/queries", StreamQueriesResource(engine, body_bytes_max), {"POST": READ_WRITE}),
        Route("/streams/v1/cycle", StreamCycleResource(engine, body_bytes_max), {"POST": READ_WRITE}),
        Route("/streams/v1/state/get", StreamStateResource(engine, body_bytes_max), {"POST": READ_ONLY}),
        # ------------------------------------------------------------ queues
        Route(
            "/api/v1/configure",
            ConfigureResource(engine, body_bytes_max, encrypts=keys is not None),
            {"GET": READ_ONLY, "POST": READ_WRITE},
            audited=True,
        ),
        Route("/api/v1/resources/queues", catalogue.QueueListResource(engine), {"GET": READ_ONLY}),
        Route(
            "/api/v1/resources/queues/{queue:path}",
            QueueResource(engine),
            {"GET": READ_ONLY, "DELETE": ADMIN},
            audited=True,
        ),
        Route("/api/v1/resources/partitions", catalogue.PartitionListResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/resources/namespaces", catalogue.NamespacesResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/resources/tasks", catalogue.TasksResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/resources/overview", catalogue.OverviewResource(engine), {"GET": READ_ONLY}),
        # ------------------------------------------------------------ single messages, dead letters
        Route("/api/v1/messages", messages.MessageListResource(engine, keys), {"GET": READ_ONLY}),
        Route(
            "/api/v1/messages/{place:path}",
            messages.MessageResource(replayer, keys),
            {"GET": READ_ONLY, "POST": READ_WRITE, "DELETE": READ_WRITE},
            audited=True,
        ),
        Route(
            "/api/v1/dlq",
            dead_letters.DeadLetterListResource(engine, keys),
            {"GET": READ_ONLY, "DELETE": ADMIN},
            audited=True,
        ),
        Route(
            "/api/v1/dlq/{dead_letter}", dead_letters.DeadLetterResource(engine), {"DELETE": READ_WRITE}, audited=True
        ),
        Route(
            "/api/v1/dlq/{dead_letter}/replay",
            dead_letters.ReplayResource(replayer),
            {"POST": READ_WRITE},
            audited=True,
        ),
        # ------------------------------------------------------------ consumer groups, statistics
        Route("/api/v1/consumer-groups", consumer_groups.GroupListResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/consumer-groups/lagging", consumer_groups.LaggingResource(engine), {"GET": READ_ONLY}),
        Route(
            "/api/v1/consumer-groups/{place:path}",
            consumer_groups.GroupResource(engine),
            {"GET": READ_ONLY, "POST": READ_WRITE, "DELETE": ADMIN},
            audited=True,
        ),
        Route("/api/v1/stats/refresh", consumer_groups.RefreshResource(engine), {"POST": ADMIN}),
        # ------------------------------------------------------------ traces
        Route("/api/v1/traces", traces.TraceRecordResource(engine, body_bytes_max), {"POST": READ_WRITE}),
        Route("/api/v1/traces/names", traces.TraceNamesResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/traces/by-name/{place:path}", traces.NamedTracesResource(engine, keys), {"GET": READ_ONLY}),
        Route("/api/v1/traces/{place:path}", traces.MessageTracesResource(engine), {"GET": READ_ONLY}),
        # ------------------------------------------------------------ status, analytics
        Route("/api/v1/status", status.StatusResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/status/queues", status.StatusQueuesResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/status/queues/{place:path}", status.StatusQueueResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/status/analytics", status.StatusAnalyticsResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/analytics/system-metrics", workers.SystemMetricsResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/analytics/worker-metrics", workers.WorkerMetricsResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/analytics/queue-lag", queues.QueueLagResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/analytics/queue-ops", queues.QueueOpsResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/analytics/queue-parked-replicas", queues.ParkedResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/analytics/retention", queues.RetentionResource(engine), {"GET": READ_ONLY}),
        Route("/api/v1/analytics/postgres-stats", postgres.PostgresResource(engine), {"GET": READ_ONLY}),
        Route("/metrics", MetricsResource(engine), {"GET": PUBLIC}),
        # ------------------------------------------------------------ spool
        Route("/api/v1/system/maintenance", maintenance, {"GET": ADMIN, "POST": ADMIN}, audited=True),
        Route("/api/v1/system/maintenance/pop", maintenance, {"GET": ADMIN, "POST": ADMIN}, suffix="pop", audited=True),
        Route("/api/v1/status/buffers", BuffersResource(engine), {"GET": READ_ONLY}),
        # ------------------------------------------------------------ between instances
        # Public as far as tokens go: the request is signed with the secret of the instances.
        Route("/internal/api/notify", NotifyResource(engine, settings.sync_secret), {"POST": PUBLIC}),
        *_simple_mq_routes(settings, engine),
        # ------------------------------------------------------------ the contract
        Route("/openapi.json", ContractResource(lambda: document(levels(table))), {"GET": PUBLIC}),
        Route("/docs", documentation, {"GET": PUBLIC}),
        Route("/docs/{asset}", documentation, {"GET": PUBLIC}, suffix="asset"),
        # ------------------------------------------------------------ the dashboard
        Route("/", dashboard, {"GET": PUBLIC}),
        Route("/dashboard/{place:path}", dashboard, {"GET": PUBLIC}, suffix="file"),
    ]
    return table


def levels(table: Sequence[Route]) -> Mapping[str, Mapping[str, Access]]:
    """The access level of each method, by path."""
    return {route.path: route.access for route in table}


def _simple_mq_routes(settings: Settings, engine: EngineThread) -> Sequence[Route]:
    body_bytes_max, message_bytes_max = settings.max_body_bytes, settings.smq_message_bytes
    queues = SimpleMqQueuesResource(engine, body_bytes_max, message_bytes_max, settings.smq_queues)
    queue = SimpleMqQueueResource(engine)
    messages = MessagesResource(engine, body_bytes_max, message_bytes_max)
    message = MessageResource(engine, body_bytes_max)
    one = "/api/queues/{queue_id}"
    return [
        Route("/api/queues", queues, {"POST": READ_WRITE}, audited=True),
        Route("/actuator/health", ActuatorHealthResource(engine), {"GET": PUBLIC}),
        Route("/actuator/info", ActuatorInfoResource(), {"GET": PUBLIC}),
        Route("/actuator/metrics", ActuatorMetricsResource(), {"GET": PUBLIC}),
        Route(one, queue, {"GET": READ_ONLY, "DELETE": ADMIN}, audited=True),
        Route(f"{one}/requeue", queue, {"POST": READ_WRITE}, suffix="requeue", audited=True),
        Route(f"{one}/messages", messages, {"POST": READ_WRITE, "GET": READ_WRITE}),
        Route(f"{one}/messages/peek", messages, {"GET": READ_ONLY}, suffix="peek"),
        Route(f"{one}/messages/ack", messages, {"POST": READ_WRITE}, suffix="ack"),
        Route(f"{one}/messages/{{message_id}}", message, {"DELETE": READ_WRITE}),
        Route(f"{one}/messages/{{message_id}}/requeue", message, {"POST": READ_WRITE}, suffix="requeue", audited=True),
        Route(f"{one}/messages/{{message_id}}/visibility", message, {"POST": READ_WRITE}, suffix="visibility"),
    ]


def _session_settings(settings: Settings) -> SessionSettings:
    return SessionSettings(
        SocketLimits(settings.socket_credit_max, settings.socket_frame_bytes, settings.socket_ping_s),
        settings.default_subscription_mode,
        settings.stream_poll_initial_ms / 1000,
        settings.stream_poll_max_ms / 1000,
    )


def add_routes(app: "falcon.asgi.App[Any, Any]", table: Sequence[Route]) -> None:
    """Adds all routes to an application; where GET only reads, HEAD is answered like it, without the body.

    Raises:
        ValueError: a route says nothing of a method that its resource answers, or names one that it does not answer.
    """
    for route in table:
        ending = f"_{route.suffix}" if route.suffix else ""
        methods = (*(method for method in falcon.HTTP_METHODS if method != "HEAD"), WEBSOCKET)
        answered = {method for method in methods if hasattr(route.resource, f"on_{method.lower()}{ending}")}
        if answered != set(route.access):
            raise ValueError(f"{route.path} answers {sorted(answered)}, but has levels for {sorted(route.access)}")
        if route.access.get("GET") in _READING:
            setattr(route.resource, f"on_head{ending}", getattr(route.resource, f"on_get{ending}"))
        app.add_route(route.path, route.resource, suffix=route.suffix)
