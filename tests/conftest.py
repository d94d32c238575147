"""Fixtures that every kind of test may use."""

import logging
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from queen.embedded.server import EmbeddedPostgres
from queen.engine.engine import TASK_FAILED
from spec.guarantees import GUARANTEES, REGISTRY, name_of
from tests.support.processes import RECENT, open_folder

# A shell lets programs in the background ignore Ctrl-C, and the commands that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: How many examples Hypothesis tries. `ci` takes minutes and tries the same ones each time: what it finds comes of the
#: change. `nightly` takes hours and tries others each time: --hypothesis-profile nightly; --hypothesis-seed repeats it.
for name, examples in {"ci": 100, "nightly": 20_000}.items():
    chosen = int(os.environ.get("QUEEN_EXAMPLES", examples))
    settings.register_profile(
        name,
        max_examples=chosen,
        derandomize=name == "ci",
        # A slow machine is no fault.
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
settings.load_profile("ci")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The connection string of a real PostgreSQL: QUEEN_TEST_DSN, else an embedded one for this session."""
    given = os.environ.get("QUEEN_TEST_DSN")
    if given:
        yield given
        return
    with open_folder() as folder, EmbeddedPostgres(folder / "data") as server:
        yield server.dsn


class _FailedTasks(logging.Handler):
    """Collects what engines of this process say about tasks that failed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == TASK_FAILED:
            self.records.append(record)


_FAILED_TASKS = _FailedTasks()
logging.getLogger("queen.engine").addHandler(_FAILED_TASKS)


@pytest.fixture(autouse=True)
def no_task_of_an_engine_fails() -> Iterator[None]:
    """No request can be told when something fails behind its answer: the test fails instead."""
    _FAILED_TASKS.records.clear()
    yield
    assert not _FAILED_TASKS.records, logging.Formatter().format(_FAILED_TASKS.records[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows with a test that failed what the servers said."""
    report = yield
    if report.failed:
        report.sections += [(f"server {server.port}", server.last_lines()) for server in RECENT]
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--guarantee G-ORD-2``, only the tests that check it, and which schedules of faults are run."""
    parser.addoption("--guarantee", help="Run only the tests that check this guarantee, such as G-ORD-2.")
    chaos = parser.getgroup("schedules of faults (tests/chaos/test_schedules.py)")
    chaos.addoption("--schedules", type=int, help="How many schedules are run: 1 by default with --seed.")
    chaos.addoption("--seed", help="The seed of the first schedule, or `random`; those that follow count up.")
    chaos.addoption("--databases", type=int, help="Over so many databases: 1 by default, and 3 in one schedule.")
    chaos.addoption("--faults", help="Only these faults of the schedules, by their numbers in the timeline: 0,3.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what does not check the guarantee that was asked for."""
    wanted = config.getoption("--guarantee")
    if not wanted:
        return
    if wanted not in GUARANTEES:
        raise pytest.UsageError(f"--guarantee: {wanted} is not in the catalogue")
    chosen = {(check.module, check.name) for check in REGISTRY if wanted in check.ids}
    kept = [item for item in items if _check_of(item) in chosen]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def _check_of(item: pytest.Item) -> tuple[str, str]:
    function = getattr(item, "function", None)
    return (function.__module__, name_of(function)) if function else ("", "")
