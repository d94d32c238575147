"""What a worker class or the system cannot carry is said at the start, in a line that says what to do."""

import resource

import pytest

from queen.config import from_environment
from queen.core.errors import SettingError
from queen.server import worker_classes
from queen.system import open_files
from queen.system.errors import StartError
from tests.support.processes import run


def test_a_worker_of_class_gthread_names_the_long_polls_that_it_can_hold() -> None:
    settings = from_environment({"QUEEN_WORKER_CLASS": "gthread", "QUEEN_THREADS": "8"})
    assert "6 of them long polls" in worker_classes.usable(settings).notes[0]


def test_meinheld_that_is_not_installed_is_refused_with_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_classes, "find_spec", lambda _name: None)
    with pytest.raises(SettingError, match=r"docs/meinheld\.md"):
        worker_classes.usable(from_environment({"QUEEN_WORKER_CLASS": "meinheld"}))


def test_more_connections_than_open_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1000, 4000))
    with pytest.raises(StartError, match=r"needs 9081 open files .* allows 4000.*lower QUEEN_MAX_CONNECTIONS"):
        open_files.ensure(from_environment({"QUEEN_MAX_CONNECTIONS": "9000"}))


def test_a_limit_of_open_files_that_leaves_no_connections_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (90, 90))
    with pytest.raises(StartError, match=r"with 16 connections for clients needs 97 open files .* allows 90"):
        open_files.ensure(from_environment({}))


def test_connections_leave_the_files_that_the_server_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (400, 400))
    assert open_files.connections(from_environment({})) == 400 - 81
    assert open_files.connections(from_environment({"QUEEN_MAX_CONNECTIONS": "100"})) == 100


def test_the_limit_of_open_files_is_raised_as_far_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1000, 4000))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: asked.append(limits))
    open_files.ensure(from_environment({}))
    assert asked == [(4000, 4000)]


def test_an_unknown_class_is_refused_with_those_that_there_are() -> None:
    result = run("serve", "--worker-class", "sync")
    assert result.returncode == 2
    assert "'gthread'" in result.stderr
