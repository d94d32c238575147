"""Variables that are set and are no settings: what took their place, or the setting that was probably meant."""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping

from queen.core.batch_policy import POLICIES
from queen.core.job_type import JobType

_QUEUED = f"up to {POLICIES[JobType.PUSH].queued_max:,} jobs wait per job type"
_POLICY = "docs/settings.md lists the batch policy of each job type"

#: Settings of earlier versions.
FORMER: Mapping[str, str] = {
    **{
        f"QUEEN_{kind.name}_{suffix}": _POLICY
        for kind in JobType
        for suffix in ("PREFERRED_BATCH_SIZE", "MAX_HOLD_MS", "MAX_BATCH_SIZE", "MAX_CONCURRENT")
    },
    **{f"QUEEN_{kind.name}_MAX_ITEMS": "SIDECAR_MAX_ITEMS_PER_TX sets it for all job types" for kind in JobType},
    **{f"QUEEN_{kind.name}_MAX_QUEUED": _QUEUED for kind in JobType},
    "QUEEN_MAX_HEADER_BYTES": "the head of a request has up to 32 KiB",
    "QUEEN_MAX_HEADERS": "a request has up to 100 header lines",
    "QUEEN_MAX_URL_BYTES": "path and query of a request have up to 16 KiB",
    "QUEEN_MAX_WAITERS": "QUEEN_MAX_CONNECTIONS limits long polls too",
    "QUEEN_POLL_CHECKS_PER_S": "a worker checks long polls up to 50 times per second",
    "QUEEN_WS_MAX_CREDIT": "the credit of a WebSocket is up to 10,000 messages",
    "QUEEN_WS_MAX_FRAME_BYTES": "a frame of a WebSocket client has up to 1 MiB",
    "QUEEN_METRICS_MAX_GROUPS": "QUEEN_METRICS_MAX_QUEUES limits consumer groups too",
    "QUEEN_SMQ_METRICS_MAX_QUEUES": "QUEEN_METRICS_MAX_QUEUES limits queues of simple-mq too",
}

_INTERVALS = "POP_WAIT_INITIAL_INTERVAL_MS and POP_WAIT_MAX_INTERVAL_MS set how often a long poll is checked"
_NO_POLL_WORKERS = "the engine of each worker checks long polls; NUM_WORKERS sets the workers"
_WINDOWS = "STREAM_POLL_INTERVAL and STREAM_MAX_POLL_INTERVAL set how often a window is checked"
_AT_ONCE = "a response leaves as soon as it is ready"
_SSLMODE = "sslmode in DATABASE_URL decides on TLS"
_PROBE = "the health probe finds broken connections"
_CACHE = "notifications keep the cache of a worker up to date"

