"""Sends of SQS beside the spool, without a database."""

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from queen.core.errors import DatabaseUnavailableError, NoEncryptionKeyError, OutcomeUnknownError, SpoolFullError
from queen.engine.context import Context, ignore_notification
from queen.engine.failover import Failover
from queen.engine.metadata_cache import MetadataCache
from queen.security.keyring import Keyring
from queen.simple_mq.interface import SimpleMq, Sqs
from queen.simple_mq.outcome_counters import OutcomeCounters
from queen.simple_mq.sqs_requests import NewSqsMessage, SendMessages, SqsQueue
from queen.simple_mq.sqs_spool import Calm, send_or_spool
from queen.simple_mq.sqs_used import UsedQueues
from queen.spool.format import Record
from queen.spool.held import Held
from queen.spool.spool import SPOOLING, Limits, Spool
from spec.guarantees import Level, checks
from tests.support.broker import at
from tests.support.simulated_folder import SimulatedFolder
from tests.support.spool_world import INSTALLATION, Postgres

A, B = UUID(int=1), UUID(int=2)


class Database:
    """Stores sends, or fails."""

    def __init__(self) -> None:
        self.problems: list[Exception] = []
        self.sent: list[Any] = []

    async def send(self, columns: Any) -> list[tuple[UUID, bool, None]]:
        if self.problems:
            raise self.problems.pop(0)
        self.sent.append(columns)
        return [(uuid4(), False, None) for _ in columns.request]


