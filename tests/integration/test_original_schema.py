"""What docs/compatibility.md says of the original's tables."""

import re
from typing import Any

import asyncpg
import msgspec

from tests.support.processes import ROOT

RECORDING = ROOT / "tests" / "data" / "transcript-cpp-queen.jsonl"


def rows() -> list[tuple[set[str], str]]:
    """The names of the original, and what is said of them."""
    page = (ROOT / "docs" / "compatibility.md").read_text()
    section = page.split("## Tables and procedures of the original")[1].split("\n## ")[0]
    cells = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return [(set(re.findall(r"`([a-z_.0-9]+)`", names)), here.strip()) for names, here in cells]


def recorded_tables() -> set[str]:
    """The tables of the original, as its statistics named them."""
    for line in RECORDING.read_text().splitlines():
        entry = msgspec.json.decode(line)
        if entry["request"]["path"].startswith("/api/v1/analytics/postgres-stats"):
            return {table["table"] for table in entry["response"]["body"]["tableSizes"]}
    raise AssertionError("the recording has no statistics of PostgreSQL")


async def test_each_table_of_the_original_has_a_row_that_is_true(database: "asyncpg.Connection[Any]") -> None:
    here = {
        row["relname"]
        for row in await database.fetch("SELECT relname FROM pg_class WHERE relnamespace = 'queen'::regnamespace")
    }
    described = rows()
    assert recorded_tables() <= set().union(*[names for names, _ in described])
    for names, text in described:
        if text.startswith("none"):
            assert not names & here
        elif text.startswith("tables of the same name"):
            assert names <= here
        elif "procedures" not in text:
            named = {name.removeprefix("queen.").partition(".")[0] for name in re.findall(r"`([a-z_.]+)`", text)}
            assert named <= here, named - here
