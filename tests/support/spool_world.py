"""Producers, two workers, a spool on a simulated disk and a simulated PostgreSQL, one step at a time, from a seed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

from msgspec import structs

import queen.engine.failover
import queen.engine.lane_store
import queen.engine.replay
from queen.core.errors import DatabaseUnavailableError, DataRejectedError, OutcomeUnknownError, SpoolError, TooSlowError
from queen.core.limits import REPLAY_CALL_S
from queen.engine.context import Context, ignore_notification
from queen.engine.failover import Failover
from queen.engine.metadata_cache import MetadataCache
from queen.engine.ports import PushOptions, Replayed
from queen.engine.replay import Replay
from queen.log.append import AppendBatch
from queen.log.requests import PartitionBatch, Push
from queen.log.segment import encode_entry, encode_plain, plain_length
from queen.spool.format import Record, SpooledBatch, spool_request
from queen.spool.spool import Limits, Spool, entry_of
from tests.support.simulated_folder import Crash, SimulatedFolder

INSTALLATION = UUID(int=7)
POISON = "poison"
#: Requests that are no pushes.
SQS = "sqs"


def push_of(partition: str, payloads: list[Any], ids: list[str] | None = None) -> Push:
    """One request for one partition of queue q."""
    texts = [json.dumps(payload).encode() for payload in payloads]
    places = range(len(texts))
    if ids is None:
        return Push(
            [PartitionBatch("q", partition, places, encode_plain(texts), [plain_length(t) for t in texts], None)],
            len(texts),
        )
    entries = [encode_entry(text, chosen, None, None) for text, chosen in zip(texts, ids, strict=True)]
    return Push(
        [PartitionBatch("q", partition, places, b",".join(entries), [len(e) + 1 for e in entries], ids)], len(texts)
    )


def joined(pushes: list[Push]) -> Push:
    """One request with the items of all of these."""
    return Push([batch for push in pushes for batch in push.batches], sum(push.items for push in pushes))


@dataclass
class Postgres:
    """The procedures that the replay needs, over a log in memory.

    It survives the crashes of others.
    """

    rng: random.Random
    log: dict[str, list[Any]] = field(default_factory=dict)
    flushes: set[UUID] = field(default_factory=set)
    positions: dict[UUID, int] = field(default_factory=dict)
    parts: dict[tuple[str, str], int] = field(default_factory=dict)
    unavailable: bool = False
    tick: Any = lambda: None
    meanwhile: Any = lambda: None
    refuses: bool = True
    version: int = 1
    encrypted: frozenset[str] = frozenset()
    fenced: set[UUID] = field(default_factory=set)
    needs_s: dict[str, float] = field(default_factory=dict)  # how long a call for these partitions takes
    locked: set[str] = field(default_factory=set)
    late: list[Any] = field(default_factory=list)  # calls that are still on their way

    async def resolve_partitions(self, names: Any, *, create: bool) -> list[tuple[int, int]]:
        return [(1, self.parts.setdefault(name, len(self.parts) + 1)) for name in names]

    async def read_push_options(self) -> PushOptions:
        self._answer()
        return PushOptions(self.version, self.encrypted, {})

    async def find_server_made(self, parts: Any, _offsets: Any) -> list[bool]:
        return [False] * len(parts)

    async def switches(self) -> dict[str, bool]:
        self._answer()
        return {}

    def _answer(self) -> None:
        if self.unavailable:
            raise DatabaseUnavailableError("simulated")

    def store(self, flush: UUID, requests: list[Push]) -> None:
        """A direct push that is committed."""
        for push in requests:
            for batch in push.batches:
                self._append(batch.partition, b"[" + batch.body + b"]")
        self.flushes.add(flush)

    def _append(self, partition: str, data: bytes) -> None:
        self.log.setdefault(partition, []).extend(entry["payload"] for entry in json.loads(data))

    async def replay(
        self, lane: UUID, first: int, upto: int, sent_at: Any, columns: AppendBatch, limit_s: float | None = None
    ) -> Replayed:
        if self.refuses and any(POISON.encode() in data for data in columns.data):
            raise DataRejectedError("simulated", "22P05")
        return await self._called(lane, first, upto, sent_at, columns, limit_s)

    async def _called(self, lane: UUID, first: int, upto: int, sent_at: Any, columns: Any, limit_s: Any) -> Replayed:
        self._answer()
        # The other lanes go on meanwhile.
        for _ in range(self.rng.randint(0, 2)):
            await asyncio.sleep(0)
        self.meanwhile()
        self.tick()
        for call in self.late:
            with contextlib.suppress(TooSlowError):
                self._commit(*call)
        self.late.clear()
        if self.rng.random() < 0.05:
            self.late.append((lane, first, upto, sent_at, columns))
            raise OutcomeUnknownError("simulated: it arrives when its caller has given up")
        replayed = self._commit(lane, first, upto, sent_at, columns, limit_s)
        self.tick()
        await asyncio.sleep(0)
        if self.rng.random() < 0.1:
            raise OutcomeUnknownError("simulated")
        return replayed

    def _commit(
        self, lane: UUID, first: int, upto: int, sent_at: Any, columns: Any, limit_s: float | None = None
    ) -> Replayed:
        position = self.positions.setdefault(lane, 0)
        if position != first:
            return Replayed(position)
        if isinstance(columns, list):
            return self._commit_sends(lane, upto, columns, limit_s)
        names = {number: name for (_, name), number in self.parts.items()}
        partitions = {names[part] for part in columns.part}
        if partitions & self.locked:
            raise TooSlowError("simulated lock", lock=True)
        if sent_at is None or columns.flush not in self.flushes:
            if sent_at is not None:
                self.fenced.add(columns.flush)
            if columns.part and columns.version != self.version:
                return Replayed(position, stale=True)
            if sum([self.needs_s.get(partition, 0) for partition in partitions]) > (limit_s or REPLAY_CALL_S):
                raise TooSlowError("simulated")
            for part, data in zip(columns.part, columns.data, strict=True):
                self._append(names[part], data)
            self.flushes.add(columns.flush)
        self.positions[lane] = upto
        return Replayed(upto)

    def _commit_sends(self, lane: UUID, upto: int, sends: list[SpooledBatch], limit_s: float | None) -> Replayed:
        if {send.partition for send in sends} & self.locked:
            raise TooSlowError("simulated lock", lock=True)
        if sum([self.needs_s.get(send.partition, 0) for send in sends]) > (limit_s or REPLAY_CALL_S):
            raise TooSlowError("simulated")
        for send in sends:
            self._append(send.partition, b"[" + send.body + b"]")
        self.positions[lane] = upto
        return Replayed(upto)

    async def forget(self, lanes: Sequence[UUID]) -> None:
        for lane in lanes:
            self.positions.pop(lane, None)

    async def commit_something(self) -> None:
        self._answer()
        await asyncio.sleep(0)


class Sends:
    """What stores requests of another interface, in the same database."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def replay(self, lane: UUID, first: int, upto: int, sent_at: Any, requests: Any, limit_s: Any) -> int:
        batches = [batch for request in requests for batch in request]
        return (await self._postgres._called(lane, first, upto, sent_at, batches, limit_s)).upto


