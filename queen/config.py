"""Settings: the environment as one frozen value. No other module asks for a variable."""

import dataclasses
import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from queen.core import limits
from queen.core.batch_policy import BatchPolicy
from queen.core.concurrency import Limiter, Static, Vegas, VegasSettings
from queen.core.errors import SettingError
from queen.core.operations import JobType

T = TypeVar("T")


def integer(low: int, high: int) -> Callable[[str], int]:
    """Parses a whole number from ``low`` to ``high``."""

    def parse(text: str) -> int:
        number = int(text) if text.lstrip("-").isdecimal() else None
        if number is None or not low <= number <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return number

    return parse


def boolean(text: str) -> bool:
    """Parses ``true``/``1``/``yes``/``on`` and their opposites."""
    match text.lower():
        case "true" | "1" | "yes" | "on":
            return True
        case "false" | "0" | "no" | "off" | "":
            return False
        case _:
            raise ValueError("true or false")


def _one_of_text(choices: Sequence[str]) -> str:
    """What a word must be, in words."""
    return "one of: " + ", ".join(repr(choice) for choice in choices)


def one_of(*choices: str) -> Callable[[str], str]:
    """Parses one of the given words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(_one_of_text(choices))
        return text

    return parse


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def peers_by_address(text: str) -> tuple[tuple[str, int], ...]:
    """Parses ``host:port,host:port``; an IPv6 address stands in brackets."""
    found = []
    for part in _split(text):
        host, _, port = part.rpartition(":")
        if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
            raise ValueError("a list of host:port, separated by commas")
        found.append((host.strip("[]"), int(port)))
    return tuple(found)


def peers_by_url(text: str) -> tuple[str, ...]:
    """Parses ``http://host:port,…``; https too."""
    urls = [part.rstrip("/") for part in _split(text)]
    if not all(_is_url(url) for url in urls):
        raise ValueError("a list of URLs such as http://host:6632, separated by commas")
    return tuple(urls)


def hex_keys(count_max: int) -> Callable[[str], str]:
    """Parses keys of 32 bytes in hexadecimal, separated by commas."""

    def parse(text: str) -> str:
        keys = text.replace(" ", "").lower().split(",") if text else []
        if len(keys) > count_max or any(not re.fullmatch("[0-9a-f]{64}", key) for key in keys):
            raise ValueError("64 hexadecimal digits" + (", or several such keys with commas" if count_max > 1 else ""))
        return ",".join(keys)

    return parse


def origins(text: str) -> tuple[str, ...]:
    """Parses ``*``, ``auto``, or ``scheme://host:port,…``, as browsers send them."""
    found = tuple(_split(text))
    if found in (("*",), ("auto",)):
        return found
    for each in found:
        parts = urlsplit(each)
        if not parts.scheme or not parts.netloc or each != f"{parts.scheme}://{parts.netloc}".lower():
            raise ValueError(
                "* or auto alone, or a list of origins such as https://ops.example.org, separated by commas"
            )
    return found


def host_names(text: str) -> tuple[str, ...]:
    """Parses ``host,host``: names without a port."""
    found = tuple(part.lower().rstrip(".") for part in _split(text))
    if not all(re.fullmatch(r"[\w-]+(\.[\w-]+)*", name, re.ASCII) for name in found):
        raise ValueError("a list of names such as queen.example.org, without ports, separated by commas")
    return found


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def url(text: str) -> str:
    """Parses an http or https URL; empty for none."""
    if text and not _is_url(text):
        raise ValueError("a URL such as https://host/path")
    return text


def paths(text: str) -> tuple[str, ...]:
    """Parses paths, separated by commas."""
    found = tuple(path.rstrip("/") or "/" for path in _split(text))
    if not all(path.startswith("/") for path in found):
        raise ValueError("a list of paths such as /health, separated by commas")
    return found


