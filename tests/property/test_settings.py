"""Settings: every variable is read, checked and documented."""

import dataclasses
from pathlib import Path

import pytest

from queen.cli.settings import render_reference
from queen.config import DEFAULT_POLICIES, Settings, from_environment
from queen.core.errors import SettingError
from queen.core.operations import JobType

VARIABLES = [
    (variable, field) for field in dataclasses.fields(Settings) for variable in field.metadata.get("variables", ())
]


def test_the_reference_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    assert page.read_text() == render_reference(), "run: queen settings > docs/settings.md"


@pytest.mark.parametrize(("variable", "field"), VARIABLES, ids=[variable for variable, _ in VARIABLES])
def test_a_variable_sets_its_field(variable: str, field: "dataclasses.Field[object]") -> None:
    values = {int: "1024", str: "warning" if field.name == "log_level" else "new"}
    text = values[type(field.default)]
    assert str(getattr(from_environment({variable: text}), field.name)) == text


@pytest.mark.parametrize(
    ("variable", "text"),
    [("PORT", "x"), ("PORT", "70000"), ("NUM_WORKERS", "0"), ("LOG_LEVEL", "loud"), ("QUEEN_PUSH_MAX_HOLD_MS", "-1")],
)
def test_a_bad_value_is_refused_with_variable_and_value(variable: str, text: str) -> None:
    with pytest.raises(SettingError, match=f"{variable}='{text}' is not") as refusal:
        from_environment({variable: text})
    assert "\n" not in str(refusal.value)


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
