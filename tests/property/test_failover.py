"""What a push, a pop and a transaction do beside the spool, without a database."""

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from queen.core.errors import (
    DatabaseUnavailableError,
    NoEncryptionKeyError,
    OutcomeUnknownError,
    QueenError,
    QueueFullError,
    SpoolDrainingError,
    SpoolFullError,
    TooSlowError,
)
from queen.engine.context import Context, ignore_notification
from queen.engine.failover import Failover
from queen.engine.handlers import failover as handlers
from queen.engine.handlers.push import PushAttempt
from queen.engine.metadata_cache import MetadataCache
from queen.engine.ports import LimitedQueue, PartitionName, PushOptions
from queen.engine.push_options import keep_for_spool, options_for_spool
from queen.log.append import AppendBatch, Appended
from queen.log.requests import Buffered, Pop, Popped, Push, Transaction
from queen.security.keyring import Keyring
from queen.spool.format import Record
from queen.spool.spool import MAINTENANCE, POP_MAINTENANCE, SPOOLING, Limits, Spool
from spec.guarantees import Level, checks
from tests.support.simulated_folder import SimulatedFolder
from tests.support.spool_world import INSTALLATION, Postgres, push_of

KEYS = Keyring(bytes(32))
Beside = Callable[..., Context]
DOWN = DatabaseUnavailableError("down")


@pytest.fixture
def spool() -> Spool:
    return Spool(SimulatedFolder(random.Random(1)), INSTALLATION, Limits())


@pytest.fixture
def context(spool: Spool) -> Any:
    failover = Failover(spool)
    postgres = Postgres(random.Random(1))
    cache = MetadataCache(postgres, 100)  # type: ignore[arg-type]
    yield Context(postgres, postgres, cache, ignore_notification, 0.01, failover, keys=KEYS)  # type: ignore[arg-type]
    failover.close()


def spooled(spool: Spool) -> list[Record]:
    return [record for name in spool.files() for record in spool.read(name).records if isinstance(record, Record)]