def setting(variables: str, default: T, parse: Callable[[str], T], meaning: str, *, secret: bool = False) -> T:
    """Declares a setting: its environment variables (the first that is set wins), default, parser and meaning.

    A secret one is shown nowhere, not in an error either.
    """
    metadata = {"variables": tuple(variables.split()), "parse": parse, "meaning": meaning, "secret": secret}
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set, with its default."""

    host: str = setting(
        "HOST", "127.0.0.1", str, "address to listen on; by default only programs on this machine can connect"
    )
    port: int = setting("PORT", 6632, integer(0, 65535), "HTTP port; 0 takes a free one")
    workers: int = setting("NUM_WORKERS", 2, integer(1, 1024), "gunicorn worker processes")
    data_dir: str = setting("QUEEN_DATA_DIR", "queen-data", str, "folder of the embedded PostgreSQL")
    dsn: str = setting(
        "DATABASE_URL", "", str, "PostgreSQL to use, as libpq takes it; empty: PG_*, else the embedded one", secret=True
    )
    pg_host: str = setting("PG_HOST", "", str, "host of the PostgreSQL to use; several with commas")
    pg_port: str = setting("PG_PORT", "5432", str, "port of PG_HOST; several with commas")
    pg_user: str = setting("PG_USER", "postgres", str, "user for PG_HOST")
    pg_password: str = setting("PG_PASSWORD", "", str, "password for PG_HOST", secret=True)
    pg_db: str = setting("PG_DB", "postgres", str, "database on PG_HOST")
    log_level: str = setting("LOG_LEVEL", "info", one_of("debug", "info", "warning", "error"), "least severe log line")
    request_log: bool = setting(
        "QUEEN_REQUEST_LOG",
        False,
        boolean,
        "whether every request has a log line, and not only refused ones and administrative changes",
    )
    graceful_timeout_s: int = setting(
        "GRACEFUL_TIMEOUT", 30, integer(1, 3600), "seconds that a stop waits for requests in flight"
    )
    max_body_bytes: int = setting(
        "MAX_BODY_SIZE QUEEN_MAX_BODY_BYTES", 64 << 20, integer(1024, 1 << 30), "largest request body, in bytes"
    )
    head_bytes_max: int = setting(
        "QUEEN_MAX_HEADER_BYTES", 32 << 10, integer(1024, 1 << 20), "largest head of a request, in bytes"
    )
    headers_max: int = setting("QUEEN_MAX_HEADERS", 100, integer(10, 10_000), "most header lines of a request")
    url_bytes_max: int = setting(
        "QUEEN_MAX_URL_BYTES", 16 << 10, integer(1024, 1 << 20), "longest path of a request with its query, in bytes"
    )
    request_timeout_s: int = setting(
        "QUEEN_REQUEST_TIMEOUT",
        20,
        integer(1, 3600),
        "seconds in which the head of a request has to come, and over which the speed of a body, and of the reading of "
        "an answer, is judged: 1 KiB a second at least",
    )
    connections_max: int = setting(
        "QUEEN_MAX_CONNECTIONS",
        0,
        integer(0, 10_000_000),
        "connections of clients that one worker holds at most; 0: as many as it may open files",
    )
    items_max: int = setting(
        "QUEEN_MAX_ITEMS",
        limits.ITEMS_MAX,
        integer(100, 10_000_000),
        "elements of one request at most: messages, acks, operations, changes or keys of a state, names",
    )
    pop_bytes_max: int = setting(
        "QUEEN_MAX_POP_BYTES",
        16 << 20,
        integer(1024, 1 << 30),
        "data that a pop, a batch of a WebSocket, or a read of a stream's state may return, in bytes; one message "
        "comes in any case",
    )
    held_bytes_max: int = setting(
        "QUEEN_MAX_HELD_BYTES",
        64 << 20,
        integer(1024, 1 << 40),
        "bytes of requests that are not answered, and of answers that are not read, that one worker holds; beyond them "
        "large bodies wait, and one at a time goes on. Large requests may take twice as much together while "
        "they are worked on",
    )
    cors_origins: tuple[str, ...] = setting(
        "QUEEN_CORS_ORIGINS",
        ("auto",),
        origins,
        "pages of a browser that may use the server, besides its own: *, or origins as https://ops.example.org, with "
        "commas; empty: none; auto: all where requests need a token, else none (docs/security.md)",
    )
    hosts: tuple[str, ...] = setting(
        "QUEEN_HOSTS",
        (),
        host_names,
        "names of the server, with commas, by which it may be called where requests need no token, besides addresses, "
        "localhost, names without a dot and those of QUEEN_CORS_ORIGINS",
    )
    insecure: bool = setting(
        "QUEEN_INSECURE",
        False,
        boolean,
        "whether to start where other machines can reach HOST and requests need no token",
    )
    default_batch: int = setting(
        "DEFAULT_BATCH_SIZE", 1, integer(1, 10_000), "messages of a pop that names no batch and no autopilot"
    )
    default_timeout_ms: int = setting(
        "DEFAULT_TIMEOUT POP_DEFAULT_TIMEOUT_MS",
        30_000,
        integer(0, 3_600_000),
        "long poll that names no timeout, in ms",
    )
    default_subscription_mode: str = setting(
        "DEFAULT_SUBSCRIPTION_MODE", "", one_of("", "all", "new", "new-only"), "where a group starts that does not say"
    )
    hot_connections: int = setting(
        "SIDECAR_POOL_SIZE", 16, integer(1, 10_000), "connections for messages, split over the workers"
    )
    cold_connections: int = setting(
        "DB_POOL_SIZE", 4, integer(1, 10_000), "connections for everything else, split over the workers"
    )
    pooler: str = setting(
        "DB_POOLER",
        "auto",
        one_of("auto", "yes", "no"),
        "whether a pooler in transaction mode (PgBouncer) stands before PostgreSQL; auto: found out at the start",
    )
    connect_timeout_ms: int = setting(
        "DB_CONNECTION_TIMEOUT", 2000, integer(100, 600_000), "limit of one attempt to connect to PostgreSQL, in ms"
    )
    statement_timeout_ms: int = setting(
        "DB_STATEMENT_TIMEOUT",
        30_000,
        integer(100, 3_600_000),
        "limit of one procedure call, in ms; a request that needs more alone is answered 504",
    )
    cached_partitions: int = setting(
        "QUEEN_CACHE_PARTITION_MAX", 200_000, integer(100, 10_000_000), "partition ids that a worker remembers"
    )
    poll_initial_ms: int = setting(
        "POP_WAIT_INITIAL_INTERVAL_MS POLL_DB_INTERVAL", 100, integer(1, 60_000), "first re-check of a long poll, in ms"
    )
    poll_max_ms: int = setting(
        "POP_WAIT_MAX_INTERVAL_MS QUEUE_MAX_POLL_INTERVAL", 1000, integer(1, 60_000), "slowest re-check, in ms"
    )
    stream_poll_initial_ms: int = setting(
        "STREAM_POLL_INTERVAL", 1000, integer(10, 60_000), "first re-check of a window that is not complete, in ms"
    )
    stream_poll_max_ms: int = setting(
        "STREAM_MAX_POLL_INTERVAL", 5000, integer(10, 600_000), "slowest re-check of a window, in ms"
    )
    sockets_max: int = setting(
        "QUEEN_WS_MAX_SOCKETS", 1000, integer(0, 1_000_000), "open WebSockets that a worker takes; 0 takes none"
    )
    socket_credit_max: int = setting(
        "QUEEN_WS_MAX_CREDIT", 10_000, integer(1, 1_000_000), "messages that a WebSocket may hold unacked"
    )
    socket_frame_bytes: int = setting(
        "QUEEN_WS_MAX_FRAME_BYTES", 1 << 20, integer(1024, 1 << 30), "largest frame of a WebSocket client, in bytes"
    )
    socket_ping_s: int = setting(
        "QUEEN_WS_PING_INTERVAL",
        20,
        integer(1, 3600),
        "pause between pings of a WebSocket, and limit of the answer, in s",
    )
    notify_interval_ms: int = setting(
        "PEER_NOTIFY_BATCH_MS", 10, integer(0, 10_000), "at most one notice to the other workers in that time, in ms"
    )
    spool_dir: str = setting(
        "FILE_BUFFER_DIR",
        "",
        str,
        "folder of the spool, which must exist; empty: one for each database in `buffers` of QUEEN_DATA_DIR",
    )
    spool_interval_ms: int = setting(
        "FILE_BUFFER_FLUSH_MS", 100, integer(1, 60_000), "how often a worker looks whether to replay the spool, in ms"
    )
    spool_batch: int = setting(
        "FILE_BUFFER_MAX_BATCH", 100, integer(1, 100_000), "push requests that one call of the replay stores"
    )
    spool_file_requests: int = setting(
        "FILE_BUFFER_EVENTS_PER_FILE", 10_000, integer(1, 10_000_000), "push requests after which a new file begins"
    )
    spool_max_bytes: int = setting(
        "FILE_BUFFER_MAX_BYTES", 1 << 30, integer(1024, 1 << 50), "bytes that may wait in the spool"
    )
    udp_peers: tuple[tuple[str, int], ...] = setting(
        "QUEEN_UDP_PEERS", (), peers_by_address, "other instances to tell of messages by UDP, as host:port,…"
    )
    udp_port: int = setting("QUEEN_UDP_NOTIFY_PORT", 6633, integer(1, 65535), "UDP port to be told on")
    http_peers: tuple[str, ...] = setting(
        "QUEEN_PEERS", (), peers_by_url, "other instances to tell of messages by HTTP, as http://host:port,…"
    )
    sync_secret: str = setting("QUEEN_SYNC_SECRET", "", str, "what all instances know; peers need it", secret=True)
    checks_per_s: int = setting(
        "QUEEN_POLL_CHECKS_PER_S",
        50,
        integer(0, 1_000_000),
        "re-checks of long polls that a worker makes at most in a second while notices reach it; 0: no bound",
    )
    waiters_max: int = setting(
        "QUEEN_MAX_WAITERS",
        0,
        integer(0, 10_000_000),
        "long polls that one worker holds at most; 0: as many as it may open files",
    )
    patience_ms: int = setting(
        "DB_PATIENCE_MS",
        5000,
        integer(0, 600_000),
        "how long a call is repeated while PostgreSQL is down or its rows are locked, before its sender is told, in ms",
    )
    concurrency_mode: str = setting(
        "QUEEN_CONCURRENCY_MODE",
        "static",
        one_of("static", "vegas"),
        "calls in flight: always as many as QUEEN_<KIND>_MAX_CONCURRENT, or as many of them as the database takes "
        "without queueing",
    )
    vegas_floor: int = setting("QUEEN_VEGAS_MIN_LIMIT", 1, integer(1, 1000), "vegas: never fewer calls in flight")
    vegas_alpha: int = setting(
        "QUEEN_VEGAS_ALPHA", 3, integer(0, 100), "vegas: more calls while less of their time is queueing, in percent"
    )
    vegas_beta: int = setting(
        "QUEEN_VEGAS_BETA", 12, integer(0, 100), "vegas: fewer calls while more of their time is queueing, in percent"
    )
    vegas_window: int = setting(
        "QUEEN_VEGAS_RTT_WINDOW_SAMPLES", 50, integer(4, 100_000), "vegas: calls whose times are judged together"
    )
    vegas_refresh_s: int = setting(
        "QUEEN_VEGAS_RTT_MIN_WINDOW_SEC", 30, integer(1, 86_400), "vegas: how long the fastest time is believed, in s"
    )
    worker_class: str = setting(
        "QUEEN_WORKER_CLASS", "uvicorn", one_of("uvicorn", "asgi", "gthread", "meinheld"), "gunicorn's worker class"
    )
    engine_home: str = setting(
        "QUEEN_ENGINE_HOME",
        "loop",
        one_of("loop", "thread"),
        "the engine's home: the HTTP loop, or a thread of its own",
    )
    threads: int = setting("QUEEN_THREADS", 32, integer(2, 1000), "threads of a worker of class gthread")
    metrics_interval_ms: int = setting(
        "STATS_INTERVAL_MS",
        10_000,
        integer(100, 3_600_000),
        "how often a worker stores its metrics and refreshes the statistics of queues, in ms",
    )
    metrics_days: int = setting("METRICS_RETENTION_DAYS", 7, integer(1, 36_500), "days that metrics are kept")
    retention_interval_ms: int = setting(
        "RETENTION_INTERVAL",
        300_000,
        integer(100, 86_400_000),
        "how often retention and the clean-up of partitions run, in ms",
    )
    retention_batch: int = setting(
        "RETENTION_BATCH_SIZE",
        1000,
        integer(1, 1_000_000),
        "messages that one transaction of retention removes at most",
    )
    eviction_interval_ms: int = setting(
        "EVICTION_INTERVAL",
        60_000,
        integer(100, 86_400_000),
        "how often maxWaitTimeSeconds and ttl are enforced, in ms",
    )
    eviction_batch: int = setting(
        "EVICTION_BATCH_SIZE",
        1000,
        integer(1, 1_000_000),
        "messages that one transaction of eviction takes out at most; down to 100, if more take longer than 6 ms",
    )
    partition_cleanup_days: int = setting(
        "PARTITION_CLEANUP_DAYS", 30, integer(0, 36_500), "days after its last push that an empty partition is removed"
    )
    encryption_key: str = setting(
        "QUEEN_ENCRYPTION_KEY",
        "",
        hex_keys(1),
        "key of encrypted queues: 64 hexadecimal digits, as `openssl rand -hex 32` prints them",
        secret=True,
    )
    encryption_old_keys: str = setting(
        "QUEEN_ENCRYPTION_OLD_KEYS",
        "",
        hex_keys(100),
        "earlier keys, with commas, to read what was stored under them",
        secret=True,
    )
    metrics_queues: int = setting(
        "QUEEN_METRICS_MAX_QUEUES", 1000, integer(0, 100_000), "queues with metrics of their own, those made first"
    )
    metrics_groups: int = setting(
        "QUEEN_METRICS_MAX_GROUPS", 1000, integer(0, 100_000), "consumer groups with metrics of their own, likewise"
    )
    smq_message_bytes: int = setting(
        "QUEEN_SMQ_MAX_MESSAGE_BYTES", 262_144, integer(1, 1 << 28), "simple-mq: largest message, in bytes of UTF-8"
    )
    smq_queues: int = setting(
        "QUEEN_SMQ_MAX_QUEUES",
        0,
        integer(0, 10_000_000),
        "simple-mq: most queues, dead-letter queues apart; 0: any number",
    )
    smq_metrics_queues: int = setting(
        "QUEEN_SMQ_METRICS_MAX_QUEUES",
        1000,
        integer(0, 100_000),
        "simple-mq: queues with metrics of their own, those that were made first",
    )
    smq_sweep_interval_ms: int = setting(
        "QUEEN_SMQ_SWEEP_INTERVAL_MS",
        0,
        integer(0, 3_600_000),
        "simple-mq: how often exhausted messages go to dead-letter queues without a poll, in ms; 0: at polls only. The "
        "server that leads the background services does it",
    )
    jwt_enabled: bool = setting("JWT_ENABLED", False, boolean, "whether requests need a token (docs/security.md)")
    jwt_algorithm: str = setting(
        "JWT_ALGORITHM",
        "HS256",
        one_of("HS256", "RS256", "EdDSA", "auto"),
        "how tokens are signed; auto: by whichever of HS256, RS256, RS384, RS512 and EdDSA there are keys for",
    )
    jwt_secret: str = setting(
        "JWT_SECRET", "", str, "secret of HS256, 32 bytes or more, as `openssl rand -hex 32` prints them", secret=True
    )
    jwt_public_key: str = setting(
        "JWT_PUBLIC_KEY", "", str, "public key or certificate of RS256 or EdDSA: PEM, or the path of a file with it"
    )
    jwt_jwks_url: str = setting("JWT_JWKS_URL", "", url, "where the issuer tells its public keys (a JSON Web Key Set)")
    jwt_jwks_refresh_s: int = setting(
        "JWT_JWKS_REFRESH_INTERVAL", 3600, integer(10, 604_800), "how often they are fetched again, in s"
    )
    jwt_jwks_timeout_ms: int = setting(
        "JWT_JWKS_TIMEOUT_MS", 5000, integer(100, 60_000), "limit of one such fetch, in ms"
    )
    jwt_issuer: str = setting("JWT_ISSUER", "", str, "what the claim iss must say; empty: anything")
    jwt_audience: str = setting("JWT_AUDIENCE", "", str, "what the claim aud must say or hold; empty: anything")
    jwt_clock_skew_s: int = setting(
        "JWT_CLOCK_SKEW", 30, integer(0, 3600), "how far the clocks of issuer and server may be apart, in s"
    )
    jwt_require_expiry: bool = setting(
        "QUEEN_JWT_REQUIRE_EXP", False, boolean, "whether a token without the claim exp is refused"
    )
    jwt_role_claim: str = setting("JWT_ROLES_CLAIM", "role", str, "claim that holds a role, or its path: `a.b`")
    jwt_roles_claim: str = setting(
        "JWT_ROLES_ARRAY_CLAIM",
        "roles",
        str,
        "claim that holds a list of roles, or its path: `realm_access.roles` of Keycloak",
    )
    jwt_role_admin: str = setting("JWT_ROLE_ADMIN", "admin", str, "role that may do everything")
    jwt_role_read_write: str = setting("JWT_ROLE_READ_WRITE", "read-write", str, "role that may push, pop and ack")
    jwt_role_read_only: str = setting("JWT_ROLE_READ_ONLY", "read-only", str, "role that may look")
    jwt_skip_paths: tuple[str, ...] = setting(
        "JWT_SKIP_PATHS",
        ("/health", "/metrics/prometheus", "/metrics", "/"),
        paths,
        "paths that need no token, with what lies below them; `/` is the path `/` alone",
    )
    requests_per_s: int = setting(
        "QUEEN_MAX_REQUESTS_PER_S",
        0,
        integer(0, 1_000_000),
        "requests that one client (subject of its token, or else address) may make at one worker in a second; 0: any",
    )
    tls_certificate: str = setting(
        "QUEEN_TLS_CERTFILE", "", str, "file with the certificate (PEM, with its chain) to serve https with"
    )
    tls_key: str = setting("QUEEN_TLS_KEYFILE", "", str, "file with the private key of that certificate")
    telemetry: bool = setting(
        "QUEEN_OTEL_ENABLED",
        False,
        boolean,
        "whether traces and metrics go to an OpenTelemetry collector (docs/telemetry.md). This and the variables of "
        "OpenTelemetry below matter only then; those that are not named here are its SDK's own",
    )
    otel_disabled: bool = setting(
        "OTEL_SDK_DISABLED", False, lambda text: text.lower() == "true", "`true` sends nothing after all"
    )
    otel_service: str = setting("OTEL_SERVICE_NAME", "queen", str, "the name of this service in traces and metrics")
    otel_endpoint: str = setting(
        "OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318", str, "the collector's URL for OTLP over HTTP"
    )
    otel_protocol: str = setting(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", str, "how to speak to it: only so, not grpc"
    )
    otel_traces: str = setting(
        "OTEL_TRACES_EXPORTER",
        "otlp",
        str,
        "where spans go: `otlp`, or `none`, which keeps the contexts of messages all the same",
    )
    otel_metrics: str = setting("OTEL_METRICS_EXPORTER", "otlp", str, "where metrics go: `otlp` or `none`")
    otel_metrics_interval_ms: int = setting(
        "OTEL_METRIC_EXPORT_INTERVAL", 60_000, integer(100, 86_400_000), "how often metrics are sent, in ms"
    )
    otel_temporality: str = setting(
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
        "cumulative",
        str.lower,
        "what counters count from: only the start of the server, not the last export",
    )
    policies: Mapping[JobType, BatchPolicy] = dataclasses.field(default_factory=dict)

    @property
    def telemetry_on(self) -> bool:
        """Whether there are traces and metrics to send."""
        return self.telemetry and not self.otel_disabled

    @property
    def database_url(self) -> str:
        """The connection string to use, or empty for the embedded PostgreSQL."""
        if self.dsn or not self.pg_host:
            return self.dsn
        hosts, ports = self.pg_host.split(","), self.pg_port.split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        if len(ports) != len(hosts):
            raise SettingError(
                f"PG_PORT names {len(ports)} ports for the {len(hosts)} hosts of PG_HOST: give one, or one each"
            )
        places = ",".join(f"{quote(host, safe=':[]')}:{port}" for host, port in zip(hosts, ports, strict=True))
        secret = f":{quote(self.pg_password, safe='')}" if self.pg_password else ""
        return f"postgresql://{quote(self.pg_user, safe='')}{secret}@{places}/{quote(self.pg_db, safe='')}"

    def policy(self, kind: JobType) -> BatchPolicy:
        """The batch policy of a kind of job."""
        return self.policies.get(kind, DEFAULT_POLICIES[kind])

    def limiter(self, kind: JobType) -> Limiter:
        """What says how many calls of a kind may be in flight."""
        cap = self.policy(kind).in_flight_max
        if self.concurrency_mode == "static":
            return Static(cap)
        vegas = VegasSettings(
            self.vegas_floor, self.vegas_alpha, self.vegas_beta, self.vegas_window, self.vegas_refresh_s
        )
        return Vegas(cap, vegas)


def share(total: int, workers: int) -> int:
    """Connections of one worker when ``total`` are split over all; at least one."""
    return max(1, total // workers)


#: preferred jobs, hold in ms, largest batch in jobs, calls in flight a worker.
DEFAULT_POLICIES: Mapping[JobType, BatchPolicy] = {
    JobType.PUSH: BatchPolicy(preferred=50, hold_ms=20, batch_max=500, in_flight_max=4),
    JobType.POP: BatchPolicy(preferred=20, hold_ms=5, batch_max=500, in_flight_max=4, linger_ms=2),
    JobType.ACK: BatchPolicy(preferred=50, hold_ms=20, batch_max=500, in_flight_max=4, linger_ms=2),
    JobType.TRANSACTION: BatchPolicy(preferred=50, hold_ms=20, batch_max=50, in_flight_max=4, linger_ms=2),
    JobType.RENEW_LEASE: BatchPolicy(preferred=10, hold_ms=100, batch_max=100, in_flight_max=2),
    JobType.CYCLE: BatchPolicy(preferred=1, hold_ms=0, batch_max=1, in_flight_max=4),
    JobType.ENQUEUE: BatchPolicy(preferred=50, hold_ms=20, batch_max=500, in_flight_max=4),
    # A message of simple-mq has up to 256 KiB, and a call returns what all of its polls want.
    JobType.DEQUEUE: BatchPolicy(preferred=20, hold_ms=5, batch_max=500, in_flight_max=4, items_max=100),
    JobType.ACKNOWLEDGE: BatchPolicy(preferred=50, hold_ms=20, batch_max=500, in_flight_max=4),
    JobType.EXTEND_VISIBILITY: BatchPolicy(preferred=10, hold_ms=100, batch_max=100, in_flight_max=2),
    JobType.CUSTOM: BatchPolicy(preferred=1, hold_ms=0, batch_max=1, in_flight_max=4),
}

_POLICY_VARIABLES = {
    "preferred": ("PREFERRED_BATCH_SIZE", integer(1, 100_000)),
    "hold_ms": ("MAX_HOLD_MS", integer(0, 60_000)),
    "batch_max": ("MAX_BATCH_SIZE", integer(1, 100_000)),
    "in_flight_max": ("MAX_CONCURRENT", integer(1, 1000)),
    "items_max": ("MAX_ITEMS", integer(1, 10_000_000)),
    "queued_max": ("MAX_QUEUED", integer(1, 10_000_000)),
}

#: The seeds' names of the micro-batching of all kinds at once.
_POLICY_VARIABLES_OF_ALL = {"hold_ms": "SIDECAR_MICRO_BATCH_WAIT_MS", "items_max": "SIDECAR_MAX_ITEMS_PER_TX"}


def _read(environment: Mapping[str, str], variable: str, parse: Callable[[str], Any], *, secret: bool = False) -> Any:  # noqa: ANN401 - any setting's type
    text = environment[variable]
    try:
        return parse(text)
    except ValueError as problem:
        shown = variable if secret else f"{variable}={text!r}"
        raise SettingError(f"{shown} is not {problem}") from None


def _policies(environment: Mapping[str, str]) -> dict[JobType, BatchPolicy]:
    policies = {}
    for kind, default in DEFAULT_POLICIES.items():
        changes = {}
        for field, (suffix, parse) in _POLICY_VARIABLES.items():
            for variable in (f"QUEEN_{kind.name}_{suffix}", _POLICY_VARIABLES_OF_ALL.get(field, "")):
                if variable in environment:
                    changes[field] = _read(environment, variable, parse)
                    break
        policies[kind] = dataclasses.replace(default, **changes)
    return policies


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Reads the settings.

    Raises:
        SettingError: a variable holds a value outside its range; the text names variable, value and range.
    """
    values: dict[str, Any] = {"policies": _policies(environment)}
    for field in dataclasses.fields(Settings):
        for variable in field.metadata.get("variables", ()):
            if variable in environment:
                values[field.name] = _read(
                    environment, variable, field.metadata["parse"], secret=field.metadata["secret"]
                )
                break
    return _checked(Settings(**values))


