"""All settings, by area: environment variable, type, range, default and meaning of each."""

from typing import Annotated, Literal
from urllib.parse import quote

from queen.config.forms import ACCESS_KEYS, ACCOUNT, ADDRESSES, HOST_NAMES, KEY, KEYS, ORIGINS, PATHS, SHARDS, URL, URLS
from queen.config.variable import Area, Form, Variable
from queen.core import limits
from queen.core.errors import SettingError


class Server(Area, frozen=True, kw_only=True):
    """The server and its worker processes."""

    preset: Annotated[Literal["", "balanced", "high-throughput", "low-latency"], Variable("QUEEN_PRESET")] = ""
    """Defaults of several settings for one size of server (docs/scaling.md)."""
    host: Annotated[str, Variable("HOST")] = "127.0.0.1"
    """Address to listen on. By default only programs on this machine can connect."""
    port: Annotated[int, Variable("PORT", 0, 65_535)] = 6632
    """HTTP port. 0 takes a free one."""
    workers: Annotated[int, Variable("NUM_WORKERS", 1, 1024)] = 2
    """Worker processes."""
    worker_class: Annotated[Literal["uvicorn", "asgi", "gthread", "meinheld"], Variable("QUEEN_WORKER_CLASS")] = (
        "uvicorn"
    )
    """Worker class of gunicorn."""
    threads: Annotated[int, Variable("QUEEN_THREADS", 2, 1000)] = 32
    """Threads of a worker of class gthread."""
    data_dir: Annotated[str, Variable("QUEEN_DATA_DIR")] = "queen-data"
    """Folder of the embedded PostgreSQL."""
    graceful_timeout_s: Annotated[int, Variable("GRACEFUL_TIMEOUT", 1, 3600)] = 30
    """How long a stop waits for requests in flight, in seconds."""
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Variable("LOG_LEVEL")] = "info"
    """The least severe lines that are logged."""
    request_log: Annotated[bool, Variable("QUEEN_REQUEST_LOG")] = False
    """Whether every request is logged. Refused requests and administrative changes are always logged."""


class Requests(Area, frozen=True, kw_only=True):
    """Limits of requests and connections."""

    body_bytes_max: Annotated[int, Variable("MAX_BODY_SIZE QUEEN_MAX_BODY_BYTES", 1024, 1 << 30)] = 64 << 20
    """Largest request body, in bytes."""
    timeout_s: Annotated[int, Variable("QUEEN_REQUEST_TIMEOUT", 1, 3600)] = 20
    """Time limit for the head of a request, in seconds. A body, and the reading of a response, must reach 1 KiB per
    second, averaged over this time."""
    connections_max: Annotated[int, Variable("QUEEN_MAX_CONNECTIONS", 0, 10_000_000)] = 0
    """Client connections per worker, long polls among them. 0: as many as the worker may open files."""
    items_max: Annotated[int, Variable("QUEEN_MAX_ITEMS", 100, 10_000_000)] = limits.ITEMS_MAX
    """Elements per request: messages, acknowledgements, operations, changes or keys of a state, names."""
    pop_bytes_max: Annotated[int, Variable("QUEEN_MAX_POP_BYTES", 1024, 1 << 30)] = limits.POP_BYTES
    """Data per pop, per batch of a WebSocket and per read of the state of a stream, in bytes. One message is always
    returned."""
    held_bytes_max: Annotated[int, Variable("QUEEN_MAX_HELD_BYTES", 1024, 1 << 40)] = 64 << 20
    """Memory per worker for requests without a response and responses that are not read yet, in bytes. Beyond it, large
    bodies are read one at a time. Large requests may take twice as much while they are processed."""
    per_s_max: Annotated[int, Variable("QUEEN_MAX_REQUESTS_PER_S", 0, 1_000_000)] = 0
    """Requests per second, client and worker. A client is the subject of a token, or else an address. 0: no limit."""


