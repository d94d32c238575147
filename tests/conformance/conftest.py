"""The table of results, at the end of the output."""

from collections.abc import Callable

import pytest

_TABLE = pytest.StashKey[str]()


@pytest.fixture
def show_at_the_end(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Takes the table that the terminal is to show when all tests are done."""

    def show(table: str) -> None:
        pytestconfig.stash[_TABLE] = table

    return show


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints id, level and result of each check, if the suite was run."""
    if table := config.stash.get(_TABLE, ""):
        terminalreporter.section("guarantees")
        terminalreporter.write(table)