#: Settings of Queen MQ and of simple-mq's original, which this server does not have. Names separated by spaces.
_ELSEWHERE: Mapping[str, str] = {
    "POLL_WORKER_INTERVAL": _INTERVALS,
    "POLL_WORKER_COUNT": _NO_POLL_WORKERS,
    "STREAM_POLL_WORKER_COUNT": _NO_POLL_WORKERS,
    "STREAM_POLL_WORKER_INTERVAL": _WINDOWS,
    "STREAM_CONCURRENT_CHECKS": "QUEEN_POP_MAX_CONCURRENT limits concurrent checks",
    "RESPONSE_TIMER_INTERVAL_MS RESPONSE_BATCH_SIZE RESPONSE_BATCH_MAX": _AT_ONCE,
    "METRICS_SAMPLE_INTERVAL_MS METRICS_AGGREGATE_INTERVAL_S STATS_RECONCILE_INTERVAL_MS": (
        "workers measure themselves every second; STATS_INTERVAL_MS sets how often metrics and statistics are stored"
    ),
    "STATS_HISTORY_RETENTION_DAYS": "METRICS_RETENTION_DAYS sets how long stored metrics are kept",
    "WORKER_ID": "the log names a worker by its process id",
    "WEBAPP_ROOT": "the dashboard is part of the server",
    "PG_USE_SSL PG_SSL_REJECT_UNAUTHORIZED": _SSLMODE,
    "DB_IDLE_TIMEOUT": "connections stay open",
    "DB_LOCK_TIMEOUT": "DB_PATIENCE_MS sets how long a call is retried while rows are locked",
    "DB_TCP_USER_TIMEOUT_MS DB_KEEPALIVES_IDLE DB_KEEPALIVES_INTERVAL DB_KEEPALIVES_COUNT": _PROBE,
    "LIBQUEEN_INFLIGHT_DEADLINE_MS": "DB_STATEMENT_TIMEOUT limits a call",
    "DB_THREAD_POOL_SERVICE_THREADS": "background jobs have one connection of their own per worker",
    "QUEUE_BACKOFF_CLEANUP_THRESHOLD": "the state of a long poll ends with it",
    "POP_WAIT_BACKOFF_THRESHOLD POP_WAIT_BACKOFF_MULTIPLIER": "the interval doubles with each check that finds nothing",
    "SIDECAR_MAX_BATCH_SIZE": "QUEEN_<TYPE>_MAX_BATCH_SIZE limits the jobs of one call",
    "SIDECAR_MAX_PENDING_COUNT": _QUEUED,
    "QUEEN_VEGAS_MAX_LIMIT": "QUEEN_<TYPE>_MAX_CONCURRENT limits the calls in flight",
    "QUEEN_VEGAS_UPDATE_INTERVAL_MS": "QUEEN_VEGAS_RTT_WINDOW_SAMPLES sets the calls per measurement",
    "PARTITION_LOOKUP_RECONCILE_INTERVAL_MS PARTITION_LOOKUP_RECONCILE_LOOKBACK_SECONDS": (
        "partitions are found without a table that has to be reconciled"
    ),
    "QUEEN_SYNC_ENABLED": "QUEEN_UDP_PEERS and QUEEN_PEERS turn notifications of other instances on",
    "QUEEN_CACHE_PARTITION_TTL_MS QUEEN_CACHE_REFRESH_INTERVAL_MS": _CACHE,
    "QUEEN_SYNC_HEARTBEAT_MS QUEEN_SYNC_DEAD_THRESHOLD_MS": "instances send each other no heartbeats",
    "QUEEN_SYNC_RECV_BUFFER_MB": "the buffer has the size that the system gives it",
    "QUEEN_POP_AUTOPILOT": "the client chooses with the parameter `autopilot`",
    "HIKARI_MAXIMUM_POOL_SIZE HIKARI_MINIMUM_IDLE": "SIDECAR_POOL_SIZE sets the connections for messages",
    "SPRING_DATASOURCE_URL SPRING_DATASOURCE_USERNAME SPRING_DATASOURCE_PASSWORD": "DATABASE_URL names the database",
    "OTLP_ENDPOINT": "OTEL_EXPORTER_OTLP_ENDPOINT names the collector",
    "OTLP_AUTH": "OTEL_EXPORTER_OTLP_HEADERS authenticates at the collector",
}
ELSEWHERE: Mapping[str, str] = {name: text for names, text in _ELSEWHERE.items() for name in names.split()}

#: Variables of commands, clients and tests, of libpq and OpenTelemetry, and those that Kubernetes makes of a service.
_OTHERS = re.compile(
    r"QUEEN_(URL|TOKEN|SERVER|SERVER_URL|CONTEXT|CLIENT_\w+|SDK_\w+|TEST_\w+|AUDIT_DSN|OWNER_PASSWORD|SERVER_PASSWORD)"
    r"|JWT_EXPIRES_IN|PG[A-Z]+|OTEL_\w+|\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT_\d+_\w+"
)
#: No other program has variables that begin so.
_OURS = ("QUEEN_", "JWT_", "FILE_BUFFER_", "SIDECAR_", "POP_WAIT_", "EVICTION_", "PEER_NOTIFY_")
#: How much of any other name must be that of a setting: a letter too many, missing or wrong. Two other programs' names
#: that are farther from ours than that: DB_HOST, LOG_FILE.
_ALIKE = 0.88


def find(environment: Mapping[str, str], known: Collection[str]) -> Iterator[str]:
    """One sentence for each variable that is no setting but looks like one, or was one here or elsewhere.

    Args:
        environment: what is set.
        known: the names of all settings.
    """
    for name, value in environment.items():
        if name in known:
            continue
        if name in FORMER:
            yield f"{name} is no longer a setting: {FORMER[name]}"
        elif name in ELSEWHERE:
            yield f"{name} is not a setting of this server: {ELSEWHERE[name]}"
        elif not _OTHERS.fullmatch(name) and not value.startswith(("tcp://", "udp://")):
            yield from _misspelt(name, known)


def _misspelt(name: str, known: Collection[str]) -> Iterator[str]:
    """The sentence for an unknown name, if it is meant for this server."""
    if name.startswith(_OURS):
        candidates, alike = [*known], 0.0
    else:
        # Short names without a second word, such as HOST, are near to those of many programs. A setting's name behind
        # another word is a variable of the program of that word: PIP_DEFAULT_TIMEOUT.
        candidates = [each for each in (*known, *ELSEWHERE) if "_" in each and not name.upper().endswith(f"_{each}")]
        alike = _ALIKE
    for nearest in difflib.get_close_matches(name.upper(), candidates, n=1, cutoff=alike):
        instead = f", which is not a setting of this server: {ELSEWHERE[nearest]}" if nearest in ELSEWHERE else ""
        yield f"{name} is not a setting; the nearest name is {nearest}{instead}"