class Database(Area, frozen=True, kw_only=True):
    """The connection to PostgreSQL."""

    dsn: Annotated[str, Variable("DATABASE_URL", secret=True)] = ""
    """PostgreSQL as a libpq connection string. If it is empty, PG_HOST decides, and without PG_HOST the embedded
    PostgreSQL is used."""
    shards: Annotated[tuple[tuple[str, str], ...], Variable("DATABASE_URLS", form=SHARDS, secret=True)] = ()
    """Several databases that serve as one (docs/shards.md): NAME=URL of each, separated by spaces. A name stays with
    its database."""
    host: Annotated[str, Variable("PG_HOST")] = ""
    """Host of PostgreSQL, or several separated by commas."""
    port: Annotated[str, Variable("PG_PORT")] = "5432"
    """Port of PG_HOST, or one per host separated by commas."""
    user: Annotated[str, Variable("PG_USER")] = "postgres"
    """User for PG_HOST."""
    password: Annotated[str, Variable("PG_PASSWORD", secret=True)] = ""
    """Password for PG_HOST."""
    name: Annotated[str, Variable("PG_DB")] = "postgres"
    """Database on PG_HOST."""
    hot_connections: Annotated[int, Variable("SIDECAR_POOL_SIZE", 1, 10_000)] = 16
    """Connections for messages, divided among the workers."""
    cold_connections: Annotated[int, Variable("DB_POOL_SIZE", 1, 10_000)] = 4
    """Connections for everything else, divided among the workers."""
    connections: Annotated[int, Variable("QUEEN_CONNECTIONS", 0, 1_000_000)] = 0
    """All connections of the server, if they must not be more: those of the background, and the others 95 to 5 for
    messages and for everything else. 0: as the two settings above say, and up to 7 more per worker."""
    pooler: Annotated[Literal["auto", "yes", "no"], Variable("DB_POOLER")] = "auto"
    """Whether PostgreSQL is reached through a pooler in transaction mode (PgBouncer). `auto` finds out at the start."""
    connect_timeout_ms: Annotated[int, Variable("DB_CONNECTION_TIMEOUT", 100, 600_000)] = 2000
    """Time limit for a connection attempt, in ms."""
    statement_timeout_ms: Annotated[int, Variable("DB_STATEMENT_TIMEOUT", 100, 3_600_000)] = 30_000
    """Time limit for a procedure call, in ms. A request that alone takes longer is answered 504."""
    retry_timeout_ms: Annotated[int, Variable("DB_PATIENCE_MS", 0, 600_000)] = 5000
    """How long a call is retried while PostgreSQL is unavailable or rows are locked, in ms. Then it fails."""

    @property
    def url(self) -> str:
        """The connection string to use, or empty for the embedded PostgreSQL.

        Raises:
            SettingError: PG_PORT does not fit PG_HOST.
        """
        if self.dsn or not self.host:
            return self.dsn
        hosts, ports = self.host.split(","), self.port.split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        if len(ports) != len(hosts):
            raise SettingError(
                f"PG_PORT names {len(ports)} ports for the {len(hosts)} hosts of PG_HOST: give one, or one each"
            )
        addresses = ",".join(f"{quote(host, safe=':[]')}:{port}" for host, port in zip(hosts, ports, strict=True))
        secret = f":{quote(self.password, safe='')}" if self.password else ""
        return f"postgresql://{quote(self.user, safe='')}{secret}@{addresses}/{quote(self.name, safe='')}"


