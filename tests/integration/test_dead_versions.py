"""While a snapshot is held, a look-up of a cursor reads no version of it that is dead (ADR 45)."""

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from queen.core.administration import Seek
from queen.engine.ports import StateColumns
from spec.guarantees import Level, checks
from tests.support.growth.world import GROUP, Stock, World, template, world
from tests.support.nightly import mostly_at_night
from tests.support.servers import database_url

FEW, MANY = 20, 600
#: Pages of the index by which the newest version is found: there are a few more of them.
MORE_BLOCKS = 12
NEW_VERSION = "UPDATE queen.partition_consumers SET ver = ver + 1"
UNFINISHED = "UPDATE queen.consumer_groups_metadata SET subscribed_upto = 0"
PASS_OVER = "SELECT queen.pass_over($1, $2, '{[0,1)}', queen.clock())"
GIVE_UP = "SELECT queen.give_up(q, $1, $2, 0, 1, queen.clock()) FROM queen.queues AS q"

Call = Callable[[World, Stock], Awaitable[object]]


async def leased(w: World, s: Stock) -> None:
    await w.meter.pool.fetch("SELECT queen.is_leased($1, $2, queen.clock())", s.part, s.groups[0])


async def passed_over(w: World, s: Stock) -> None:
    await w.meter.pool.fetch(PASS_OVER, s.part, s.groups[0])


async def given_up(w: World, s: Stock) -> None:
    await w.meter.pool.fetch(GIVE_UP, s.part, s.groups[0])


async def cycled(w: World, s: Stock) -> None:
    """It acks the first message, and gives the rest of its lease back."""
    rows = await w.store.cycle(
        s.stream, (s.part, s.groups[0]), w.flush(s, []), StateColumns(), w.acks(s, [(s.part, 0)]), release=True,
        again=False,
    )  # fmt: skip
    assert (rows.undone, rows.completed, rows.released) == (False, 1, True)


async def looked_for(w: World, s: Stock) -> None:
    await w.meter.pool.fetch(UNFINISHED)
    assert await w.groups.without_cursor(s.part) == []


async def subscribed(w: World, s: Stock) -> None:
    """As a pop that names the partition of a group that has not all its cursors."""
    await w.meter.pool.fetch(UNFINISHED)
    made = await w.store.subscribe(s.queue, GROUP, "all", None, create_queue=False, create_group=False, part=s.part)
    assert made.ready == 1


async def sought(w: World, s: Stock) -> None:
    found, _ = await w.groups.seek(Seek(GROUP, s.queue, "000000"), 0)
    assert found.updated == 1


async def configured(w: World, s: Stock) -> None:
    await w.configure(s, delayed_processing=5)


async def leased_cursor(w: World) -> Stock:
    """A cursor with a lease of two messages, and a stream."""
    stock = await w.stock(1)
    await w.fill(stock, 2)
    stock.stream = await w.register(stock, "stream")
    await w.lease(stock)
    await w.settle()
    return stock


CALLS = (leased, passed_over, given_up, cycled, looked_for, subscribed, sought, configured)


@checks("G-COST-1", level=Level.LIVE)
@pytest.mark.parametrize("call", mostly_at_night(CALLS, CALLS[::2]), ids=lambda call: call.__name__)
async def test_a_look_up_reads_no_dead_versions(postgres: str, call: Call) -> None:
    async with template(postgres) as empty, world(postgres, empty) as w:
        stock, seen, versions = await leased_cursor(w), [], 0
        [row] = await w.meter.pool.fetch("SELECT current_database() AS name")
        holder = await asyncpg.connect(database_url(postgres, row["name"]))
        try:
            async with holder.transaction(isolation="repeatable_read"):
                await holder.fetch("SELECT 1 FROM queen.queues")
                for wanted in (FEW, MANY):
                    for _ in range(versions, wanted):
                        await w.meter.pool.fetch(NEW_VERSION)
                    versions = wanted
                    costs = [await w.meter.measure(lambda: call(w, stock), keep=False) for _ in range(2)]
                    seen.append(costs[-1].blocks)
        finally:
            await holder.close()
    few, many = seen
    assert many <= few + MORE_BLOCKS, (few, many)
