"""The lanes of a replay: which requests may be stored beside each other, and that they are."""

import asyncio
import errno
import random
from itertools import pairwise
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

import queen.engine.replay
from queen.core.errors import DatabaseUnavailableError
from queen.core.limits import REPLAY_LANES
from queen.engine.ports import Replayed
from queen.engine.replay_lanes import Unit, batches_of, lanes_of, units_of
from queen.log.append import AppendBatch
from queen.spool.format import Damage, Record, encode_header, encode_record, read_file, spool_request
from queen.spool.spool import Limits, Spool, entry_of
from spec.guarantees import Level, checks
from tests.support.simulated_folder import SimulatedFolder
from tests.support.spool_world import INSTALLATION, Postgres, World, in_turn, joined, push_of
from tests.support.virtual_time import run

#: The partitions of each request of a record, and whether it was sent to PostgreSQL before.
RECORDS = st.lists(
    st.tuples(
        st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3, unique=True), min_size=1, max_size=4),
        st.booleans(),
    ),
    max_size=12,
)


def units_from(records: list[tuple[list[list[str]], bool]]) -> list[Unit]:
    """The requests of a file with these records."""
    made = [
        Record(
            UUID(int=number + 1),
            1.0 if sent else None,
            1.0,
            [spool_request(joined([push_of(partition, [number]) for partition in each])) for each in requests],
        )
        for number, (requests, sent) in enumerate(records)
    ]
    units: list[Unit] = []
    for record in made:
        units += [Unit(len(units) + number, record, batches) for number, batches in enumerate(record.requests)]
    return units


@checks("G-SPOOL-7", "G-ORD-3", level=Level.MODEL)
@given(RECORDS)
def test_no_partition_is_in_two_lanes_and_each_lane_keeps_the_order_of_the_file(
    records: list[tuple[list[list[str]], bool]],
) -> None:
    units = units_from(records)
    lanes = lanes_of(units)
    assert sorted(unit.number for lane in lanes for unit in lane) == list(range(len(units)))
    lane_of: dict[Any, int] = {}
    for number, lane in enumerate(lanes):
        assert all(one.number < next_.number for one, next_ in pairwise(lane))
        for unit in lane:
            for batch in unit.batches:
                assert lane_of.setdefault(batch.partition, number) == number


@checks("G-SPOOL-2", level=Level.MODEL)
@given(RECORDS)
def test_grouped_records_stay_together(records: list[tuple[list[list[str]], bool]]) -> None:
    lanes = lanes_of(units_from(records))
    for flush in {unit.record.flush for lane in lanes for unit in lane if isinstance(unit.record, Record)}:
        holders = [
            lane
            for lane in lanes
            if any(isinstance(unit.record, Record) and unit.record.flush == flush for unit in lane)
        ]
        record = next(unit.record for unit in holders[0] if getattr(unit.record, "flush", None) == flush)
        assert isinstance(record, Record)
        if record.sent_at is None:
            continue
        assert len(holders) == 1
        [batch] = [batch for batch in batches_of(holders[0], 0, 100) if batch.doubtful is record]
        assert [unit.batches for unit in batch.units] == record.requests


@checks("G-SPOOL-2", level=Level.MODEL)
@given(RECORDS)
def test_a_file_is_always_dealt_out_the_same_way(records: list[tuple[list[list[str]], bool]]) -> None:
    def dealt() -> list[list[int]]:
        return [[unit.number for unit in lane] for lane in lanes_of(units_from(records))]

    assert dealt() == dealt()


@given(RECORDS, st.integers(1, 5), st.data())
def test_batches_of_a_lane_follow_each_other_from_wherever_they_begin(
    records: list[tuple[list[list[str]], bool]], requests_max: int, data: st.DataObject
) -> None:
    for lane in lanes_of(units_from(records)):
        begin = data.draw(st.integers(0, len(lane)))
        at = begin
        for batch in batches_of(lane, begin, requests_max):
            assert batch.begin == at
            assert list(batch.units) == lane[at : batch.upto]
            assert batch.doubtful is not None or len(batch.units) <= max(requests_max, 4)
            at = batch.upto
        assert at == len(lane)


def test_lanes_are_of_about_the_same_size() -> None:
    units = units_from([([[f"p{number % 20}"]], False) for number in range(400)])
    sizes = [sum(unit.bytes for unit in lane) for lane in lanes_of(units)]
    assert max(sizes) - min(sizes) <= max(sizes) / 10