class Engine(Area, frozen=True, kw_only=True):
    """The engine of each worker."""

    home: Annotated[Literal["loop", "thread"], Variable("QUEEN_ENGINE_HOME")] = "loop"
    """Where the engine runs: in the event loop of HTTP, or in a thread of its own."""
    cached_partitions: Annotated[int, Variable("QUEEN_CACHE_PARTITION_MAX", 100, 10_000_000)] = 200_000
    """Partition ids in the cache of a worker."""
    concurrency_mode: Annotated[Literal["static", "vegas"], Variable("QUEEN_CONCURRENCY_MODE")] = "static"
    """How many calls are in flight per job type: always up to QUEEN_<TYPE>_MAX_CONCURRENT (`static`), or as many of
    these as PostgreSQL takes without queueing (`vegas`)."""
    vegas_min: Annotated[int, Variable("QUEEN_VEGAS_MIN_LIMIT", 1, 1000)] = 1
    """vegas: the lowest limit of calls."""
    vegas_alpha: Annotated[int, Variable("QUEEN_VEGAS_ALPHA", 0, 100)] = 3
    """vegas: the limit grows while less than this percentage queues."""
    vegas_beta: Annotated[int, Variable("QUEEN_VEGAS_BETA", 0, 100)] = 12
    """vegas: the limit shrinks while more than this percentage queues."""
    vegas_window: Annotated[int, Variable("QUEEN_VEGAS_RTT_WINDOW_SAMPLES", 4, 100_000)] = 50
    """vegas: calls per measurement of the round trip."""
    vegas_refresh_s: Annotated[int, Variable("QUEEN_VEGAS_RTT_MIN_WINDOW_SEC", 1, 86_400)] = 30
    """vegas: how long the fastest round trip is valid, in seconds."""


class Delivery(Area, frozen=True, kw_only=True):
    """Pops, long polls and WebSockets."""

    default_batch: Annotated[int, Variable("DEFAULT_BATCH_SIZE", 1, 10_000)] = 1
    """Messages of a pop without `batch` and `autopilot`."""
    default_timeout_ms: Annotated[int, Variable("DEFAULT_TIMEOUT POP_DEFAULT_TIMEOUT_MS", 0, 3_600_000)] = 30_000
    """Timeout of a long poll without `timeout`, in ms."""
    default_subscription_mode: Annotated[
        Literal["", "all", "new", "new-only"], Variable("DEFAULT_SUBSCRIPTION_MODE")
    ] = ""
    """Where a new consumer group begins if the client does not say: with `all` or an empty text at the first message,
    else with new messages."""
    poll_initial_ms: Annotated[int, Variable("POP_WAIT_INITIAL_INTERVAL_MS POLL_DB_INTERVAL", 1, 60_000)] = 100
    """First interval between two checks of a long poll, in ms. It doubles with each check that finds nothing."""
    poll_max_ms: Annotated[int, Variable("POP_WAIT_MAX_INTERVAL_MS QUEUE_MAX_POLL_INTERVAL", 1, 60_000)] = 1000
    """Longest interval between two checks of a long poll, in ms."""
    stream_poll_initial_ms: Annotated[int, Variable("STREAM_POLL_INTERVAL", 10, 60_000)] = 1000
    """The same for an incomplete window of a WebSocket: first."""
    stream_poll_max_ms: Annotated[int, Variable("STREAM_MAX_POLL_INTERVAL", 10, 600_000)] = 5000
    """The same for an incomplete window of a WebSocket: longest."""
    sockets_max: Annotated[int, Variable("QUEEN_WS_MAX_SOCKETS", 0, 1_000_000)] = 1000
    """Open WebSockets per worker. 0: none."""
    socket_ping_s: Annotated[int, Variable("QUEEN_WS_PING_INTERVAL", 1, 3600)] = 20
    """Interval between two pings of a WebSocket and time limit for the answer, in seconds."""


