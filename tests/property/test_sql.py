"""How the procedures are written, where PostgreSQL's planner depends on it."""

import re
from pathlib import Path

import pytest

SQL = Path(__file__).parents[2] / "sql"
#: Without simple-mq: its messages have a second index that begins with the queue, and with ``=`` a plan that was made
#: while the table was small uses that one.
FILES = sorted(
    file
    for folder in ("internal", "procedures")
    for file in (SQL / folder).rglob("*.sql")
    if file.parent.name != "simple_mq"
)
#: A column of a table, and then another one of the same, each compared with an array.
TWO_ARRAYS = re.compile(
    r"\b(\w+)\.\w+ = ANY\(ARRAY\[[^]]*\]\)(?:\s+AND\s+\1\.\w+ = [\w.]+)*\s+AND\s+\1\.\w+ = ANY\(ARRAY\["
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_only_the_first_column_of_an_index_is_compared_with_an_array(file: Path) -> None:
    """Before PostgreSQL 17 a second one may become a filter, and each version of a row is then read: ADR 38."""
    assert not TWO_ARRAYS.search(file.read_text())
