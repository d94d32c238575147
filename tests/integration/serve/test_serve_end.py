"""``queen serve`` stops, reloads and outlives its parts: real processes that are ended and killed."""

import signal
from pathlib import Path

import psutil
import pytest

from queen.embedded.server import EmbeddedPostgres
from tests.support.processes import (
    PATIENCE_S,
    clean_environment,
    is_gone,
    json_lines,
    serving,
    wait_until,
)
from tests.support.serve import half_a_request, park, pop, pop_spooled, push, serving_over, statuses


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_ends_everything(data: Path, number: signal.Signals) -> None:
    with serving(data) as server:
        family = server.family()
        assert len(family) > 5
        assert server.stop(number) == 0
    assert [process for process in family if not is_gone(process)] == []


def test_restart_keeps_messages(data: Path) -> None:
    with serving(data) as server:
        push(server, {"n": 1})
    with serving(data) as server:
        assert pop(server) == [{"n": 1}]


# Signals


def test_sigterm_answers_parked_polls_and_ends_in_time(data: Path) -> None:
    with serving(data, "--graceful-timeout", "20") as server:
        connections = park(server)
        server.process.send_signal(signal.SIGTERM)
        assert statuses(connections) == [204, 204, 204]
        assert server.process.wait(PATIENCE_S) == 0
    assert "Traceback" not in server.output.read_text()


@pytest.mark.nightly
def test_request_that_never_ends_does_not_outlive_the_graceful_timeout(data: Path) -> None:
    with serving(data, "--graceful-timeout", "2") as server, half_a_request(server):
        assert server.stop() == 0


@pytest.mark.nightly
def test_second_interrupt_does_not_wait(data: Path) -> None:
    with serving(data, "--graceful-timeout", "600") as server, half_a_request(server):
        family = server.family()
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: "Ctrl-C again" in server.output.read_text(), "the stop has begun")
        assert server.stop(signal.SIGINT) == 0
        assert [process for process in family if not is_gone(process)] == []


def test_sighup_replaces_the_workers_without_a_gap(data: Path) -> None:
    with serving(data) as server:
        wait_until(lambda: len(server.workers()) == 2, "two workers")
        old, connections = server.workers(), park(server)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.is_healthy() and not server.workers() & old, "new workers")
        assert statuses(connections) == [204, 204, 204]
        wait_until(lambda: len(server.workers()) == 2, "two new workers")
        push(server, 1)
        assert pop(server) == [1]


# Deaths


def test_postmaster_killed_comes_back_and_loses_nothing(data: Path) -> None:
    with serving(data) as server:
        push(server, {"n": 1})
        old = server.postmaster()
        old.kill()
        wait_until(lambda: any(new.pid != old.pid for new in server.children("postgres")), "a new postmaster")
        wait_until(server.is_healthy, "healthy again")
        push(server, {"n": 2})
        assert pop_spooled(server, 2) == [{"n": 1}, {"n": 2}]
        assert server.process.poll() is None
        lines = json_lines(server.output.read_text())
        assert any("PostgreSQL ended: it was killed by SIGKILL" in line["message"] for line in lines)


def test_worker_killed_is_replaced(data: Path) -> None:
    with serving(data) as server:
        server.wait_until_all_are_healthy(2)
        old = server.workers()
        psutil.Process(min(old)).kill()
        wait_until(lambda: server.workers() - old, "a new worker")
        server.wait_until_all_are_healthy(2)


def test_worker_that_boots_during_an_outage_waits_for_the_database(data: Path) -> None:
    with EmbeddedPostgres(data) as postgres, serving_over(postgres) as server:
        wait_until(lambda: len(server.workers()) == 2, "two workers")
        postgres.stop()
        old = server.workers()
        for worker in old:
            psutil.Process(worker).kill()
        wait_until(lambda: len(server.workers()) == 2 and not server.workers() & old, "two new workers")
        wait_until(lambda: server.request("GET", "/health")[0] == 503, "the new workers say that it is down")
        postgres.start()
        wait_until(server.is_healthy, "healthy again")
        push(server, {"n": 1})
        assert pop_spooled(server, 1) == [{"n": 1}]


@pytest.mark.nightly
def test_worker_that_cannot_replace_another_is_tried_again(data: Path) -> None:
    spool, elsewhere = data.parent / "spool", data.parent / "elsewhere"
    spool.mkdir()
    with serving(data, env=clean_environment(FILE_BUFFER_DIR=str(spool))) as server:
        server.wait_until_all_are_healthy(2)
        spool.rename(elsewhere)
        psutil.Process(min(server.workers())).kill()
        wait_until(lambda: server.output.read_text().count("exited with code 1.") == 2, "two attempts")
        push(server, {"n": 1})
        elsewhere.rename(spool)
        server.wait_until_all_are_healthy(2)
        assert pop(server) == [{"n": 1}]


@pytest.mark.nightly
def test_reload_with_which_no_worker_can_start_ends_the_server(data: Path) -> None:
    spool = data.parent / "spool"
    spool.mkdir()
    with serving(data, env=clean_environment(FILE_BUFFER_DIR=str(spool))) as server:
        server.wait_until_all_are_healthy(2)
        spool.rename(data.parent / "elsewhere")
        server.process.send_signal(signal.SIGHUP)
        assert server.process.wait(PATIENCE_S) not in {0, None}
    assert f"The spool folder {spool} does not exist" in server.output.read_text()


def test_supervisor_killed_leaves_nothing_and_the_next_works(data: Path) -> None:
    with serving(data) as server:
        push(server, {"n": 1})
        family = server.family()
        server.process.kill()
        wait_until(lambda: all(is_gone(process) for process in family), "all have ended")
    with serving(data) as server:
        assert pop(server) == [{"n": 1}]


@pytest.mark.nightly
def test_next_server_may_start_while_the_killed_one_ends(data: Path) -> None:
    with serving(data) as server:
        push(server, {"n": 1})
        server.process.kill()
        with serving(data) as after:
            assert pop(after) == [{"n": 1}]


def test_gunicorn_killed_ends_the_server_with_an_error(data: Path) -> None:
    with serving(data) as server:
        family = server.family()
        server.gunicorn().kill()
        assert server.process.wait(PATIENCE_S) not in {0, None}
        wait_until(lambda: all(is_gone(process) for process in family), "all have ended")
    assert any("gunicorn ended unexpectedly" in line["message"] for line in json_lines(server.output.read_text()))