class Spool(Area, frozen=True, kw_only=True):
    """Spool.

    Files that hold pushes while PostgreSQL is unavailable.
    """

    folder: Annotated[str, Variable("FILE_BUFFER_DIR")] = ""
    """Folder of the spool, which must exist. Empty: one per database, in `buffers` in QUEEN_DATA_DIR."""
    interval_ms: Annotated[int, Variable("FILE_BUFFER_FLUSH_MS", 1, 60_000)] = 100
    """Interval at which a worker looks for files to store, in ms."""
    batch: Annotated[int, Variable("FILE_BUFFER_MAX_BATCH", 1, 100_000)] = 100
    """Push requests that are stored in one call."""
    file_requests: Annotated[int, Variable("FILE_BUFFER_EVENTS_PER_FILE", 1, 10_000_000)] = 10_000
    """Push requests per file."""
    bytes_max: Annotated[int, Variable("FILE_BUFFER_MAX_BYTES", 1024, 1 << 50)] = 1 << 30
    """Size of the spool, in bytes."""


class Peers(Area, frozen=True, kw_only=True):
    """Notifications between workers and instances."""

    interval_ms: Annotated[int, Variable("PEER_NOTIFY_BATCH_MS", 0, 10_000)] = 10
    """Least interval between two notifications, in ms."""
    udp: Annotated[tuple[tuple[str, int], ...], Variable("QUEEN_UDP_PEERS", form=ADDRESSES)] = ()
    """Other instances to notify by UDP: host:port, separated by commas."""
    udp_port: Annotated[int, Variable("QUEEN_UDP_NOTIFY_PORT", 1, 65_535)] = 6633
    """UDP port for notifications of other instances."""
    http: Annotated[tuple[str, ...], Variable("QUEEN_PEERS", form=URLS)] = ()
    """Other instances to notify by HTTP: URLs, separated by commas."""
    secret: Annotated[str, Variable("QUEEN_SYNC_SECRET", secret=True)] = ""
    """Secret that all instances share, with which notifications by UDP and HTTP are signed. Empty: the one in the
    database, if there are peers."""

    @property
    def any(self) -> bool:
        """Whether there are other instances to notify by UDP or HTTP."""
        return bool(self.udp or self.http)


class Jobs(Area, frozen=True, kw_only=True):
    """Background jobs."""

    metrics_interval_ms: Annotated[int, Variable("STATS_INTERVAL_MS", 100, 3_600_000)] = 10_000
    """Interval at which a worker stores its metrics and refreshes the statistics of queues, in ms."""
    metrics_days: Annotated[int, Variable("METRICS_RETENTION_DAYS", 1, 36_500)] = 7
    """How long stored metrics are kept, in days."""
    retention_interval_ms: Annotated[int, Variable("RETENTION_INTERVAL", 100, 86_400_000)] = 300_000
    """Interval of retention and the removal of empty partitions, in ms."""
    retention_batch: Annotated[int, Variable("RETENTION_BATCH_SIZE", 1, 1_000_000)] = 1000
    """Messages that one transaction of retention removes."""
    eviction_interval_ms: Annotated[int, Variable("EVICTION_INTERVAL", 100, 86_400_000)] = 60_000
    """Interval at which `maxWaitTimeSeconds` and `ttl` apply, in ms."""
    eviction_batch: Annotated[int, Variable("EVICTION_BATCH_SIZE", 1, 1_000_000)] = 1000
    """Messages that one transaction of eviction takes out. If they take longer than 6 ms it takes fewer, down to
    100."""
    partition_cleanup_days: Annotated[int, Variable("PARTITION_CLEANUP_DAYS", 0, 36_500)] = 30
    """Days after the last push at which an empty partition is removed."""


