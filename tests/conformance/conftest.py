"""The table of results, at the end of the output."""

import pytest

TABLE = pytest.StashKey[str]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints id, level and result of each check, if the suite was run."""
    if table := config.stash.get(TABLE, ""):
        terminalreporter.section("guarantees")
        terminalreporter.write(table)