def misspelt(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that are no setting and look like one, each with the setting that was probably meant."""
    known = [name for field in dataclasses.fields(Settings) for name in field.metadata.get("variables", ())]
    known += [f"QUEEN_{kind.name}_{suffix}" for kind in JobType for suffix, _ in _POLICY_VARIABLES.values()]
    known += _POLICY_VARIABLES_OF_ALL.values()
    unknown = [name for name in environment if name.startswith(("QUEEN_", "JWT_")) and name not in known]
    meant = {name: difflib.get_close_matches(name, known, n=1, cutoff=0.9) for name in unknown}
    return {name: close[0] for name, close in meant.items() if close}


def _checked(settings: Settings) -> Settings:
    """Settings that only make sense together."""
    if (settings.udp_peers or settings.http_peers) and not settings.sync_secret:
        raise SettingError(
            "QUEEN_UDP_PEERS and QUEEN_PEERS need QUEEN_SYNC_SECRET, the same on all instances: without it anybody "
            "could send notices"
        )
    if settings.connections_max and settings.waiters_max > settings.connections_max:
        raise SettingError(
            f"QUEEN_MAX_WAITERS={settings.waiters_max} is more than QUEEN_MAX_CONNECTIONS={settings.connections_max}: "
            "each long poll is a connection"
        )
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise SettingError("QUEEN_TLS_CERTFILE and QUEEN_TLS_KEYFILE belong together: give both or neither")
    roles = (settings.jwt_role_admin, settings.jwt_role_read_write, settings.jwt_role_read_only)
    if not all(roles) or len(set(roles)) < len(roles):
        raise SettingError("JWT_ROLE_ADMIN, JWT_ROLE_READ_WRITE and JWT_ROLE_READ_ONLY must be three different roles")
    if settings.telemetry_on:
        _check_telemetry(settings)
    if settings.vegas_alpha >= settings.vegas_beta:
        raise SettingError(
            f"QUEEN_VEGAS_ALPHA={settings.vegas_alpha} must be less than QUEEN_VEGAS_BETA={settings.vegas_beta}"
        )
    return settings


def _check_telemetry(settings: Settings) -> None:
    """What OpenTelemetry knows and this server does not. Without telemetry the variables may be meant for others."""
    exporters = ("otlp", "none")
    for variable, text, choices in (
        ("OTEL_EXPORTER_OTLP_PROTOCOL", settings.otel_protocol, ("http/protobuf",)),
        ("OTEL_TRACES_EXPORTER", settings.otel_traces, exporters),
        ("OTEL_METRICS_EXPORTER", settings.otel_metrics, exporters),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", settings.otel_temporality, ("cumulative",)),
    ):
        if text not in choices:
            raise SettingError(f"{variable}={text!r} is not {_one_of_text(choices)} (QUEEN_OTEL_ENABLED is set)")
    if not _is_url(settings.otel_endpoint):
        raise SettingError("OTEL_EXPORTER_OTLP_ENDPOINT is not a URL such as http://collector:4318")
