"""Settings: every variable is read, checked and documented."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import integers

from queen.cli.settings import meanings, render_reference
from queen.config import AREAS, Settings, from_environment, ineffective, policies
from queen.config.areas import Database, Telemetry
from queen.config.connections import PoolSizes, pool_sizes
from queen.config.presets import PRESETS, split
from queen.config.unknown import ELSEWHERE, FORMER
from queen.config.variable import Setting, settings_of
from queen.core.batch_policy import POLICIES
from queen.core.errors import SettingError
from queen.core.job_type import JobType
from queen.core.limits import BACKGROUND_CONNECTIONS
from queen.telemetry.needs import describe

VARIABLES = [(name, area, setting) for area in AREAS for setting in settings_of(AREAS[area]) for name in setting.names]

#: The values of what is neither a number, a boolean nor any text.
VALUES = {
    "LOG_LEVEL": "warning", "QUEEN_CONCURRENCY_MODE": "vegas", "QUEEN_WORKER_CLASS": "gthread", "DB_POOLER": "yes",
    "QUEEN_UDP_PEERS": "a:7, [::1]:8", "QUEEN_PEERS": "http://a:1,https://b/", "QUEEN_ENCRYPTION_KEY": "ab" * 32,
    "QUEEN_ENCRYPTION_OLD_KEYS": "ab" * 32 + ", " + "cd" * 32, "QUEEN_ENGINE_HOME": "thread",
    "QUEEN_CORS_ORIGINS": "https://a, http://b:1", "QUEEN_HOSTS": "A.example, b.", "QUEEN_VEGAS_ALPHA": "7",
    "QUEEN_VEGAS_BETA": "50", "QUEEN_VEGAS_MIN_LIMIT": "9", "QUEEN_THREADS": "64", "MAX_BODY_SIZE": "2048",
    "JWT_ALGORITHM": "EdDSA", "JWT_JWKS_URL": "https://a/keys", "JWT_SKIP_PATHS": "/a/,/",
    "DEFAULT_SUBSCRIPTION_MODE": "new", "QUEEN_PRESET": "low-latency",
    "QUEEN_SQS_KEYS": "key:secret/123+:admin, k2:secret-two:read-only", "QUEEN_SQS_ACCOUNT": "123456789012",
    "DATABASE_URLS": "a=postgresql://h/x b=postgres://i/y",
}  # fmt: skip

#: What they are read as, where that is not the text itself.
READ = {
    "QUEEN_UDP_PEERS": (("a", 7), ("::1", 8)),
    "QUEEN_PEERS": ("http://a:1", "https://b"),
    "QUEEN_ENCRYPTION_OLD_KEYS": "ab" * 32 + "," + "cd" * 32,
    "QUEEN_CORS_ORIGINS": ("https://a", "http://b:1"),
    "QUEEN_HOSTS": ("a.example", "b"),
    "JWT_SKIP_PATHS": ("/a", "/"),
    "DATABASE_URLS": (("a", "postgresql://h/x"), ("b", "postgres://i/y")),
    "QUEEN_SQS_KEYS": (("key", "secret/123+", "admin"), ("k2", "secret-two", "read-only")),
}


def test_the_reference_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    assert page.read_text() == render_reference(), "run: queen settings > docs/settings.md"


@pytest.mark.parametrize(("name", "area", "setting"), VARIABLES, ids=[name for name, _, _ in VARIABLES])
def test_a_variable_sets_its_field(name: str, area: str, setting: Setting) -> None:
    values = {int: "1024", str: "new", bool: str(not setting.default)}
    text = VALUES.get(name) or values[type(setting.default)]
    # What only makes sense together.
    beside = {"QUEEN_TLS_CERTFILE": "c", "QUEEN_TLS_KEYFILE": "k"}
    found = getattr(getattr(from_environment({**beside, name: text}), area), setting.field)
    assert type(found) is type(setting.default)
    assert found == READ[name] if name in READ else str(found) == text


def test_of_several_variables_the_first_wins() -> None:
    both = {"QUEEN_MAX_BODY_BYTES": "2048", "MAX_BODY_SIZE": "1024"}
    assert from_environment(both).requests.body_bytes_max == 1024


@pytest.mark.parametrize("area", AREAS)
def test_every_default_has_the_form_that_its_variable_asks_for(area: str) -> None:
    for setting in settings_of(AREAS[area]):
        text = ",".join(map(str, setting.default)) if isinstance(setting.default, tuple) else str(setting.default)
        assert setting.form.parse(text) == setting.default, setting.field


@pytest.mark.parametrize("area", AREAS)
def test_every_setting_has_a_meaning(area: str) -> None:
    assert list(meanings(AREAS[area])) == [setting.field for setting in settings_of(AREAS[area])]


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("PORT", "x"),
        ("PORT", "70000"),
        ("NUM_WORKERS", "0"),
        ("LOG_LEVEL", "loud"),
        ("QUEEN_PUSH_MAX_HOLD_MS", "-1"),
        ("QUEEN_UDP_PEERS", "host"),
        ("QUEEN_UDP_PEERS", "host:99999"),
        ("QUEEN_PEERS", "host:6632"),
        ("QUEEN_PEERS", "http://:6632"),
        ("QUEEN_CONCURRENCY_MODE", "reno"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1 min"),
        ("QUEEN_CORS_ORIGINS", "https://a.example/path"),
        ("QUEEN_CORS_ORIGINS", "ops.example.org"),
        ("QUEEN_CORS_ORIGINS", "https://A.example"),
        ("QUEEN_HOSTS", "queen.example.org:6632"),
        ("QUEEN_HOSTS", "https://queen.example.org"),
        ("QUEEN_HOSTS", "a..b"),
        ("QUEEN_INSECURE", "maybe"),
        ("QUEEN_WORKER_CLASS", "sync"),
        ("DB_POOLER", "maybe"),
        ("JWT_ENABLED", "maybe"),
        ("JWT_ALGORITHM", "none"),
        ("JWT_JWKS_URL", "file:///etc/passwd"),
        ("JWT_SKIP_PATHS", "health"),
        ("QUEEN_SQS_ACCOUNT", "1"),
    ],
)
def test_a_bad_value_is_refused_with_variable_and_value(variable: str, text: str) -> None:
    with pytest.raises(SettingError, match=f"{variable}='{text}' is not") as refusal:
        from_environment({variable: text})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("variable", ["QUEEN_ENCRYPTION_KEY", "QUEEN_ENCRYPTION_OLD_KEYS"])
@pytest.mark.parametrize("text", ["secret", "ab" * 31, "ab" * 33, "xy" * 32])
def test_a_bad_key_is_refused_without_being_shown(variable: str, text: str) -> None:
    with pytest.raises(SettingError, match=f"{variable} is not 64 hexadecimal digits") as refusal:
        from_environment({variable: text})
    assert text not in str(refusal.value)


def test_secrets_are_not_part_of_what_settings_print() -> None:
    secrets = {"PG_PASSWORD": "s3cret", "DATABASE_URL": "postgresql://a:s3cret@b/c", "QUEEN_ENCRYPTION_KEY": "5e" * 32}
    shown = repr(from_environment(secrets))
    assert not any(secret in shown for secret in ("s3cret", "5e5e"))


@pytest.mark.parametrize("kind", policies.TYPES)
@pytest.mark.parametrize("suffix", policies.OF_TYPE)
def test_a_policy_variable_changes_its_job_type_only(kind: JobType, suffix: str) -> None:
    settings = from_environment({f"QUEEN_{kind.name}_{suffix}": "7"})
    field, _ = policies.OF_TYPE[suffix]
    assert getattr(settings.policy(kind), field) == 7
    assert [each for each in JobType if settings.policy(each) != POLICIES[each]] == [kind]


def test_without_variables_every_job_type_has_its_default_policy() -> None:
    assert from_environment({}).policies == Settings().policies == POLICIES


def test_pg_variables_become_one_url() -> None:
    settings = from_environment(
        {"PG_HOST": "a,b", "PG_PORT": "1,2", "PG_USER": "u@x", "PG_PASSWORD": "p/:w", "PG_DB": "d"}
    )
    assert settings.database.url == "postgresql://u%40x:p%2F%3Aw@a:1,b:2/d"


def test_ports_that_do_not_match_the_hosts_are_refused() -> None:
    with pytest.raises(SettingError, match="PG_PORT"):
        _ = from_environment({"PG_HOST": "a,b,c", "PG_PORT": "1,2"}).database.url


def test_no_database_setting_means_the_embedded_one() -> None:
    assert from_environment({}).database.url == ""


def test_peers_need_no_secret() -> None:
    for variable, value in (("QUEEN_UDP_PEERS", "a:1"), ("QUEEN_PEERS", "http://a")):
        peers = from_environment({variable: value}).peers
        assert (peers.any, peers.secret) == (True, "")


def test_micro_batching_of_the_older_designs_is_a_preset() -> None:
    settings = from_environment(
        {"SIDECAR_MICRO_BATCH_WAIT_MS": "5", "QUEEN_ACK_MAX_HOLD_MS": "9", "SIDECAR_MAX_ITEMS_PER_TX": "1000"}
    )
    assert settings.policy(JobType.PUSH).hold_ms == settings.policy(JobType.ENQUEUE).hold_ms == 5
    assert settings.policy(JobType.ACK).hold_ms == 9, "a variable of one job type wins"
    assert {policy.items_max for policy in settings.policies.values()} == {1000}


def test_vegas_needs_alpha_less_than_beta() -> None:
    with pytest.raises(SettingError, match="QUEEN_VEGAS_ALPHA=12"):
        from_environment({"QUEEN_VEGAS_ALPHA": "12"})


def test_certificate_and_key_belong_together() -> None:
    for variable in ("QUEEN_TLS_CERTFILE", "QUEEN_TLS_KEYFILE"):
        with pytest.raises(SettingError, match="belong together"):
            from_environment({variable: "file"})


def test_two_levels_cannot_have_one_role() -> None:
    with pytest.raises(SettingError, match="three different roles"):
        from_environment({"JWT_ROLE_READ_ONLY": "admin"})


def test_secrets_are_not_shown() -> None:
    secrets = {
        "DATABASE_URL": "postgresql://u:hush@h/d", "PG_PASSWORD": "hush", "QUEEN_SYNC_SECRET": "hush",
        "JWT_SECRET": "hush",
    }  # fmt: skip
    assert "hush" not in repr(from_environment(secrets))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("QUEEN_PUSH_PREFERED_BATCH_SIZE", "QUEEN_PUSH_PREFERRED_BATCH_SIZE"),
        ("JWT_ISUER", "JWT_ISSUER"),
        ("QUEEN_UDP_PORT", "QUEEN_UDP_PEERS"),
        ("QUEEN_MAX_BODY", "QUEEN_MAX_BODY_BYTES"),
        ("NUM_WORKER", "NUM_WORKERS"),
        ("NUM_WROKERS", "NUM_WORKERS"),
        ("num_workers", "NUM_WORKERS"),
        ("SIDECAR_POOLSIZE", "SIDECAR_POOL_SIZE"),
        ("SIDECAR_CONNECTIONS", "QUEEN_CONNECTIONS"),
        ("DB_POOL_SIZES", "DB_POOL_SIZE"),
        ("DB_STATEMENT_TIMOUT", "DB_STATEMENT_TIMEOUT"),
        ("FILE_BUFFER_DIRECTORY", "FILE_BUFFER_DIR"),
        ("RETENTION_INTERVALL", "RETENTION_INTERVAL"),
        ("LOG_LEVLE", "LOG_LEVEL"),
        ("LOGLEVEL", "LOG_LEVEL"),
        ("DATABASE_URI", "DATABASE_URL"),
        ("PG_PASSWROD", "PG_PASSWORD"),
        ("BATCH_INSERTSIZE", "BATCH_INSERT_SIZE"),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest_setting(name: str, nearest: str) -> None:
    assert [*ineffective({name: "x"})] == [f"{name} is not a setting; the nearest name is {nearest}"]


def test_variables_of_others_are_not_named() -> None:
    environment = {
        "QUEEN_UDP_PEERS": "", "QUEEN_PUSH_MAX_HOLD_MS": "1", "SIDECAR_MAX_ITEMS_PER_TX": "9", "PATH": "/bin",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "QUEEN_URL": "http://a", "QUEEN_TOKEN": "t",
        "QUEEN_TEST_DSN": "d", "QUEEN_CLIENT_LOG": "true",
    }  # fmt: skip
    of_kubernetes = {
        "QUEEN_SERVICE_HOST": "10.0.0.1", "QUEEN_SERVICE_PORT": "6632", "QUEEN_SERVICE_PORT_HTTP": "6632",
        "QUEEN_PORT": "tcp://10.0.0.1:6632", "QUEEN_PORT_6632_TCP": "tcp://10.0.0.1:6632",
        "QUEEN_PODS_PORT_6632_TCP_ADDR": "10.0.0.1",
    }  # fmt: skip
    assert [*ineffective({**environment, **of_kubernetes})] == []


def test_variables_of_other_programs_are_not_named() -> None:
    others = (
        "PATH HOME USER LOGNAME HOSTNAME HOSTTYPE SHELL TERM LANG LC_ALL TZ PWD OLDPWD SHLVL EDITOR PAGER TMPDIR"
        " DISPLAY PGHOST PGPORT PGUSER PGPASSWORD PGDATABASE PGPASSFILE PGSSLMODE PG_MAJOR PG_VERSION PGDATA"
        " POSTGRES_PASSWORD POSTGRES_DB POSTGRES_USER DB_HOST DB_PORT DB_USER DB_NAME DB_PASS DB_PASSWORD DB_URL"
        " DATABASE_HOST DATABASE_PORT REDIS_URL AMQP_URL KAFKA_BROKERS MONGO_URL SECRET_KEY API_KEY JAVA_HOME"
        " SPARK_HOME PYTHONPATH PYTHONUNBUFFERED VIRTUAL_ENV PIP_INDEX_URL PIP_DEFAULT_TIMEOUT GUNICORN_CMD_ARGS"
        " WEB_CONCURRENCY"
        " UVICORN_PORT UVICORN_HOST FLASK_APP DJANGO_SETTINGS_MODULE RAILS_ENV NODE_ENV CI GITHUB_TOKEN"
        " GITHUB_ACTIONS KUBERNETES_PORT KUBERNETES_SERVICE_HOST POD_IP NODE_NAME AWS_REGION AWS_SECRET_ACCESS_KEY"
        " SSL_CERT_FILE HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy RUST_LOG LOG_FILE LOG_FORMAT LOG_DIR DEBUG"
        " VERBOSE TIMEOUT WORKERS THREADS PORTS HOSTS SERVER_PORT SERVER_HOST APP_PORT METRICS_PORT"
        " PROMETHEUS_MULTIPROC_DIR OTEL_EXPORTER_OTLP_HEADERS OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
        " OTEL_RESOURCE_ATTRIBUTES GRAFANA_PASSWORD INVOCATION_ID JOURNAL_STREAM SYSTEMD_EXEC_PID LISTEN_FDS"
        " NOTIFY_SOCKET MAINPID XDG_RUNTIME_DIR SSH_CONNECTION SSH_AUTH_SOCK LD_LIBRARY_PATH MALLOC_ARENA_MAX"
        " GOMAXPROCS OMP_NUM_THREADS POOL_SIZE MAX_CONNECTIONS"
    )
    assert [*ineffective(dict.fromkeys(others.split(), "1"))] == []


def test_a_misspelt_variable_of_older_designs_is_named_with_what_took_its_place() -> None:
    (line,) = ineffective({"POLL_WORKER_INTREVAL": "50"})
    assert line == (
        "POLL_WORKER_INTREVAL is not a setting; the nearest name is POLL_WORKER_INTERVAL, which is not a setting of "
        f"this server: {ELSEWHERE['POLL_WORKER_INTERVAL']}"
    )


def test_of_the_eight_variables_of_older_designs_one_acts_and_seven_are_named() -> None:
    names = (
        "POLL_WORKER_INTERVAL", "POLL_WORKER_COUNT", "STREAM_POLL_WORKER_COUNT", "STREAM_POLL_WORKER_INTERVAL",
        "STREAM_CONCURRENT_CHECKS", "RESPONSE_TIMER_INTERVAL_MS", "METRICS_SAMPLE_INTERVAL_MS",
    )  # fmt: skip
    for name in names:
        (line,) = ineffective({name: "anything"})
        assert line.startswith(f"{name} is not a setting of this server: ")
    settings = from_environment({"BATCH_INSERT_SIZE": "2000"})
    assert {kind for kind in JobType if settings.policy(kind).items_max == 2000} == {JobType.PUSH}


# ---------------------------------------------------------------- presets and connections


@pytest.mark.parametrize(
    ("name", "workers", "messages", "rest", "budget", "poll_ms", "items"),
    [
        ("balanced", 10, 142, 8, 29, 100, 1000),
        ("high-throughput", 20, 285, 15, 99, 50, 2000),
        ("low-latency", 10, 142, 8, 31, 50, 1000),
    ],
)
def test_a_preset_has_the_sizes_of_the_first_design(
    name: str, workers: int, messages: int, rest: int, budget: int, poll_ms: int, items: int
) -> None:
    settings = from_environment({"QUEEN_PRESET": name})
    assert settings.server.workers == workers
    assert (settings.database.hot_connections, settings.database.cold_connections) == (messages, rest)
    assert settings.delivery.poll_initial_ms == poll_ms
    assert settings.policy(JobType.PUSH).items_max == items
    assert PRESETS[name].budget == budget
    assert settings.policy(JobType.POP).in_flight_max == round(budget / workers)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("variable", "read"),
    [
        ("NUM_WORKERS", lambda settings: settings.server.workers),
        ("SIDECAR_POOL_SIZE", lambda settings: settings.database.hot_connections),
        ("DB_POOL_SIZE", lambda settings: settings.database.cold_connections),
        ("POLL_DB_INTERVAL", lambda settings: settings.delivery.poll_initial_ms),
        ("POP_WAIT_INITIAL_INTERVAL_MS", lambda settings: settings.delivery.poll_initial_ms),
        ("QUEEN_POP_MAX_CONCURRENT", lambda settings: settings.policy(JobType.POP).in_flight_max),
        ("SIDECAR_MAX_ITEMS_PER_TX", lambda settings: settings.policy(JobType.PUSH).items_max),
        ("BATCH_INSERT_SIZE", lambda settings: settings.policy(JobType.PUSH).items_max),
    ],
)
def test_a_variable_wins_over_the_preset(preset: str, variable: str, read: Callable[[Settings], int]) -> None:
    assert read(from_environment({"QUEEN_PRESET": preset, variable: "77"})) == 77


def test_every_preset_is_a_choice_of_the_setting_and_its_variables_are_settings() -> None:
    (setting,) = [each for _, _, each in VARIABLES if each.field == "preset"]
    assert {name for name in PRESETS if setting.form.parse(name) == name} == set(PRESETS)
    for preset in PRESETS.values():
        assert [*ineffective(preset.variables())] == []


@given(total=integers(2, 100_000))
def test_connections_are_split_95_to_5(total: int) -> None:
    messages, rest = split(total)
    assert messages + rest == total
    assert messages >= 1
    assert 0 <= rest - total * 0.05 < 1
    assert (split(150), split(300)) == ((142, 8), (285, 15))


@given(total=integers(1, 3000), workers=integers(1, 40))
def test_a_fixed_number_of_connections_is_kept_whatever_the_workers(total: int, workers: int) -> None:
    try:
        sizes = pool_sizes(Database(connections=total), workers)
    except SettingError as refusal:
        least = int(re.findall(r"at least (\d+)", str(refusal))[0])
        assert total < least
        assert pool_sizes(Database(connections=least), workers).total == least
        return
    assert total - workers < sizes.total <= total
    assert min(sizes.messages, sizes.rest, sizes.replay) >= 1


def test_six_connections_are_enough_for_one_worker() -> None:
    settings = from_environment({"QUEEN_CONNECTIONS": "6", "NUM_WORKERS": "1"})
    assert settings.pool_sizes == PoolSizes(workers=1, messages=1, rest=1, replay=1)
    assert settings.pool_sizes.total == 6
    assert pool_sizes(Database(connections=7), 1) == PoolSizes(workers=1, messages=1, rest=1, replay=2)
    with pytest.raises(SettingError, match="QUEEN_CONNECTIONS=6 is too few for NUM_WORKERS=2: set at least 12"):
        from_environment({"QUEEN_CONNECTIONS": "6"})


@pytest.mark.parametrize("beside", ["SIDECAR_POOL_SIZE", "DB_POOL_SIZE"])
def test_a_fixed_number_and_the_size_of_a_pool_exclude_each_other(beside: str) -> None:
    with pytest.raises(SettingError, match=f"QUEEN_CONNECTIONS divides all connections: set it, or {beside}"):
        from_environment({"QUEEN_CONNECTIONS": "40", beside: "10"})


def test_more_connections_than_postgresql_allows_are_named_with_what_to_set() -> None:
    sizes = from_environment({"SIDECAR_POOL_SIZE": "600"}).pool_sizes
    assert (sizes.messages, sizes.rest, sizes.of_worker - sizes.messages - sizes.rest) == (
        300,
        2,
        4 + BACKGROUND_CONNECTIONS,
    )
    warning = sizes.excess(37)
    assert warning is not None
    assert warning.startswith("This server may open 618 connections to PostgreSQL, which allows 37 to its user")
    for name in ("QUEEN_CONNECTIONS=37", "SIDECAR_POOL_SIZE", "DB_POOL_SIZE", "NUM_WORKERS", "max_connections"):
        assert name in warning
    assert sizes.excess(618) is None


#: Those of 3b6c52e that went: settings, and knobs of job types by their end.
GONE = {
    "QUEEN_MAX_HEADER_BYTES", "QUEEN_MAX_HEADERS", "QUEEN_MAX_URL_BYTES", "QUEEN_MAX_WAITERS", "QUEEN_WS_MAX_CREDIT",
    "QUEEN_POLL_CHECKS_PER_S", "QUEEN_WS_MAX_FRAME_BYTES", "QUEEN_METRICS_MAX_GROUPS", "QUEEN_SMQ_METRICS_MAX_QUEUES",
}  # fmt: skip
KNOBS = (*policies.OF_TYPE, "MAX_ITEMS", "MAX_QUEUED")


def test_a_former_setting_is_no_error_and_is_named_with_what_took_its_place() -> None:
    knobs = {f"QUEEN_{kind.name}_{suffix}" for kind in JobType for suffix in KNOBS}
    kept = {f"QUEEN_{kind.name}_{suffix}" for kind in policies.TYPES for suffix in policies.OF_TYPE}
    environment = dict.fromkeys(GONE | knobs - kept, "anything")
    assert from_environment(environment) == Settings()
    lines = [*ineffective(environment)]
    assert len(lines) == len(environment) == 81
    assert all(" is no longer a setting: " in line for line in lines)


def test_settings_that_are_named_as_a_replacement_exist() -> None:
    names = {name for name, _, _ in VARIABLES} | policies.OF_ALL.keys() | policies.OF_PUSH.keys()
    texts = " ".join([*FORMER.values(), *ELSEWHERE.values()]).replace(";", " ").split()
    named = {
        word
        for word in texts
        if "_" in word and word.isupper() and "<" not in word and word != "OTEL_EXPORTER_OTLP_HEADERS"
    }
    assert named - {"QUEEN_POP_MAX_CONCURRENT"} <= names


def test_no_setting_is_among_the_removed_ones() -> None:
    names = {name for name, _, _ in VARIABLES}
    assert not names & (FORMER.keys() | ELSEWHERE.keys())


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_TRACES_EXPORTER", "console"),
        ("OTEL_METRICS_EXPORTER", "prometheus"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
    ],
)
def test_what_telemetry_cannot_do_stops_the_start_only_where_it_is_on(variable: str, text: str) -> None:
    meant_for_others = from_environment({variable: text})
    assert not meant_for_others.telemetry.on
    assert not from_environment({variable: text, "QUEEN_OTEL_ENABLED": "1", "OTEL_SDK_DISABLED": "true"}).telemetry.on
    with pytest.raises(SettingError, match=variable):
        from_environment({variable: text, "QUEEN_OTEL_ENABLED": "1"})


def test_the_telemetry_target_is_logged_without_its_password() -> None:
    settings = Settings(
        telemetry=Telemetry(enabled=True, endpoint="https://user:hunter2@collector:4318/otlp?key=hunter2")
    )
    assert describe(settings) == {"traces": "otlp", "metrics": "otlp", "endpoint": "https://collector:4318/otlp"}