class Security(Area, frozen=True, kw_only=True):
    """Encryption, browsers and https."""

    encryption_key: Annotated[str, Variable("QUEEN_ENCRYPTION_KEY", form=KEY, secret=True)] = ""
    """Key of encrypted queues: 64 hexadecimal digits, as `openssl rand -hex 32` prints them."""
    encryption_old_keys: Annotated[str, Variable("QUEEN_ENCRYPTION_OLD_KEYS", form=KEYS, secret=True)] = ""
    """Earlier keys, separated by commas, to read what was stored with them."""
    cors_origins: Annotated[tuple[str, ...], Variable("QUEEN_CORS_ORIGINS", form=ORIGINS)] = ("auto",)
    """Origins of other web pages that may use the server: *, or origins such as https://ops.example.org, separated by
    commas. Empty: none. `auto`: all if JWT_ENABLED, else none (docs/security.md)."""
    hosts: Annotated[tuple[str, ...], Variable("QUEEN_HOSTS", form=HOST_NAMES)] = ()
    """Names of the server, separated by commas, that requests may use without JWT_ENABLED. Always allowed are
    addresses, localhost, names without a dot and those of QUEEN_CORS_ORIGINS."""
    insecure: Annotated[bool, Variable("QUEEN_INSECURE")] = False
    """Whether to start without JWT_ENABLED where other machines can reach HOST."""
    tls_certificate: Annotated[str, Variable("QUEEN_TLS_CERTFILE")] = ""
    """File with the certificate for https (PEM, with its chain)."""
    tls_key: Annotated[str, Variable("QUEEN_TLS_KEYFILE")] = ""
    """File with the private key of that certificate."""


class Jwt(Area, frozen=True, kw_only=True):
    """Authentication by tokens."""

    enabled: Annotated[bool, Variable("JWT_ENABLED")] = False
    """Whether requests need a token (docs/security.md)."""
    algorithm: Annotated[Literal["HS256", "RS256", "EdDSA", "auto"], Variable("JWT_ALGORITHM")] = "HS256"
    """Algorithm of the signatures. `auto`: those of HS256, RS256, RS384, RS512 and EdDSA that there are keys for."""
    secret: Annotated[str, Variable("JWT_SECRET", secret=True)] = ""
    """Secret of HS256, 32 bytes or more, as `openssl rand -hex 32` prints them."""
    public_key: Annotated[str, Variable("JWT_PUBLIC_KEY")] = ""
    """Public key or certificate of RS256 or EdDSA: PEM, or the path of its file."""
    jwks_url: Annotated[str, Variable("JWT_JWKS_URL", form=URL)] = ""
    """Where the issuer publishes its keys (a JSON Web Key Set)."""
    jwks_refresh_s: Annotated[int, Variable("JWT_JWKS_REFRESH_INTERVAL", 10, 604_800)] = 3600
    """Interval at which they are fetched, in seconds."""
    jwks_timeout_ms: Annotated[int, Variable("JWT_JWKS_TIMEOUT_MS", 100, 60_000)] = 5000
    """Time limit for a fetch, in ms."""
    issuer: Annotated[str, Variable("JWT_ISSUER")] = ""
    """Required value of the claim `iss`. Empty: any."""
    audience: Annotated[str, Variable("JWT_AUDIENCE")] = ""
    """Value that the claim `aud` must be or contain. Empty: any."""
    clock_skew_s: Annotated[int, Variable("JWT_CLOCK_SKEW", 0, 3600)] = 30
    """Allowed difference between the clocks of issuer and server, in seconds."""
    require_expiry: Annotated[bool, Variable("QUEEN_JWT_REQUIRE_EXP")] = False
    """Whether a token without the claim `exp` is refused."""
    role_claim: Annotated[str, Variable("JWT_ROLES_CLAIM")] = "role"
    """Claim with a role, or its path: `a.b`."""
    roles_claim: Annotated[str, Variable("JWT_ROLES_ARRAY_CLAIM")] = "roles"
    """Claim with a list of roles, or its path: `realm_access.roles` with Keycloak."""
    role_admin: Annotated[str, Variable("JWT_ROLE_ADMIN")] = "admin"
    """Role that may do everything."""
    role_read_write: Annotated[str, Variable("JWT_ROLE_READ_WRITE")] = "read-write"
    """Role that may push, pop and ack."""
    role_read_only: Annotated[str, Variable("JWT_ROLE_READ_ONLY")] = "read-only"
    """Role that may read."""
    skip_paths: Annotated[tuple[str, ...], Variable("JWT_SKIP_PATHS", form=PATHS)] = (
        "/health",
        "/metrics/prometheus",
        "/metrics",
        "/",
    )
    """Paths that need no token, with everything below them. `/` is only the path `/`."""


