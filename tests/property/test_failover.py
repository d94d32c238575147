"""What a push, a pop and a transaction do beside the spool, without a database."""

import asyncio
import random
from typing import Any

import pytest

from queen.core.errors import DatabaseUnavailableError, SpoolDrainingError
from queen.core.operations import Buffered, Pop, Popped, Push, Transaction
from queen.engine.context import Context
from queen.engine.directory import Directory
from queen.engine.failover import Failover
from queen.engine.handlers import failover as handlers
from queen.engine.handlers.push import Sending
from queen.security.keyring import Keyring
from queen.spool.format import Record
from queen.spool.spool import MAINTENANCE, POP_MAINTENANCE, SPOOLING, Limits, Spool
from tests.support.simulated_folder import SimulatedFolder
from tests.support.spool_world import INSTALLATION, Postgres, push_of

KEYS = Keyring(bytes(32))


@pytest.fixture
def spool() -> Spool:
    return Spool(SimulatedFolder(random.Random(1)), INSTALLATION, Limits())


@pytest.fixture
def context(spool: Spool) -> Any:
    failover = Failover(spool)
    postgres = Postgres(random.Random(1))
    directory = Directory(postgres, 100)  # type: ignore[arg-type]
    yield Context(postgres, postgres, directory, lambda _notice: None, 0.01, failover, keys=KEYS)  # type: ignore[arg-type]
    failover.close()


def spooled(spool: Spool) -> list[Record]:
    return [record for name in spool.files() for record in spool.read(name).records if isinstance(record, Record)]


def pushing(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> list[Any]:
    """Replaces the push of a quiet day; the flush ids that it was called with."""
    calls: list[Any] = []

    async def push(_context: Any, sending: Sending) -> Any:
        calls.append(sending.flush_id)
        sending.mark_sent()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(handlers, "push", push)
    return calls


async def test_push_goes_to_postgres_while_nothing_is_spooled(
    context: Context, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = pushing(monkeypatch, ["stored"])
    assert await handlers.push_or_spool(context, [push_of("p", [1])]) == ["stored"]
    assert (len(calls), spooled(spool)) == (1, [])


async def test_push_whose_call_broke_off_is_spooled_with_the_id_of_its_flush(
    context: Context, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = pushing(monkeypatch, DatabaseUnavailableError("away"))
    assert await handlers.push_or_spool(context, [push_of("p", [1]), push_of("q", [2])]) == [Buffered(), Buffered()]
    [record] = spooled(spool)
    assert ([record.flush], len(record.requests)) == (calls, 2)
    assert record.sent_at is not None


@pytest.mark.parametrize("why", ["away", "spooling"])
async def test_push_is_spooled_without_asking_postgres(
    context: Context, spool: Spool, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    calls = pushing(monkeypatch, ["stored"])
    if why == "away":
        assert context.failover is not None
        context.failover.away = True
    else:
        spool.set_flag(SPOOLING, True)
    assert await handlers.push_or_spool(context, [push_of("p", [1])]) == [Buffered()]
    [record] = spooled(spool)
    assert (calls, record.sent_at) == ([], None)


async def test_push_that_finds_the_spool_ended_goes_to_postgres(
    context: Context, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushing(monkeypatch, ["stored"])
    looks = iter([True, False, False])
    monkeypatch.setattr(Spool, "spooling", property(lambda _self: next(looks)))
    assert await handlers.push_or_spool(context, [push_of("p", [1])]) == ["stored"]
    assert spooled(spool) == []


async def test_pop_in_maintenance_gets_nothing(context: Context, spool: Spool) -> None:
    spool.set_flag(POP_MAINTENANCE, True)
    assert await handlers.pop_unless_paused(context, [Pop("q", wait_ms=1000), Pop("q")]) == [Popped(), Popped()]


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    async def transaction(_context: Any, requests: Any) -> Any:
        calls.extend(requests)
        return requests

    monkeypatch.setattr(handlers, "transaction", transaction)
    monkeypatch.setattr(handlers, "_LOOK_S", 0)
    return calls


PUSHES = Transaction(push_of("p", [1]), [], None)
ACKS = Transaction(Push([], 0), [], None)


async def test_transaction_that_pushes_waits_for_the_end_of_the_spool(
    context: Context, spool: Spool, executed: list[Any]
) -> None:
    spool.set_flag(SPOOLING, True)
    waiting = asyncio.create_task(handlers.transaction_behind_spool(context, [PUSHES]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert executed == []
    spool.set_flag(SPOOLING, False)
    await waiting
    assert executed == [PUSHES]


async def test_transaction_does_not_wait_for_ever(
    context: Context, spool: Spool, executed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "_PATIENCE_S", 0)
    spool.set_flag(SPOOLING, True)
    refused, done = await handlers.transaction_behind_spool(context, [PUSHES, ACKS])
    assert isinstance(refused, SpoolDrainingError)
    assert (done, executed) == (ACKS, [ACKS])


@pytest.mark.parametrize("flags", [(SPOOLING, MAINTENANCE), ()])
async def test_transaction_in_maintenance_or_without_a_spool_goes_at_once(
    context: Context, spool: Spool, executed: list[Any], flags: tuple[str, ...]
) -> None:
    for flag in flags:
        spool.set_flag(flag, True)
    await handlers.transaction_behind_spool(context, [PUSHES])
    assert executed == [PUSHES]


async def test_transaction_of_acks_only_does_not_wait(context: Context, spool: Spool, executed: list[Any]) -> None:
    spool.set_flag(SPOOLING, True)
    await handlers.transaction_behind_spool(context, [ACKS])
    assert executed == [ACKS]