class Beside:
    """A worker's handler beside a spool."""

    def __init__(self, keys: Keyring | None = None, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen
        self.spool = Spool(SimulatedFolder(random.Random(1)), INSTALLATION, limits)
        self.failover, self.database, postgres = Failover(self.spool), Database(), Postgres(random.Random(1))
        simple_mq = SimpleMq(None, None, OutcomeCounters(None))  # type: ignore[arg-type]
        sqs = Sqs(self.database, None, UsedQueues())  # type: ignore[arg-type]
        cache = MetadataCache(postgres, 100)  # type: ignore[arg-type]
        self.context = Context(
            postgres, postgres, cache, ignore_notification, 0.05, self.failover, keys=keys, interfaces=[simple_mq, sqs]  # type: ignore[arg-type]
        )  # fmt: skip

    async def send(self, *queues: UUID, encrypted: bool = False) -> list[Any]:
        messages = [NewSqsMessage("secret text")]
        return await send_or_spool(
            self.context, [SendMessages(queue, messages, 11, encrypted, str(queue.int)) for queue in queues]
        )

    @property
    def spooled(self) -> list[UUID]:
        """The queues of the requests in the spool."""
        records = [each for name in self.spool.files() for each in self.spool.read(name).records]
        return [UUID(r[0].partition) for record in records if isinstance(record, Record) for r in record.requests]


@pytest.fixture
def beside() -> Iterator[Beside]:
    made = Beside()
    yield made
    made.failover.close()


DOWN, LOST = DatabaseUnavailableError("down"), OutcomeUnknownError("lost")


@checks("G-SQS-14", level=Level.MODEL)
async def test_what_was_certainly_not_stored_is_spooled_and_later_sends_go_behind(beside: Beside) -> None:
    beside.failover.unavailable = True
    beside.database.problems = [DOWN]
    [answer] = await beside.send(A)
    assert (answer.known, answer.messages[0].sequence) == (True, None)
    beside.failover.unavailable = False
    await beside.send(B)
    assert (beside.spooled, beside.database.sent) == ([A, B], [])


@checks("G-SQS-14", level=Level.MODEL)
async def test_what_may_be_stored_is_not_spooled(beside: Beside) -> None:
    beside.database.problems = [LOST, *[DOWN] * 100]
    with pytest.raises(OutcomeUnknownError):
        await beside.send(A)
    assert beside.spooled == []
    beside.database.problems = [LOST, DOWN]
    [answer] = await beside.send(A)
    assert (answer.known, len(beside.database.sent), beside.spooled) == (True, 1, [])


@checks("G-SQS-14", level=Level.MODEL)
async def test_sends_to_a_queue_that_is_held_back_wait_behind_it_and_others_do_not(beside: Beside) -> None:
    beside.spool.note_held({("sqs:1", str(A)): Held("sqs:1", str(A), 1.0, "locked: x")})
    answers = await beside.send(A, B, A)
    assert [answer.known for answer in answers] == [True] * 3
    assert (beside.spooled, [columns.queue for columns in beside.database.sent]) == ([A, A], [[B]])


async def test_without_a_key_encrypted_messages_are_refused_and_others_are_spooled(beside: Beside) -> None:
    beside.spool.set_flag(SPOOLING, True)
    [refused] = await beside.send(A, encrypted=True)
    [stored] = await beside.send(A)
    assert (type(refused), stored.known, beside.spooled) == (NoEncryptionKeyError, True, [A])


async def test_the_spool_has_no_text_of_encrypted_messages() -> None:
    beside = Beside(Keyring(bytes(32)))
    beside.spool.set_flag(SPOOLING, True)
    await beside.send(A, encrypted=True)
    [name] = beside.spool.files()
    assert b"secret text" not in beside.spool._folder.read(name)
    await beside.send(A)
    assert b"secret text" in beside.spool._folder.read(name)
    beside.failover.close()


async def test_a_full_spool_refuses(beside: Beside) -> None:
    small = Beside(limits=Limits(bytes_max=10))
    small.spool.set_flag(SPOOLING, True)
    with pytest.raises(SpoolFullError):
        await small.send(A)
    small.failover.close()


@checks("G-SQS-14", level=Level.MODEL)
def test_deduplication_ids_are_kept_while_a_spool_may_hold_sends_of_their_time(beside: Beside) -> None:
    calm = Calm(beside.failover)
    found = [calm.lasts(now) for now in range(1000, 1700, 50)]
    assert found == [False] * 12 + [True] * 2
    assert not calm.lasts(1800), "it was not called for a while: an outage"
    assert [calm.lasts(now) for now in range(1850, 2420, 50)][-2:] == [False, True]
    beside.spool.set_flag(SPOOLING, True)
    assert not calm.lasts(2450)
    beside.spool.set_flag(SPOOLING, False)
    assert [calm.lasts(now) for now in range(2500, 3051, 50)][-2:] == [False, True]
    beside.spool.note_held({("sqs:1", str(A)): Held("sqs:1", str(A), 1.0, "locked: x")})
    assert not calm.lasts(3060)


def test_a_full_list_of_queues_is_told_once(
    beside: Beside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("queen.simple_mq.sqs_used._FILE_BYTES_MAX", 1)
    used = UsedQueues()
    for name in "abcd":
        used.note(beside.spool, name, SqsQueue(A, name, False, {}, {}, at(0), at(0)))
    assert len(beside.spool.sqs_queues().strip().split(b"\n")) == 1
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "The list of SQS queues beside the spool is full (0 MiB)"
    ]
    assert used.find(beside.spool, "d") is not None, "a worker knows its own"


def test_the_list_of_queues_loses_those_that_are_gone(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queen.simple_mq.sqs_used._SHORTEN_BYTES", 2000)
    spool, one, other = beside.spool, UsedQueues(), UsedQueues()
    lives = SqsQueue(A, "lives", False, {}, {}, at(0), at(0))
    one.note(spool, "lives", lives)
    assert other.find(spool, "lives") == lives
    sizes = []
    for number in range(100):
        queue = SqsQueue(A, f"{number}", False, {}, {}, at(0), at(0))
        used = (one, other)[number % 2]
        used.note(spool, queue.name, queue)
        used.note(spool, queue.name, None)
        sizes.append(spool.sqs_queues_size)
        assert UsedQueues().find(spool, "lives") == lives
    assert max(sizes) < 3000
    assert sum(later < earlier for earlier, later in pairwise(sizes)) < 20, "it is not written anew for each"
    for used in one, other, UsedQueues():
        assert (used.find(spool, "lives"), used.find(spool, "7")) == (lives, None)
    for number in range(20):
        one.note(spool, f"many {number}", SqsQueue(A, f"many {number}", False, {}, {}, at(0), at(0)))
    assert spool.sqs_queues_size > 3000, "what lives stays, however much"
    assert all(other.find(spool, f"many {number}") for number in range(20))


def test_each_worker_knows_the_queues_that_others_have_used(beside: Beside) -> None:
    spool, one, other = beside.spool, UsedQueues(), UsedQueues()
    queue = SqsQueue(A, "a", True, {"DelaySeconds": "1"}, {}, at(0), at(0))
    assert other.find(spool, "a") is None
    one.note(spool, "a", queue)
    one.note(spool, "a", queue)
    assert len(spool.sqs_queues().strip().split(b"\n")) == 1
    spool._folder.append("sqs-queues", b'\n{"torn')
    assert other.find(spool, "a") == queue
    one.note(spool, "a", None)
    assert other.find(spool, "a") is None
    one.note(spool, "a", queue)
    assert other.find(spool, "a") == queue
    spool.recover()
    assert UsedQueues().find(spool, "a") is None, "another start, other queues"
    assert one.find(spool, "a") == queue