async def in_turn(work: Any, *arguments: Any) -> Any:
    """What another thread would do, at a moment that the seed decides."""
    await asyncio.sleep(0)
    return work(*arguments)


class World:
    """What producers were told, and the means to check it."""

    def __init__(self, seed: int, trouble: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.trouble, self.quiet = trouble, False
        self.postgres = Postgres(random.Random(seed + 1))
        self.folder = SimulatedFolder(random.Random(seed + 2))
        self.answered: dict[str, list[int]] = {}
        self.sent: set[int] = set()
        self.next = 0
        self.boot()

    def boot(self) -> None:
        """Two workers on the folder as it is."""
        limits = Limits(bytes_max=1 << 20, file_requests_max=4, file_bytes_max=600)
        self.workers = [Spool(self.folder, INSTALLATION, limits, lambda: 1000.0) for _ in range(2)]
        self.postgres.tick = self.folder.tick
        failover = Failover(self.workers[1])
        context = Context(
            self.postgres,
            self.postgres,
            MetadataCache(self.postgres, 100),
            ignore_notification,
            0.001,
            failover,  # type: ignore[arg-type]
        )
        self.replay = Replay(context, failover, self.postgres, 3, 0, {SQS: Sends(self.postgres)})

    def push(self) -> None:
        """A call of one worker's engine: one request, or two that came at the same time."""
        spool = self.rng.choice(self.workers)
        if self.rng.random() < 0.25:
            self._send_or_spool(spool)
            return
        requests = [self._request() for _ in range(2 if self.rng.random() < 0.2 else 1)]
        behind = [
            not spool.spooling and bool({("q", partition) for partition in request} & spool.held_back.keys())
            for request in requests
        ]
        for held in (False, True):
            part = [request for request, each in zip(requests, behind, strict=True) if each is held]
            if part:
                self._push_or_spool(spool, part, held=held)

    def _request(self) -> dict[str, list[int]]:
        partitions = self.rng.sample("abcde", 2 if self.rng.random() < 0.2 else 1)
        return {partition: self._numbers() for partition in partitions}

    def _push_or_spool(self, spool: Spool, requests: list[dict[str, list[int]]], *, held: bool) -> None:
        pushes = [joined([push_of(partition, each) for partition, each in request.items()]) for request in requests]
        flush, sent_at = uuid4(), None
        if not spool.spooling and not held:
            if not self.postgres.unavailable:
                self.folder.tick()
                self.postgres.store(flush, pushes)
                self.folder.tick()
                self._answer(requests)
                return
            sent_at = 1000.0
            if self.rng.random() < 0.3:
                # It was committed just before PostgreSQL failed, and was not answered.
                self.postgres.store(flush, pushes)
        record = Record(flush, sent_at, 1000.0, [spool_request(push) for push in pushes])
        try:
            if not spool.append([entry_of(record)], insist=self.postgres.unavailable):
                raise AssertionError("nothing ends the spool between two looks here")
        except SpoolError:
            return
        self._answer(requests)

    def _send_or_spool(self, spool: Spool) -> None:
        """A call of another interface, whose requests are not spooled if they may be stored."""
        requests = [{self.rng.choice("yz"): self._numbers()} for _ in range(self.rng.randint(1, 2))]
        pushes = [joined([push_of(partition, each) for partition, each in request.items()]) for request in requests]
        batches = [[structs.replace(batch, kind=SQS) for batch in spool_request(push)] for push in pushes]
        held = any(not spool.held_back.keys().isdisjoint([("q", name) for name in each]) for each in requests)
        if not spool.spooling and not held:
            if not self.postgres.unavailable:
                self.folder.tick()
                self.postgres.store(uuid4(), pushes)
                self.folder.tick()
                self._answer(requests)
                return
        elif not spool.spooling and not self.postgres.unavailable:
            requests, batches = requests[:1], batches[:1]
            if ("q", *requests[0]) not in spool.held_back:
                return
        record = Record(uuid4(), None, 1000.0, batches)
        with contextlib.suppress(SpoolError):
            assert spool.append([entry_of(record)], insist=self.postgres.unavailable)
            self._answer(requests)

    def _numbers(self) -> list[int]:
        numbers = list(range(self.next, self.next + self.rng.randint(1, 3)))
        self.next += len(numbers)
        self.sent.update(numbers)
        return numbers

    def _answer(self, requests: list[dict[str, list[int]]]) -> None:
        for request in requests:
            for partition, each in request.items():
                self.answered.setdefault(partition, []).extend(each)

    def push_beside_the_replay(self) -> None:
        """Somebody pushes while a call of the replay is under way, unless the replay has made everybody wait."""
        if not self.quiet and self.rng.random() < 0.3 and "append.lock" not in self.folder.held:
            self.push()

    async def drain(self) -> None:
        """Replays until the spool ends, whatever breaks off; what is held back is left."""
        await self._replay(self._drain)

    async def _drain(self) -> None:
        while self.workers[0].spooling:
            with contextlib.suppress(OutcomeUnknownError):
                await self.replay.drain()

    async def retry(self, rounds: int) -> None:
        """Tries what is held back so often, whenever its time would be, and lets go what is stored."""
        await self._replay(lambda: self._retry(rounds))

    async def _retry(self, rounds: int) -> None:
        replay = self.replay
        assert await replay._acquire()
        try:
            for _ in range(rounds):
                while replay._held_back.released or self.workers[0].spooling:
                    with contextlib.suppress(OutcomeUnknownError):
                        await replay._drain()
                lanes = replay._held_back.start(math.inf)
                await asyncio.gather(*(replay._retry(lane) for lane in lanes), self._begin_drains())
                if not replay._held_back and not replay._held_back.released:
                    break
        finally:
            await replay._release()

    async def _begin_drains(self) -> None:
        """What a drain begins with, beside lanes that are being stored: it may look at any moment."""
        for _ in range(self.rng.randint(0, 20)):
            await asyncio.sleep(0)
            await self.replay._load()

    async def _replay(self, work: Any) -> None:
        self.postgres.meanwhile = self.push_beside_the_replay
        modules = queen.engine.replay, queen.engine.lane_store, queen.engine.failover
        try:
            with contextlib.ExitStack() as stack:
                for module in modules:
                    stack.enter_context(patch.object(module, "uninterrupted", in_turn))
                await work()
        finally:
            self.postgres.meanwhile = lambda: None

    async def live(self, steps: int) -> None:
        """Outages, pushes, failures of the disk, and replays."""
        for _ in range(steps):
            self.postgres.unavailable = self.rng.random() < 0.7
            for _ in range(self.rng.randint(1, 6)):
                if self.rng.random() < 0.1:
                    self.folder.failing = self.rng.choice([errno.ENOSPC, errno.EIO])
                self.push()
                self.folder.failing = 0
            if not self.postgres.unavailable:
                self.postgres.version += self.rng.random() < 0.3  # somebody has configured a queue
                self.hamper()
                await self.drain()
                if self.rng.random() < 0.5:
                    await self.retry(self.rng.randint(1, 9))

    def hamper(self) -> None:
        """Some partitions are slow or locked from now on, others are not any more."""
        for partition in "abcdeyz":
            if self.rng.random() < self.trouble:
                self.postgres.needs_s[partition] = self.rng.choice([0.6, 5, 100, 1000])
            elif self.rng.random() < 0.3:
                self.postgres.needs_s.pop(partition, None)
        self.postgres.locked = {partition for partition in "abcdeyz" if self.rng.random() < self.trouble / 2}

    async def end(self) -> None:
        """The instance starts again, and nothing fails any more."""
        self.boot()
        self.workers[0].recover()
        self.postgres.unavailable = False
        self.postgres.locked = set()
        await self.drain()
        await self.retry(3)
        self.quiet = True
        await self.retry(200)

    def check(self) -> None:
        """Everything answered is stored once and in order; what was not answered, at most once."""
        stored = self.postgres.log
        for partition, log in stored.items():
            assert len(log) == len(set(log)), f"stored twice in {partition}: {log}"
            told = self.answered.get(partition, [])
            kept = set(told)
            found = [number for number in log if number in kept]
            wrong = next((place for place, pair in enumerate(zip_longest(found, told)) if pair[0] != pair[1]), None)
            assert wrong is None, (
                f"lost or reordered in {partition} from {wrong} on: {found[wrong:][:20]} is stored, "
                f"{told[wrong:][:20]} was answered"
            )
        assert {p for p, told in self.answered.items() if told} <= set(stored), "a whole partition was lost"
        assert {number for log in stored.values() for number in log} <= self.sent
        assert not self.workers[0].files()
        assert not self.workers[0].failed_files()
        assert not self.workers[0].held_files()
        assert not self.workers[0].held_back
        state = self.workers[0].state()
        assert (state.spooling, state.requests, state.messages, state.bytes) == (False, 0, 0, 0)


async def crash_and_recover(
    seed: int, steps: int, crash_at: int, power: bool, trouble: float = 0.0
) -> tuple[World, int]:
    """Runs a world up to a crash, lets it recover, with another crash in the midst of that, and checks it.

    Returns the world and the number of boundaries before the first crash.
    """
    world = World(seed, trouble)
    world.folder.crash_at = crash_at
    with contextlib.suppress(Crash):
        await world.live(steps)
    boundaries = world.folder.ticks
    second = world.rng.randint(1, 12) if crash_at else 0
    for again in (second, 0):
        world.folder = world.folder.after_power_failure() if power else world.folder.after_process_death()
        world.folder.crash_at = again
        try:
            await world.end()
        except Crash:
            continue
        break
    world.check()
    return world, boundaries
