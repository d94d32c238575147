"""The scripts of sql/: how files are named, and how long functions are."""

import re
from pathlib import Path

from queen.postgres.setup import scripts

_SQL = Path(__file__).parents[2] / "sql"
_FUNCTION = re.compile(
    r"^CREATE OR REPLACE FUNCTION ([\w.]+)\(.*?^(?:AS \$\$|BEGIN ATOMIC)\n(.*?)^END", re.MULTILINE | re.DOTALL
)
_CALLED = re.compile(
    r"^CREATE OR REPLACE (FUNCTION [\w.]+_v\d\(|FUNCTION queen\.(?:push|pop|ack|subscribe)\(|VIEW )", re.MULTILINE
)
_BODY_MAX = 80
#: Functions of the hot path and their like whose bodies may be longer: ADR 51 gives the reasons.
_LONGER = {
    "queen.ack_cursor", "queen.ack_messages_v1", "queen.claim_in_rounds", "queen.cycle_stream_v1",
    "queen.execute_in_steps", "queen.pop_unified_batch_v1", "queen.push_messages_v1", "queen.push_to_waiters_v1",
}  # fmt: skip


def test_internal_scripts_are_numbered_in_the_order_in_which_they_are_applied() -> None:
    for folder in ("internal", "internal/simple_mq"):
        names = [path.name for path in (_SQL / folder).iterdir() if path.is_file()]
        assert all(re.fullmatch(r"\d{3}_[a-z_]+\.sql", name) for name in names), names
        assert len({name[:3] for name in names}) == len(names), "a number stands for one script"


def test_procedures_have_the_name_of_what_the_server_calls() -> None:
    for script in scripts("procedures"):
        assert re.fullmatch(r"[a-z_]+\.sql", script.name), script.name
        assert _CALLED.search(script.read_text()), script.name


def test_functions_are_short() -> None:
    long = {
        name
        for folder in ("internal", "procedures")
        for script in scripts(folder)
        for name, body in _FUNCTION.findall(script.read_text())
        if body.count("\n") > _BODY_MAX
    }
    assert long == _LONGER