def pushing(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> list[Any]:
    """Replaces the push of a quiet day; the flush ids that it was called with."""
    calls: list[Any] = []

    async def push(_context: Any, sending: PushAttempt) -> Any:
        calls.append(sending.flush_id)
        sending.sent_at = time.time()
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
    calls = pushing(monkeypatch, DatabaseUnavailableError("down"))
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
        context.failover.unavailable = True
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


@pytest.mark.parametrize(
    ("problem", "told"), [(OutcomeUnknownError("lost"), OutcomeUnknownError), (DOWN, SpoolFullError)]
)
async def test_a_push_that_may_be_stored_is_not_told_as_not_stored_where_the_spool_has_no_room(
    context: Context, monkeypatch: pytest.MonkeyPatch, problem: Exception, told: type[Exception]
) -> None:
    async def append(*_arguments: Any, **_options: Any) -> bool:
        raise SpoolFullError("no room")

    pushing(monkeypatch, problem)
    monkeypatch.setattr(Failover, "append", append)
    with pytest.raises(QueenError) as raised:
        await handlers.push_or_spool(context, [push_of("p", [1])])
    assert type(raised.value) is told
    assert "no room" in str(raised.value)


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
    monkeypatch.setattr(handlers, "_POLL_S", 0)
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
    monkeypatch.setattr(handlers, "_DRAIN_TIMEOUT_S", 0)
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


# ---------------------------------------------------------------- options of the queues, with the push itself


class Answering(Postgres):
    """Answers pushes with what it is told, one after the other; an error is raised."""

    def __init__(self, *answers: Any, encrypted: frozenset[str] = frozenset(), max_size: int = 0) -> None:
        super().__init__(random.Random(1), encrypted=encrypted)
        self.answers, self.flushes_sent = list(answers), []
        self.limits = {"q": LimitedQueue(1, max_size)} if max_size else {}

    async def read_push_options(self) -> PushOptions:
        return msgspec.structs.replace(await super().read_push_options(), limited=self.limits)

    async def describe_partitions(self, part_ids: Any) -> list[PartitionName]:
        return [PartitionName(number, 1, *name) for name, number in self.parts.items() if number in part_ids]

    async def push(self, columns: AppendBatch, *, again: bool) -> list[Appended]:
        self.flushes_sent.append(columns.flush)
        answer = self.answers.pop(0) if self.answers else DatabaseUnavailableError("down")
        if isinstance(answer, Exception):
            raise answer
        return [Appended(part, None, None, None, None, room) for part, room in zip(columns.part, answer, strict=False)]


@pytest.fixture
def beside(spool: Spool) -> Iterator[Beside]:
    """Makes the context of a worker on a PostgreSQL, beside the spool."""
    made: list[Failover] = []

    def make(postgres: Postgres, keys: Keyring | None = KEYS, retry_timeout_s: float = 0) -> Context:
        made.append(Failover(spool))
        cache = MetadataCache(postgres, 100)  # type: ignore[arg-type]
        return Context(postgres, postgres, cache, ignore_notification, retry_timeout_s, made[-1], keys=keys)  # type: ignore[arg-type]

    yield make
    for failover in made:
        failover.close()


def payloads(record: Record) -> list[Any]:
    return [json.loads(b"[" + batch.body + b"]")[0]["payload"] for batches in record.requests for batch in batches]


@checks("G-SPOOL-2", level=Level.MODEL)
async def test_only_what_was_not_refused_is_spooled_and_under_the_id_it_was_sent_under_last(
    spool: Spool, beside: Beside
) -> None:
    postgres = Answering([1], max_size=1)
    first, second = await handlers.push_or_spool(beside(postgres), [push_of("p", [1]), push_of("p", [2])])
    assert (first, type(second)) == (Buffered(), QueueFullError)
    [record] = spooled(spool)
    assert payloads(record) == [1]
    assert len(set(postgres.flushes_sent)) == 2
    assert record.flush == postgres.flushes_sent[-1]
    assert record.sent_at is not None


async def test_a_lock_that_is_met_while_partitions_are_made_is_no_outage_whatever_was_lost_before(
    spool: Spool, beside: Beside
) -> None:
    class Held(Answering):
        calls = 0

        async def resolve_partitions(self, names: Any, *, create: bool) -> list[tuple[int, int]]:
            self.calls += 1
            raise OutcomeUnknownError("lost") if self.calls == 1 else TooSlowError("lock timeout", lock=True)

    postgres = Held()
    with pytest.raises(TooSlowError):
        await handlers.push_or_spool(beside(postgres, retry_timeout_s=5.0), [push_of("p", [1])])
    assert (postgres.calls, spooled(spool)) == (2, [])


@checks("G-SPOOL-2", level=Level.MODEL)
async def test_a_push_that_was_certainly_not_stored_is_spooled_without_its_id(spool: Spool, beside: Beside) -> None:
    class Gone(Answering):
        async def read_push_options(self) -> PushOptions:
            self.unavailable = bool(self.flushes_sent)
            return await super().read_push_options()

    postgres = Gone([])  # no row: the options have changed, and then PostgreSQL is down
    context = beside(postgres)
    await keep_for_spool(context)
    assert await handlers.push_or_spool(context, [push_of("p", [1])]) == [Buffered()]
    [record] = spooled(spool)
    assert record.sent_at is None
    assert record.flush not in postgres.flushes_sent


@pytest.mark.parametrize("why", ["away", "spooling", "broken"])
async def test_pushes_to_encrypted_queues_are_spooled_encrypted(spool: Spool, beside: Beside, why: str) -> None:
    context = beside(Answering(encrypted=frozenset("q")))
    await context.cache.push_options()
    context.failover.unavailable = why == "away"  # type: ignore[union-attr]
    spool.set_flag(SPOOLING, why == "spooling")
    assert await handlers.push_or_spool(context, [push_of("p", [1])]) == [Buffered()]
    [record] = spooled(spool)
    [payload] = payloads(record)
    assert set(payload) == {"encrypted", "iv", "authTag"}


async def test_without_a_key_only_pushes_to_encrypted_queues_are_refused(spool: Spool, beside: Beside) -> None:
    context = beside(Answering(encrypted=frozenset("q")), keys=None)
    spool.set_flag(SPOOLING, True)
    other = push_of("p", [2])
    other = Push([msgspec.structs.replace(batch, queue="open") for batch in other.batches], other.items)
    refused, buffered = await handlers.push_or_spool(context, [push_of("p", [1]), other])
    assert (type(refused), buffered) == (NoEncryptionKeyError, Buffered())
    [record] = spooled(spool)
    assert payloads(record) == [2]


async def test_nothing_is_spooled_while_it_is_unknown_what_is_encrypted(spool: Spool, beside: Beside) -> None:
    postgres = Answering(encrypted=frozenset("q"))
    postgres.unavailable = True
    context = beside(postgres)
    context.failover.unavailable = True  # type: ignore[union-attr]
    with pytest.raises(DatabaseUnavailableError):
        await handlers.push_or_spool(context, [push_of("p", [1])])
    assert spooled(spool) == []


async def test_a_worker_that_never_asked_postgres_reads_what_another_one_noted(spool: Spool, beside: Beside) -> None:
    await keep_for_spool(beside(Answering(encrypted=frozenset("q"))))
    postgres = Answering()
    postgres.unavailable = True
    context = beside(postgres)
    assert (await options_for_spool(context)).encrypted == {"q"}
    context.failover.unavailable = True  # type: ignore[union-attr]
    assert await handlers.push_or_spool(context, [push_of("p", [1])]) == [Buffered()]
    [record] = spooled(spool)
    assert payloads(record) != [1]
