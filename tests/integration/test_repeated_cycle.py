"""A cycle sent again after an unknown commit: it happens once, whichever of the two sendings arrives first."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from queen.core.administration import Registration
from queen.core.errors import DataRejectedError
from queen.engine.ports import AckColumns, CycleRows, PopColumns, StateColumns
from queen.log import ids
from queen.log.append import AppendBatch
from queen.postgres.administration import AdministrationStore
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.store import Store
from spec.guarantees import Level, checks
from tests.support.flushes import flush_of


class Bench:
    """A stream that holds a lease on one message of its source, and a cycle that is about to be committed."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.store = pool, Store(pool)

    async def open(self, *, pushes: bool) -> None:
        name, lease = f"cycle-{uuid4()}", uuid4()
        registration = Registration(name, name, "h")
        self.stream = (await AdministrationStore(self.pool).register_stream(registration)).stream
        source = await flush_of(self.store, name, [b"1"])
        await self.store.push(source, again=False)
        [self.part_id] = source.part
        group = await self.store.subscribe(name, "g", "all", None, create_queue=False, create_group=True)
        assert group.grp_id is not None
        self.grp_id: int = group.grp_id
        await self.store.pop(PopColumns([1], [1], [lease], [60], [1], [self.grp_id], [None]))
        self.ack = AckColumns(
            [self.part_id], [self.grp_id], [lease], ["c"], [0], [0], [None], [None]
        )  # fmt: skip
        self.push = await flush_of(self.store, f"{name}-out", [b"2"]) if pushes else AppendBatch(uuid4())

    async def cycle(self, *, again: bool) -> CycleRows:
        state = StateColumns(["k"], ["5"], [None])
        cursor = (self.part_id, self.grp_id)
        return await self.store.cycle(self.stream, cursor, self.push, state, self.ack, release=True, again=again)

    async def outputs(self) -> list[Any]:
        sql = "SELECT payload::text AS payload FROM queen.messages WHERE part_id = ANY($1)"
        return [row["payload"] for row in await self.pool.fetch(sql, self.push.part)]


@pytest.fixture
async def bench(postgres: str) -> AsyncIterator[Bench]:
    await prepare(postgres, 5000)
    pool = Pool(parse(postgres, "queen test", 5000), 2, 30)
    yield Bench(pool)
    await pool.close()


@checks("G-STR-1", "G-STR-2", level=Level.LIVE)
@pytest.mark.parametrize("pushes", [True, False])
async def test_a_cycle_that_was_committed_is_answered_as_done(bench: Bench, pushes: bool) -> None:
    await bench.open(pushes=pushes)
    first = await bench.cycle(again=False)
    assert (first.undone, first.completed, first.released) == (False, 1, True)
    again = await bench.cycle(again=True)
    assert (again.undone, again.problem, again.released) == (False, None, True)
    assert [(row.part_id, row.first) for row in again.appended] == [(row.part_id, row.first) for row in first.appended]
    assert await bench.outputs() == ["2"] * pushes


@checks("G-STR-2", level=Level.LIVE)
@pytest.mark.parametrize("pushes", [True, False])
async def test_a_first_sending_that_arrives_after_its_repetition_changes_nothing(bench: Bench, pushes: bool) -> None:
    await bench.open(pushes=pushes)
    assert (await bench.cycle(again=True)).undone is False
    with pytest.raises(DataRejectedError, match="sent again"):
        await bench.cycle(again=False)
    assert await bench.outputs() == ["2"] * pushes
    assert ids.parse_stream_id(ids.stream_id(bench.stream)) == bench.stream
