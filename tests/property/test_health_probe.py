"""When PostgreSQL counts as down: soon, but not because this process itself was not running for a while."""

import asyncio

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.postgres import health_probe
from queen.postgres.dsn import Target
from queen.postgres.health_probe import ANSWER_S, INTERVAL_S, Silence
from spec.guarantees import Level, checks
from tests.support import virtual_time

#: The machine takes its time, too.
SLACK_S = 0.1
CONNECT_LIMIT_S = 5.0


@checks("G-SPOOL-8", level=Level.MODEL)
@settings(deadline=None)
@given(
    began=st.floats(0, INTERVAL_S),
    asks=st.lists(st.floats(0, ANSWER_S), min_size=20, max_size=20),
    pauses=st.lists(st.floats(INTERVAL_S, INTERVAL_S + SLACK_S), min_size=20, max_size=20),
)
def test_a_database_that_refuses_or_hangs_is_unavailable_within_two_seconds(
    began: float, asks: list[float], pauses: list[float]
) -> None:
    silence = Silence(0.0)
    fault_at = now = began
    for ask, pause in zip(asks, pauses, strict=True):
        now += ask
        if silence.after(False, now):
            break
        now += pause
    else:
        now = float("inf")
    assert now - fault_at <= 2


def test_one_long_timeout_is_not_an_outage() -> None:
    silence = Silence(0.0)
    assert not silence.after(False, 10.0)
    assert silence.after(False, 10.1)


def test_several_short_timeouts_are_not_an_outage() -> None:
    silence = Silence(0.0)
    assert not any(silence.after(False, number / 10) for number in range(11))


def test_an_answer_ends_it() -> None:
    silence = Silence(0.0)
    silence.after(False, 1.0)
    assert silence.after(False, 2.0)
    assert not silence.after(True, 3.0)
    assert not silence.after(False, 4.0)


def test_a_database_that_answers_other_connections_is_available() -> None:
    silence = Silence(0.0)
    assert not silence.after(False, 1.0, answered_at=0.9)
    assert not silence.after(False, 1.9, answered_at=0.9)
    assert silence.after(False, 2.1, answered_at=0.9)


class Broken:
    """A connection over which nothing can be asked, in a way that no list of exceptions would have."""

    def __init__(self, problem: Exception) -> None:
        self._problem = problem

    def is_closed(self) -> bool:
        return False

    async def fetchval(self, _sql: str) -> int:
        raise self._problem

    def terminate(self) -> None:
        """Not even that goes well."""
        raise self._problem


class Whole(Broken):
    """One that answers."""

    async def fetchval(self, _sql: str) -> int:
        return 1


@checks("G-SPOOL-6", level=Level.MODEL)
@pytest.mark.parametrize("problem", [asyncpg.InternalClientError("simulated"), RuntimeError("the handler is closed")])
async def test_health_probe_continues_after_any_driver_error(
    monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    connections = [Broken(problem), Whole(problem)]

    async def connect(_target: Target) -> Broken:
        return connections.pop(0)

    monkeypatch.setattr(health_probe, "connect", connect)
    monkeypatch.setattr(health_probe, "_SILENCES", 1)
    monkeypatch.setattr(health_probe, "_SILENCE_S", 0.0)
    lost, found = asyncio.Event(), asyncio.Event()
    own = health_probe.HealthProbe(Target("", "simulated", "", 1), lambda _reason: lost.set(), found.set, lambda: 0.0)
    own.start()
    async with asyncio.timeout(30):
        await lost.wait()
        await found.wait()
    await own.stop()


@checks("G-SPOOL-6", level=Level.MODEL)
def test_health_probe_continues_after_any_consequence_of_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback closes connections, which may fail too."""
    connections: list[Broken] = [Broken(RuntimeError("broken")) for _ in range(9)]

    async def connect(_target: Target) -> Broken:
        return connections.pop(0) if connections else Whole(RuntimeError())

    monkeypatch.setattr(health_probe, "connect", connect)

    def lost(_reason: str) -> None:
        raise RuntimeError("a pool could not be closed")

    async def scenario() -> None:
        found = asyncio.Event()
        own = health_probe.HealthProbe(Target("", "simulated", "", CONNECT_LIMIT_S), lost, found.set, lambda: 0.0)
        own.start()
        async with asyncio.timeout(60):
            await found.wait()
        assert not own.unavailable
        await own.stop()

    virtual_time.run(scenario())


@checks("G-SPOOL-6", level=Level.MODEL)
@pytest.mark.parametrize("connecting_s", [0.1, 0.7, 1.5, 4.9])
def test_database_is_found_however_long_connecting_takes_below_its_limit(
    monkeypatch: pytest.MonkeyPatch, connecting_s: float
) -> None:
    """On a busy machine, or over a far network, it takes longer than an answer may take otherwise."""

    async def connect(_target: Target) -> Whole:
        await asyncio.sleep(connecting_s)
        return Whole(RuntimeError())

    monkeypatch.setattr(health_probe, "connect", connect)

    async def scenario() -> None:
        told: list[str] = []
        found = asyncio.Event()
        target = Target("", "simulated", "", CONNECT_LIMIT_S)
        own = health_probe.HealthProbe(target, told.append, found.set, lambda: float("-inf"))
        own.start()
        try:
            if connecting_s > ANSWER_S:
                async with asyncio.timeout(60):
                    await found.wait()
                assert len(told) == 1
            assert await own.answers()
            assert not own.unavailable
        finally:
            await own.stop()

    virtual_time.run(scenario())


def test_health_does_not_wait_for_an_unavailable_database(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(_target: Target) -> Whole:
        await asyncio.sleep(1000)
        raise AssertionError("the probe waited for its end")

    monkeypatch.setattr(health_probe, "connect", connect)

    async def scenario() -> None:
        lost = asyncio.Event()
        own = health_probe.HealthProbe(
            Target("", "simulated", "", CONNECT_LIMIT_S), lambda _why: lost.set(), lambda: None, lambda: 0
        )
        own.start()
        await lost.wait()
        began = asyncio.get_running_loop().time()
        assert not await own.answers()
        assert asyncio.get_running_loop().time() == began
        await own.stop()

    virtual_time.run(scenario())


def test_connect_timeout_grows_only_during_an_outage_up_to_the_limit() -> None:
    silence = Silence(0.0, CONNECT_LIMIT_S)
    patience = []
    for number in range(8):
        patience.append(silence.retry_timeout_s)
        silence.after(False, number * 1.0)
    assert patience == [ANSWER_S, ANSWER_S, 1.2, 2.4, 4.8, CONNECT_LIMIT_S, CONNECT_LIMIT_S, CONNECT_LIMIT_S]
    silence.after(True, 100.0)
    assert silence.retry_timeout_s == ANSWER_S
