"""Settings: every variable is read, checked and documented."""

import dataclasses
from pathlib import Path

import pytest

from queen.cli.settings import render_reference
from queen.config import DEFAULT_POLICIES, Settings, from_environment, misspelt
from queen.core.errors import SettingError
from queen.core.operations import JobType
from queen.telemetry.needs import describe

VARIABLES = [
    (variable, field) for field in dataclasses.fields(Settings) for variable in field.metadata.get("variables", ())
]


def test_the_reference_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    assert page.read_text() == render_reference(), "run: queen settings > docs/settings.md"


@pytest.mark.parametrize(("variable", "field"), VARIABLES, ids=[variable for variable, _ in VARIABLES])
def test_a_variable_sets_its_field(variable: str, field: "dataclasses.Field[object]") -> None:
    words = {
        "log_level": "warning", "concurrency_mode": "vegas", "worker_class": "gthread", "udp_peers": "a:7,[::1]:8",
        "http_peers": "http://a:1,https://b/", "encryption_key": "ab" * 32, "encryption_old_keys": "ab" * 32,
        "engine_home": "thread", "pooler": "yes",
        "cors_origins": "https://a,http://b:1", "hosts": "A.example, b.",
        "vegas_alpha": "7", "vegas_floor": "9", "threads": "64", "max_body_bytes": "2048", "vegas_beta": "50",
        "jwt_algorithm": "EdDSA", "jwt_jwks_url": "https://a/keys", "jwt_skip_paths": "/a/,/",
    }  # fmt: skip
    values = {int: "1024", str: "new", bool: str(not field.default)}
    text = words.get(field.name) or values[type(field.default)]
    lists = {
        "udp_peers": (("a", 7), ("::1", 8)),
        "http_peers": ("http://a:1", "https://b"),
        "cors_origins": ("https://a", "http://b:1"),
        "hosts": ("a.example", "b"),
        "jwt_skip_paths": ("/a", "/"),
    }
    # What only makes sense together.
    beside = {"QUEEN_SYNC_SECRET": "s", "QUEEN_TLS_CERTFILE": "c", "QUEEN_TLS_KEYFILE": "k"}
    found = getattr(from_environment({**beside, variable: text}), field.name)
    assert found == lists[field.name] if field.name in lists else str(found) == text


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


def test_a_policy_variable_changes_its_kind_only() -> None:
    settings = from_environment({"QUEEN_POP_PREFERRED_BATCH_SIZE": "7"})
    assert settings.policy(JobType.POP).preferred == 7
    assert settings.policy(JobType.ACK) == DEFAULT_POLICIES[JobType.ACK]


def test_pg_variables_become_one_url() -> None:
    settings = from_environment(
        {"PG_HOST": "a,b", "PG_PORT": "1,2", "PG_USER": "u@x", "PG_PASSWORD": "p/:w", "PG_DB": "d"}
    )
    assert settings.database_url == "postgresql://u%40x:p%2F%3Aw@a:1,b:2/d"


def test_ports_that_do_not_match_the_hosts_are_refused() -> None:
    with pytest.raises(SettingError, match="PG_PORT"):
        _ = from_environment({"PG_HOST": "a,b,c", "PG_PORT": "1,2"}).database_url


def test_no_database_setting_means_the_embedded_one() -> None:
    assert from_environment({}).database_url == ""


def test_peers_without_a_secret_are_refused() -> None:
    for variable, value in (("QUEEN_UDP_PEERS", "a:1"), ("QUEEN_PEERS", "http://a")):
        with pytest.raises(SettingError, match="QUEEN_SYNC_SECRET"):
            from_environment({variable: value})


def test_micro_batching_of_the_older_designs_is_a_preset() -> None:
    settings = from_environment({"SIDECAR_MICRO_BATCH_WAIT_MS": "5", "QUEEN_ACK_MAX_HOLD_MS": "9"})
    assert settings.policy(JobType.PUSH).hold_ms == 5
    assert settings.policy(JobType.ACK).hold_ms == 9, "what is said of one kind wins"


def test_alpha_is_less_than_beta() -> None:
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


def test_a_misspelt_setting_is_found() -> None:
    environment = {
        "QUEEN_PUSH_PREFERED_BATCH_SIZE": "5", "JWT_ISUER": "x", "QUEEN_UDP_PEERS": "", "QUEEN_URL": "http://a",
        "QUEEN_TOKEN": "t", "QUEEN_TEST_DSN": "d", "QUEEN_EXAMPLES": "1", "QUEEN_PUSH_MAX_HOLD_MS": "1", "PATH": "/bin",
    }  # fmt: skip
    assert misspelt(environment) == {
        "QUEEN_PUSH_PREFERED_BATCH_SIZE": "QUEEN_PUSH_PREFERRED_BATCH_SIZE",
        "JWT_ISUER": "JWT_ISSUER",
    }


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
    assert not meant_for_others.telemetry_on
    assert not from_environment({variable: text, "QUEEN_OTEL_ENABLED": "1", "OTEL_SDK_DISABLED": "true"}).telemetry_on
    with pytest.raises(SettingError, match=variable):
        from_environment({variable: text, "QUEEN_OTEL_ENABLED": "1"})


def test_where_telemetry_goes_is_told_without_its_password() -> None:
    settings = Settings(telemetry=True, otel_endpoint="https://user:hunter2@collector:4318/otlp?key=hunter2")
    assert describe(settings) == {"traces": "otlp", "metrics": "otlp", "endpoint": "https://collector:4318/otlp"}
