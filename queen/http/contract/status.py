"""Status, analytics and metrics."""

from queen.http.contract.operation import Answer, Operation, Parameter, Topic
from queen.http.contract.parameters import (
    FROM,
    HOSTNAME,
    NAMESPACE,
    PARTITION,
    QUEUE,
    QUEUE_PATH,
    QUEUES,
    TASK,
    TIME,
    TO,
    WORKER,
    limit,
    offset,
    page,
    series,
)
from queen.http.queries import LIMIT
from queen.http.resources.analytics.postgres import PostgresAnswer
from queen.http.resources.analytics.queues import ParkedAnswer, QueueLagPoint, QueueOpsAnswer, RetentionAnswer
from queen.http.resources.analytics.workers import SystemMetricsAnswer, WorkerMetricsAnswer
from queen.http.resources.catalogue import PARTITIONS_LIMIT
from queen.http.resources.maintenance import Buffers
from queen.http.resources.metrics import MetricsAnswer
from queen.http.resources.status import (
    INTERVALS,
    AnalyticsAnswer,
    StatusAnswer,
    StatusMessage,
    StatusQueueAnswer,
    StatusQueueList,
)
from queen.metrics.registry import CONTENT_TYPE

_TIME = (FROM, TO)
_WORKERS = (*_TIME, HOSTNAME, WORKER)
_SERIES = series(
    "Most queues, the busiest first; by default as many as make 2,500 points over the time, at most 10,000"
)

TOPIC = Topic(
    "Status",
    "What happens now and happened lately. Series come in buckets of `bucketMinutes`, newest first.",
    [
        Operation(
            "GET",
            "/api/v1/status",
            "getStatus",
            "The whole installation over a time",
            [Answer("Throughput, and a page of queues; the rest is of all of them", StatusAnswer)],
            (400, 503),
            parameters=(QUEUE, NAMESPACE, TASK, *_TIME, *page(LIMIT)),
        ),
        Operation(
            "GET",
            "/api/v1/status/queues",
            "listQueueStatus",
            "Status of queues",
            [Answer("A page, newest first", StatusQueueList)],
            (400, 503),
            parameters=(NAMESPACE, TASK, *page(100)),
        ),
        Operation(
            "GET",
            "/api/v1/status/queues/{queue}",
            "getQueueStatus",
            "Status of a queue and its partitions",
            [Answer("A page of partitions; totals are those of the whole queue", StatusQueueAnswer)],
            (400, 404, 503),
            parameters=(QUEUE_PATH, PARTITION, *page(PARTITIONS_LIMIT)),
            route="/api/v1/status/queues/{place:path}",
        ),
        Operation(
            "GET",
            "/api/v1/status/queues/{queue}/messages",
            "listQueueMessages",
            "Newest messages of a queue",
            [Answer("A page", list[StatusMessage])],
            (400, 404, 503),
            parameters=(QUEUE_PATH, limit(50), offset(10_000)),
            route="/api/v1/status/queues/{place:path}",
        ),
        Operation(
            "GET",
            "/api/v1/status/analytics",
            "getAnalytics",
            "Messages pushed over a time",
            [Answer("Oldest interval first; intervals without messages are there", AnalyticsAnswer)],
            (400, 503),
            parameters=(
                Parameter(
                    "interval", "Length of an interval; `hour` by default", {"type": "string", "enum": list(INTERVALS)}
                ),
                QUEUE,
                NAMESPACE,
                TASK,
                Parameter("from", "Beginning of the time; by default a day before `to`", TIME),
                TO,
            ),
        ),
        Operation(
            "GET",
            "/api/v1/status/buffers",
            "getBuffers",
            "What waits in the spool",
            [Answer("Also while the database is away", Buffers)],
            (503,),
        ),
        Operation(
            "GET",
            "/api/v1/analytics/system-metrics",
            "getSystemMetrics",
            "CPU, memory and connections of workers",
            [Answer("A series a worker, the one seen last first; `replicaCount` counts all", SystemMetricsAnswer)],
            (400, 503),
            parameters=(
                *_WORKERS,
                *series("Most workers; by default as many as make 900 points over the time, at most 10,000"),
            ),
        ),
        Operation(
            "GET",
            "/api/v1/analytics/worker-metrics",
            "getWorkerMetrics",
            "What workers did",
            [
                Answer(
                    "A series over all workers, those that are alive, and a page of queues",
                    WorkerMetricsAnswer,
                )
            ],
            (400, 503),
            parameters=(*_WORKERS, *page(LIMIT)),
        ),
        Operation(
            "GET",
            "/api/v1/analytics/queue-lag",
            "getQueueLag",
            "How old messages were when they were popped",
            [Answer("By queue and bucket: the busiest queues", list[QueueLagPoint])],
            (400, 503),
            parameters=(QUEUES, *_TIME, *_SERIES),
        ),
        Operation(
            "GET",
            "/api/v1/analytics/queue-ops",
            "getQueueOperations",
            "What was done for queues",
            [Answer("By queue and bucket: the busiest queues, and totals of all", QueueOpsAnswer)],
            (400, 503),
            parameters=(QUEUES, *_TIME, *_SERIES),
        ),
        Operation(
            "GET",
            "/api/v1/analytics/queue-parked-replicas",
            "getParkedPops",
            "Long polls that waited",
            [Answer("By queue, worker and bucket: a page of points", ParkedAnswer)],
            (400, 503),
            parameters=(QUEUES, *_TIME, *page(5000)),
        ),
        Operation(
            "GET",
            "/api/v1/analytics/retention",
            "getRetention",
            "What retention removed",
            [Answer("By bucket, and in all", RetentionAnswer)],
            (400, 503),
            parameters=_TIME,
        ),
        Operation(
            "GET",
            "/api/v1/analytics/postgres-stats",
            "getPostgresStatistics",
            "What PostgreSQL says of itself",
            [Answer("Caches, dead rows, sizes and what runs now", PostgresAnswer)],
            (503,),
        ),
        Operation(
            "GET",
            "/metrics",
            "getMetrics",
            "The worker that answers, at this moment",
            [Answer("Counts since its start, connections, memory, CPU", MetricsAnswer)],
            (503,),
        ),
        Operation(
            "GET",
            "/metrics/prometheus",
            "getPrometheusMetrics",
            "All metrics in Prometheus' text format",
            [Answer("Of all workers of the instance", str, media_type=CONTENT_TYPE)],
            (),
        ),
    ],
)