def test_damage_takes_a_place_in_one_lane() -> None:
    header = encode_header(read_header())
    records = [
        encode_record(Record(uuid4(), None, 1.0, [spool_request(push_of(partition, [1]))])) for partition in "abc"
    ]
    broken = bytearray(records[1])
    broken[-1] ^= 1
    units = units_of(read_file(header + records[0] + bytes(broken) + records[2]))
    lanes = lanes_of(units)
    assert [isinstance(unit.record, Damage) for unit in units] == [False, True, False]
    assert sorted(unit.number for lane in lanes for unit in lane) == [0, 1, 2]


def read_header() -> Any:
    """The header of a new file."""
    folder = SimulatedFolder(random.Random(0))
    spool = Spool(folder, INSTALLATION, Limits())
    record = Record(uuid4(), None, 1.0, [spool_request(push_of("p", [1]))])
    spool.append([entry_of(record)], insist=True)
    return spool.read(spool.files()[0]).header


# ---------------------------------------------------------------- the replay itself


def put(spool: Spool, partition: str, *payloads: int) -> None:
    """One request on the disk."""
    record = Record(uuid4(), None, 1.0, [spool_request(push_of(partition, list(payloads)))])
    assert spool.append([entry_of(record)], insist=True)


class Together(Postgres):
    """Answers a call when as many have begun as there are lanes."""

    begun: int = 0

    async def replay(
        self, lane: UUID, first: int, upto: int, sent_at: Any, columns: AppendBatch, limit_s: float | None = None
    ) -> Replayed:
        self.begun += 1
        if self.begun == REPLAY_LANES:
            self.all_begun.set()
        await self.all_begun.wait()
        return await super().replay(lane, first, upto, sent_at, columns, limit_s)


@pytest.fixture
def world() -> World:
    world = World(1)
    world.postgres.rng = random.Random(12)
    return world


async def test_lanes_go_on_side_by_side(world: World) -> None:
    postgres = Together(random.Random(12))
    postgres.all_begun = asyncio.Event()  # type: ignore[attr-defined]
    world.postgres = postgres
    world.boot()
    for number, partition in enumerate("abcd"):
        put(world.workers[0], partition, number)
    async with asyncio.timeout(60):
        await world.drain()
    assert postgres.log == {"a": [0], "b": [1], "c": [2], "d": [3]}


class OneFails(Postgres):
    """Refuses the first call for a partition, as a database that has just gone."""

    fails: str = "b"

    async def replay(
        self, lane: UUID, first: int, upto: int, sent_at: Any, columns: AppendBatch, limit_s: float | None = None
    ) -> Replayed:
        names = {number: name for (_, name), number in self.parts.items()}
        if self.fails in [names[part] for part in columns.part]:
            self.fails = ""
            raise DatabaseUnavailableError("simulated")
        return await super().replay(lane, first, upto, sent_at, columns, limit_s)


@checks("G-SPOOL-2", "G-SPOOL-7", level=Level.MODEL)
async def test_a_lane_that_breaks_off_does_not_break_off_the_others_and_nothing_overtakes_it(world: World) -> None:
    postgres = OneFails(random.Random(12))
    world.postgres = postgres
    world.boot()
    spool = world.workers[0]
    for number in range(8):  # two files
        put(spool, "abcd"[number % 4], number)
    with pytest.raises(DatabaseUnavailableError):
        await world.drain()
    assert postgres.log == {"a": [0], "c": [2], "d": [3]}
    assert len(spool.files()) == 2
    await world.drain()
    assert postgres.log == {"a": [0, 4], "b": [1, 5], "c": [2, 6], "d": [3, 7]}
    assert not spool.files()
    assert postgres.positions == {}


def test_a_file_is_given_up_when_it_cannot_be_read_for_long_not_when_it_could_not_twice() -> None:
    async def live() -> None:
        world = World(1)
        world.boot()
        put(world.workers[0], "a", 1)
        world.workers[0].complete()
        [name] = world.workers[0].waiting_files()

        def fail(_name: str) -> None:
            raise OSError(errno.EIO, "simulated")

        for _ in range(3):
            with pytest.raises(OSError, match="simulated"):
                await world.replay._read(name, fail)
            assert await world.replay._read(name, world.workers[0].read) is not None
            await asyncio.sleep(60)
        assert world.workers[0].failed_files() == []

    with patch.object(queen.engine.replay, "uninterrupted", in_turn):
        run(live())
