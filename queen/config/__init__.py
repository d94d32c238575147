"""Settings: the environment as one frozen value. No other module asks for a variable."""

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from queen.config import areas, policies, unknown
from queen.config.connections import PoolSizes, pool_sizes
from queen.config.forms import is_url
from queen.config.presets import PRESETS
from queen.config.variable import Area, Form, one_of, parse, settings_of
from queen.core.batch_policy import POLICIES, BatchPolicy
from queen.core.concurrency import Limiter, Static, Vegas, VegasSettings
from queen.core.errors import SettingError
from queen.core.job_type import JobType


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that can be set, by area, with its defaults."""

    server: areas.Server = areas.Server()
    requests: areas.Requests = areas.Requests()
    database: areas.Database = areas.Database()
    engine: areas.Engine = areas.Engine()
    delivery: areas.Delivery = areas.Delivery()
    spool: areas.Spool = areas.Spool()
    peers: areas.Peers = areas.Peers()
    jobs: areas.Jobs = areas.Jobs()
    security: areas.Security = areas.Security()
    jwt: areas.Jwt = areas.Jwt()
    simple_mq: areas.SimpleMq = areas.SimpleMq()
    sqs: areas.Sqs = areas.Sqs()
    telemetry: areas.Telemetry = areas.Telemetry()
    policies: Mapping[JobType, BatchPolicy] = msgspec.field(default_factory=lambda: POLICIES)

    def policy(self, kind: JobType) -> BatchPolicy:
        """The batch policy of a job type."""
        return self.policies[kind]

    def of_shard(self, name: str, folder: str) -> "Settings":
        """The settings for one of several databases, whose spool has a folder of its own."""
        url = dict(self.database.shards)[name]
        database = msgspec.structs.replace(self.database, dsn=url, shards=())
        return msgspec.structs.replace(
            self, database=database, spool=msgspec.structs.replace(self.spool, folder=folder)
        )

    @property
    def pool_sizes(self) -> PoolSizes:
        """The most connections to PostgreSQL. Raises SettingError if there are too few for the workers."""
        return pool_sizes(self.database, self.server.workers)

    def limiter(self, kind: JobType) -> Limiter:
        """The limit of calls in flight of a job type."""
        cap, engine = self.policy(kind).in_flight_max, self.engine
        if engine.concurrency_mode == "static":
            return Static(cap)
        return Vegas(
            cap,
            VegasSettings(
                engine.vegas_min, engine.vegas_alpha, engine.vegas_beta, engine.vegas_window, engine.vegas_refresh_s
            ),
        )


#: The areas by the name of their field.
AREAS: Mapping[str, type[Area]] = {
    field.name: field.type for field in msgspec.structs.fields(Settings) if field.name != "policies"
}


def variables() -> Collection[str]:
    """The names of all settings."""
    names = {name for area in AREAS.values() for setting in settings_of(area) for name in setting.names}
    return names | {name for kind in JobType for name in policies.variables(kind)} | _CHECKED.keys()


def ineffective(environment: Mapping[str, str]) -> Iterator[str]:
    """One sentence for each variable that has no effect, although it looks like a setting or is one elsewhere."""
    return unknown.find(environment, variables())


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Reads the settings.

    Raises:
        SettingError: a value is out of its range, or contradicts another; the text names variable, value and range.
    """
    preset = areas.Server.read(environment, areas.Server()).preset
    settings = _read(environment, _read(PRESETS[preset].variables(), Settings()) if preset else Settings())
    _check(settings)
    if settings.database.connections and (beside := {"SIDECAR_POOL_SIZE", "DB_POOL_SIZE"} & environment.keys()):
        raise SettingError(f"QUEEN_CONNECTIONS divides all connections: set it, or {' and '.join(sorted(beside))}")
    if settings.telemetry.on:
        _check_telemetry(settings.telemetry, environment)
    return settings


def _read(environment: Mapping[str, str], base: Settings) -> Settings:
    found: dict[str, Any] = {name: area.read(environment, getattr(base, name)) for name, area in AREAS.items()}
    return Settings(**found, policies=policies.read(environment, base.policies))


def _check(settings: Settings) -> None:
    """Settings that only make sense together."""
    _ = settings.pool_sizes
    if settings.database.shards and (settings.database.url or settings.peers.any):
        raise SettingError(
            "DATABASE_URLS names all databases: do not set DATABASE_URL, PG_HOST, QUEEN_PEERS or QUEEN_UDP_PEERS "
            "with it"
        )
    security, jwt, engine = settings.security, settings.jwt, settings.engine
    if bool(security.tls_certificate) != bool(security.tls_key):
        raise SettingError("QUEEN_TLS_CERTFILE and QUEEN_TLS_KEYFILE belong together: give both or neither")
    roles = {jwt.role_admin, jwt.role_read_write, jwt.role_read_only}
    if not all(roles) or len(roles) < 3:
        raise SettingError("JWT_ROLE_ADMIN, JWT_ROLE_READ_WRITE and JWT_ROLE_READ_ONLY must be three different roles")
    if engine.vegas_alpha >= engine.vegas_beta:
        raise SettingError(
            f"QUEEN_VEGAS_ALPHA={engine.vegas_alpha} must be less than QUEEN_VEGAS_BETA={engine.vegas_beta}"
        )


#: What this server can do of what OpenTelemetry knows.
_CHECKED: Mapping[str, Form] = {
    "OTEL_EXPORTER_OTLP_PROTOCOL": one_of("http/protobuf"),
    "OTEL_TRACES_EXPORTER": one_of("otlp", "none"),
    "OTEL_METRICS_EXPORTER": one_of("otlp", "none"),
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": one_of("cumulative", "CUMULATIVE"),
}


def _check_telemetry(telemetry: areas.Telemetry, environment: Mapping[str, str]) -> None:
    """Without QUEEN_OTEL_ENABLED the variables may be meant for other programs."""
    for name, form in _CHECKED.items():
        if name in environment:
            parse(name, environment[name], form._replace(words=f"{form.words} (QUEEN_OTEL_ENABLED is set)"))
    if not is_url(telemetry.endpoint):
        raise SettingError("OTEL_EXPORTER_OTLP_ENDPOINT is not a URL such as http://collector:4318")
