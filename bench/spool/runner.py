"""Pushes through the engine, with PostgreSQL there and with the engine told that it is away, and the replay."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from queen.core.errors import DataRejectedError
from queen.core.limits import REPLAY_LANES
from queen.db.dsn import connect, parse
from queen.db.pool import Pool
from queen.db.setup import prepare
from queen.db.spool_store import SpoolStore
from queen.engine.failover import Failover
from queen.engine.replay import Replay
from queen.spool.folder import DiskFolder
from queen.spool.spool import Limits, Spool
from queen_bench import machine
from queen_bench.database import CONNECT_TIMEOUT_MS, describe, scratch_database
from queen_bench.engine.instance import SETTINGS, Instance
from queen_bench.procedures.results import Sample
from queen_bench.procedures.side import MessageSource
from queen_bench.spool.results import BATCH, Profile, Rates, Report

Advance = Callable[[str, float], None]
_CONNECTIONS = 8


async def run(dsn: str, profile: Profile, advance: Advance, *, embedded: bool) -> Report:
    """Measures in a database of its own.

    Raises:
        QueenError: there is no database.
        MismatchError: what is stored is not what was pushed.
    """
    with tempfile.TemporaryDirectory(prefix="queen-bench-spool-") as folder:
        async with scratch_database(dsn) as url:
            await prepare(url, CONNECT_TIMEOUT_MS)
            facts = machine.describe()
            bench = _Bench(url, Path(folder), profile)
            try:
                rates = await bench.rates(advance)
                drain = await bench.drain_backlog(advance)
                await bench.check()
            finally:
                await bench.close()
            connection = await connect(parse(url, "queen bench", CONNECT_TIMEOUT_MS))
            postgres = await describe(connection, embedded=embedded)
            await connection.close()
    return Report(facts, postgres, profile, rates, drain)


class _Bench:
    def __init__(self, url: str, folder: Path, profile: Profile) -> None:
        self._profile = profile
        self._replaying = Pool(parse(url, "queen bench", CONNECT_TIMEOUT_MS), REPLAY_LANES, 60)
        self._spool = Spool(DiskFolder(folder), uuid4(), Limits(bytes_max=1 << 40))
        self._failover = Failover(self._spool)
        self._instance = Instance(url, _CONNECTIONS, self._failover)
        self._replay = Replay(
            self._instance.context, self._failover, SpoolStore(self._replaying), SETTINGS.spool_batch, 0
        )
        self._source = MessageSource()
        self._pushed = 0

    async def close(self) -> None:
        await self._instance.close()
        self._failover.close()
        await self._replaying.close()

    async def rates(self, advance: Advance) -> list[Rates]:
        """Normal and spooled pushes in turns, and the replay of the latter."""
        profile = self._profile
        found = [Rates(batch) for batch in profile.batches]
        await self._push(BATCH, profile.seconds / 4)
        await self._drain((await self._spooled(BATCH)).messages)
        for number in range(profile.runs):
            for place, rates in enumerate(found):
                advance(f"{rates.batch} a request", (number + place / len(found)) / (profile.runs + 1))
                if number % 2:
                    rates.normal.append(await self._push(rates.batch, profile.seconds))
                rates.spooling.append(await self._spooled(rates.batch))
                # Before anything else: as long as the spool is not empty, all pushes go there.
                rates.replay.append(await self._drain(rates.spooling[-1].messages))
                if not number % 2:
                    rates.normal.append(await self._push(rates.batch, profile.seconds))
        return found

    async def drain_backlog(self, advance: Advance) -> Sample:
        """The time from PostgreSQL's return until the spool is empty, with nobody pushing."""
        advance("drain", self._profile.runs / (self._profile.runs + 1))
        self._failover.away = True
        messages = 0
        while messages < self._profile.drained:
            round_ = [self._request(BATCH, producer) for producer in range(self._profile.producers)]
            await asyncio.gather(*map(self._instance.push, round_))
            messages += BATCH * len(round_)
        self._pushed += messages
        self._failover.away = False
        return await self._drain(messages)

    async def check(self) -> None:
        """Everything is there, and nothing twice."""
        await self._instance.check(self._pushed)

    async def _spooled(self, batch: int) -> Sample:
        self._failover.away = True
        sample = await self._push(batch, self._profile.seconds)
        self._failover.away = False
        return sample

    async def _push(self, batch: int, seconds: float) -> Sample:
        """Producers with a partition each, which wait for each answer; requests are made while the clock stands."""
        ready = [[self._request(batch, producer) for _ in range(20)] for producer in range(self._profile.producers)]
        await self._even_out()
        begin = time.perf_counter()
        counts = await asyncio.gather(*(self._produce(requests, begin + seconds) for requests in ready))
        messages = sum(counts) * batch
        self._pushed += messages
        return Sample(messages, time.perf_counter() - begin)

    async def _even_out(self) -> None:
        """Nobody pays for what another measurement has written: neither for its pages, nor for room for more WAL."""
        with suppress(DataRejectedError):  # this user may not, and then nobody gets it
            await self._replaying.fetch("CHECKPOINT")

    async def _produce(self, requests: list[bytes], end: float) -> int:
        count = 0
        while time.perf_counter() < end:
            await self._instance.push(requests[count % len(requests)])
            count += 1
        return count

    def _request(self, batch: int, producer: int) -> bytes:
        """The body of a push to the producer's partition."""
        messages = self._source.take(batch, producer, chosen=False)
        item = b'{"queue":"bench","partition":"p%d","payload":%b}'
        return b'{"items":[%b]}' % b",".join([item % (producer, message.payload) for message in messages])

    async def _drain(self, messages: int) -> Sample:
        await self._even_out()
        begin = time.perf_counter()
        await self._replay.drain()
        return Sample(messages, time.perf_counter() - begin)