class SimpleMq(Area, frozen=True, kw_only=True):
    """simple-mq."""

    message_bytes_max: Annotated[int, Variable("QUEEN_SMQ_MAX_MESSAGE_BYTES", 1, 1 << 28)] = 262_144
    """Largest message, in bytes of UTF-8."""
    queues_max: Annotated[int, Variable("QUEEN_SMQ_MAX_QUEUES", 0, 10_000_000)] = 0
    """Queues, not counting dead-letter queues. 0: no limit."""
    sweep_interval_ms: Annotated[int, Variable("QUEEN_SMQ_SWEEP_INTERVAL_MS", 0, 3_600_000)] = 0
    """Interval at which a background job moves exhausted messages to dead-letter queues, in ms. 0: only polls move
    them."""


class Sqs(Area, frozen=True, kw_only=True):
    """SQS."""

    keys: Annotated[tuple[tuple[str, str, str], ...], Variable("QUEEN_SQS_KEYS", form=ACCESS_KEYS, secret=True)] = ()
    """Access keys of SQS clients, separated by commas: id:secret:level, the level being `read-only`, `read-write` or
    `admin`. Empty: signatures are not checked, or refused if JWT_ENABLED (docs/sqs.md)."""
    account: Annotated[str, Variable("QUEEN_SQS_ACCOUNT", form=ACCOUNT)] = "000000000000"
    """Account number in URLs and ARNs of queues: 12 digits."""
    in_flight_max: Annotated[int, Variable("QUEEN_SQS_MAX_IN_FLIGHT", 1, 10_000_000)] = 120_000
    """Maximum of messages in flight of a standard queue; then receives are answered `OverLimit`."""
    fifo_in_flight_max: Annotated[int, Variable("QUEEN_SQS_MAX_IN_FLIGHT_FIFO", 1, 10_000_000)] = 20_000
    """Maximum of messages in flight of a FIFO queue; then receives get nothing."""


class Telemetry(Area, frozen=True, kw_only=True):
    """Prometheus and OpenTelemetry.

    Variables of OpenTelemetry that are not named here have its own meaning.
    """

    series_max: Annotated[int, Variable("QUEEN_METRICS_MAX_QUEUES", 0, 100_000)] = 1000
    """Queues, consumer groups and queues of simple-mq with metrics of their own: the oldest of each."""
    enabled: Annotated[bool, Variable("QUEEN_OTEL_ENABLED")] = False
    """Whether traces and metrics go to an OpenTelemetry collector (docs/telemetry.md). The variables below matter only
    then."""
    disabled: Annotated[bool, Variable("OTEL_SDK_DISABLED", form=Form("text", lambda text: text.lower() == "true"))] = (
        False
    )
    """`true` turns it off again."""
    service: Annotated[str, Variable("OTEL_SERVICE_NAME")] = "queen"
    """Name of this service in traces and metrics."""
    endpoint: Annotated[str, Variable("OTEL_EXPORTER_OTLP_ENDPOINT")] = "http://localhost:4318"
    """URL of the collector, for OTLP over HTTP (protobuf)."""
    traces: Annotated[str, Variable("OTEL_TRACES_EXPORTER")] = "otlp"
    """`otlp` sends traces. `none` does not, but keeps the trace contexts of messages."""
    metrics: Annotated[str, Variable("OTEL_METRICS_EXPORTER")] = "otlp"
    """`otlp` sends metrics, `none` does not."""
    metrics_interval_ms: Annotated[int, Variable("OTEL_METRIC_EXPORT_INTERVAL", 100, 86_400_000)] = 60_000
    """Interval at which metrics are sent, in ms."""

    @property
    def on(self) -> bool:
        """Whether there are traces and metrics to send."""
        return self.enabled and not self.disabled
