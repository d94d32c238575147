"""How each fault is done to a world."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import psutil

from tests.support.chaos import schedule as s
from tests.support.chaos.world import PATIENCE_S, Database, World, until
from tests.support.processes import is_gone

_ENDS_THE_SERVER = (s.KillMaster, s.KillEverything, s.StopServer, s.AddDatabase)
_SERVER_S = 30.0
_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


@dataclass
class Injector:
    """Carries out a schedule.

    Attributes:
        done: how often each kind was injected.
        log: what happened when, for people.
    """

    world: World
    done: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Does every fault at its time, several at once where they overlap, and undoes it; then all is over."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for event in self.world.schedule.events:
                group.create_task(self._at(event, began))

    async def _at(self, event: s.Event, began: float) -> None:
        await asyncio.sleep(max(0.0, began + event.at - time.monotonic()))
        if isinstance(event.fault, _ENDS_THE_SERVER):
            # On a slow machine there would be no server most of the time.
            await self.world.wait_for_server(_SERVER_S)
        database = self.world.databases[event.database]
        note = await HOW[type(event.fault)](self.world, database, event.fault)
        self.done[s.kind_of(event.fault)] += not note
        self.log.append(
            f"{time.monotonic() - began:5.1f} s  over: {s.kind_of(event.fault)} {database.name} {note}".rstrip()
        )


#: An empty text, or why nothing was done.
How = Callable[[World, Database, Any], Awaitable[str]]
HOW: dict[type, How] = {}


def _does(kind: type) -> Callable[[How], How]:
    def register(how: How) -> How:
        HOW[kind] = how
        return how

    return register


# ---------------------------------------------------------------- PostgreSQL


async def _down(database: Database, number: signal.Signals, seconds: float) -> str:
    async with database.lock:
        await asyncio.to_thread(database.postgres.end, number, database.primary)
        await asyncio.sleep(seconds)
        await database.bring_back()
    return ""


@_does(s.KillPostmaster)
async def _kill_postmaster(_world: World, database: Database, fault: s.KillPostmaster) -> str:
    return await _down(database, signal.SIGKILL, fault.down_s)


@_does(s.StopPostgres)
async def _stop_postgres(_world: World, database: Database, fault: s.StopPostgres) -> str:
    return await _down(database, _SIGNALS[fault.mode], fault.down_s)


@_does(s.KillBackEnd)
async def _kill_back_end(_world: World, database: Database, fault: s.KillBackEnd) -> str:
    async with database.lock:
        if fault.how == "kill":
            _, *others = database.postgres.processes(database.primary)
            with suppress(psutil.NoSuchProcess):
                killed = others[fault.pick % len(others)]
                killed.kill()
                # When it is gone, the postmaster knows that, and accepts no connections until it has recovered.
                await asyncio.to_thread(killed.wait, PATIENCE_S)
            await database.bring_back()
            return ""
        connection = await asyncpg.connect(database.dsn)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'queen' OFFSET $1",
            fault.pick % 3,
        )
        await connection.close()
    return ""


@_does(s.FreezePostgres)
async def _freeze_postgres(_world: World, database: Database, fault: s.FreezePostgres) -> str:
    async with database.lock:
        processes = database.postgres.processes(database.primary)
        try:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
            await asyncio.sleep(fault.seconds)
        finally:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.resume()
    return ""


@_does(s.FailOver)
async def _fail_over(_world: World, database: Database, _fault: s.FailOver) -> str:
    async with database.lock:
        await asyncio.to_thread(database.postgres.fail_over)
        database.primary = "two"
        await database.bring_back()
    return ""


@_does(s.FillPostgresDisk)
async def _fill_postgres_disk(_world: World, database: Database, fault: s.FillPostgresDisk) -> str:
    ballast = await asyncio.to_thread(database.fill_disk)
    if ballast is None:
        return "left out"
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        ballast.unlink()
    async with database.lock:
        await database.bring_back()
    return ""


# ---------------------------------------------------------------- the network


@_does(s.Reset)
async def _reset(world: World, database: Database, fault: s.Reset) -> str:
    for proxy in world.link(fault.link, database):
        proxy.reset()
    return ""


@_does(s.BlackHole)
async def _black_hole(world: World, database: Database, fault: s.BlackHole) -> str:
    for proxy in world.link(fault.link, database):
        proxy.swallow(fault.direction)
    await asyncio.sleep(fault.seconds)
    for proxy in world.link(fault.link, database):
        if fault.then == "reset":
            proxy.reset()
        proxy.deliver(fault.direction)
    return ""


@_does(s.Delay)
async def _delay(world: World, database: Database, fault: s.Delay) -> str:
    for proxy in world.link(fault.link, database):
        proxy.delay(fault.most_ms / 1000)
    await asyncio.sleep(fault.seconds)
    for proxy in world.link(fault.link, database):
        proxy.delay(0)
    return ""


# ---------------------------------------------------------------- the server


@_does(s.KillWorker)
async def _kill_worker(world: World, _database: Database, fault: s.KillWorker) -> str:
    async with world.server_lock:
        with suppress(psutil.NoSuchProcess, IndexError):
            workers = sorted(world.server.workers())
            if workers:
                os.kill(workers[fault.pick % len(workers)], signal.SIGKILL)
                return ""
    return "there was none"


@_does(s.KillMaster)
async def _kill_master(world: World, _database: Database, _fault: s.KillMaster) -> str:
    async with world.server_lock:
        with suppress(psutil.NoSuchProcess, IndexError):
            world.excuse().gunicorn().kill()
            return ""
    return "there was none"


@_does(s.KillEverything)
async def _kill_everything(world: World, _database: Database, fault: s.KillEverything) -> str:
    async with AsyncExitStack() as locks:
        for lock in (world.server_lock, *(database.lock for database in world.databases)):
            await locks.enter_async_context(lock)
        with suppress(psutil.NoSuchProcess):
            family = world.excuse().family()
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            await until(lambda: all(is_gone(process) for process in family), "the end of the server")
        for database in world.databases:
            await asyncio.to_thread(database.postgres.end, signal.SIGKILL, database.primary)
        await asyncio.sleep(fault.down_s)
        await asyncio.gather(*[database.bring_back() for database in world.databases])
    return ""


@_does(s.StopServer)
async def _stop_server(world: World, _database: Database, _fault: s.StopServer) -> str:
    return await _stop(world)


async def _stop(world: World) -> str:
    async with world.server_lock:
        server = world.excuse()
        if server.process.poll() is not None:
            return "there was none"
        server.process.send_signal(signal.SIGTERM)
        await until(lambda: server.process.poll() is not None, "the end of the server")
    return ""


@_does(s.Reload)
async def _reload(world: World, _database: Database, _fault: s.Reload) -> str:
    async with world.server_lock:
        if world.server.process.poll() is not None:
            return "there was none"
        world.server.process.send_signal(signal.SIGHUP)
    return ""


# ---------------------------------------------------------------- below the server


async def _switched_on(world: World, switch: str, seconds: float) -> str:
    path = world.injected / switch
    path.touch()
    await asyncio.sleep(seconds)
    path.unlink(missing_ok=True)
    return ""


@_does(s.FillSpoolDisk)
async def _fill_spool_disk(world: World, _database: Database, fault: s.FillSpoolDisk) -> str:
    return await _switched_on(world, "disk-full", fault.seconds)


@_does(s.BreakSync)
async def _break_sync(world: World, _database: Database, fault: s.BreakSync) -> str:
    return await _switched_on(world, "sync-fails", fault.seconds)


@_does(s.JumpClock)
async def _jump_clock(world: World, _database: Database, fault: s.JumpClock) -> str:
    new = world.injected / "clock.new"
    new.write_text(str(fault.offset_s))
    new.rename(world.injected / "clock")
    return ""


# ---------------------------------------------------------------- the list of databases


@_does(s.AddDatabase)
async def _add_database(world: World, _database: Database, _fault: s.AddDatabase) -> str:
    world.joined = world.databases
    await _stop(world)
    await world.wait_for_server(_SERVER_S)
    return await world.change_list("add", world.databases[-1])


@_does(s.DrainDatabase)
async def _drain_database(world: World, database: Database, _fault: s.DrainDatabase) -> str:
    return await world.change_list("drain", database)
