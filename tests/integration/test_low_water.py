"""The low-water mark: the time below which no cursor is ready, and when a stored one must not be used.

The procedures are called for times in the future, which no other test writes: a database of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from datetime import datetime, timedelta

import pytest

from spec.guarantees import Level, checks
from tests.support.locks import Connection, prepared_connections, until_waiting
from tests.support.servers import create_database, drop_database

GROUP = 7
#: Longer than queen.tick, by the most that is lost of a mark.
TICK = timedelta(milliseconds=20)
PUT = "INSERT INTO queen.partition_consumers (part_id, grp_id, ready_at, acked, upto, seen) SELECT $1, $2, $3, 0, 0, 0"
#: Of no queue: they have all their cursors.
MAKE_GROUPS = (
    "INSERT INTO queen.consumer_groups_metadata"
    " (id, queue_id, name, subscription_mode, since, subscribed_upto, created_at) OVERRIDING SYSTEM VALUE"
    " SELECT n, 0, n, 'all', '-infinity', 9223372036854775807, now()"
    " FROM generate_series(1, 3000) AS n"
)
#: A pop of any partition, and the mark that it returns.
POP = (
    "SELECT mark FROM queen.pop_unified_batch_v1(ARRAY[1], ARRAY[1], ARRAY[gen_random_uuid()], ARRAY[60], ARRAY[1],"
    " ARRAY[$1::bigint], ARRAY[NULL::bigint], 1000, 1000, ARRAY[$1::bigint], ARRAY[$2::text]) WHERE mark IS NOT NULL"
)


@pytest.fixture
async def connections(postgres: str) -> AsyncIterator[list[Connection]]:
    url = await create_database(postgres)
    async with prepared_connections(url, 3) as opened:
        await opened[0].execute(MAKE_GROUPS)
        yield opened
    await drop_database(postgres, url)


async def mark(connection: Connection, now: datetime, group: int = GROUP) -> datetime:
    found: datetime = await connection.fetchval("SELECT queen.low_water($1, $2)", group, now)
    return found


async def next_wait(connection: Connection, now: datetime) -> datetime:
    found: datetime = await connection.fetchval("SELECT queen.next_wait($1, $2)", GROUP, now)
    return found


@checks("G-WAIT-2", level=Level.LIVE)
@pytest.mark.parametrize("first", [0, 60], ids=["long ago", "a moment ago"])
async def test_the_mark_stays_below_what_is_not_committed_yet(connections: list[Connection], first: int) -> None:
    """Whether the session looked at the clock a moment ago, and tries each tick, or asks for the list of locks."""
    writer, reader, _ = connections
    base = await reader.fetchval("SELECT queen.clock()")
    await reader.execute("SELECT queen.closed($1)", base - timedelta(seconds=first))
    async with writer.transaction():
        now = await writer.fetchval("SELECT queen.write_clock()")
        await writer.execute(PUT, 1, GROUP, now)
        for seconds in (0.5, 1, 5, 600):
            assert await mark(reader, now + timedelta(seconds=seconds)) <= now
    for seconds in (601, 602, 700):
        assert now - TICK <= await mark(reader, now + timedelta(seconds=seconds)) <= now
    await writer.execute("UPDATE queen.partition_consumers SET ready_at = 'infinity', ver = ver + 1")
    later = now + timedelta(seconds=900)
    assert later - TICK <= await mark(reader, later) <= later


@checks("G-WAIT-2", level=Level.LIVE)
async def test_no_transaction_writes_ready_times_below_a_closed_time(connections: list[Connection]) -> None:
    """A transaction that reads the clock, and is delayed before it notes the time, takes a later time."""
    writer, reader, _ = connections
    now = await reader.fetchval("SELECT queen.clock()")
    await reader.execute("SELECT queen.closed($1)", now)
    async with reader.transaction():
        ahead = now + timedelta(seconds=0.08)
        assert await reader.fetchval("SELECT queen.closed($1)", ahead) > ahead.timestamp() - 0.2
        entered = await writer.fetchval("SELECT queen.write_clock()")
    assert entered > ahead - TICK


@checks("G-WAIT-2", level=Level.LIVE)
@pytest.mark.parametrize("digits", [0, 1])
async def test_the_mark_is_never_above_the_cursor_that_is_ready(connections: list[Connection], digits: int) -> None:
    """Whatever a role has set: with 0, PostgreSQL rounds fractions to 15 digits."""
    writer, reader, _ = connections
    await reader.execute(f"SET extra_float_digits = {digits}")
    base = await reader.fetchval("SELECT date_trunc('second', queen.clock())")
    for number in range(50):
        ready_at = base + timedelta(seconds=10 * number, microseconds=333_333 + 7 * number)
        await writer.execute("TRUNCATE queen.partition_consumers")
        await writer.execute(PUT, 1, GROUP, ready_at)
        for seconds in (1, 1.2):  # found, and remembered
            assert ready_at - TICK <= await mark(reader, ready_at + timedelta(seconds=seconds)) <= ready_at


@checks("G-WAIT-2", level=Level.LIVE)
async def test_a_low_water_mark_is_ignored_after_a_step_back_of_the_clock(connections: list[Connection]) -> None:
    writer, reader, _ = connections
    base = await reader.fetchval("SELECT queen.clock()")
    assert await mark(reader, base + timedelta(hours=1)) > base
    await writer.execute(PUT, 1, GROUP, base)
    assert await mark(reader, base + timedelta(seconds=1)) <= base


async def slowly(connections: list[Connection], search: Awaitable[datetime]) -> datetime:
    """What a search of the reader finds that takes a twentieth of a second, as on a busy machine."""
    writer, reader, observer = connections
    async with writer.transaction():
        await writer.execute("LOCK TABLE queen.partition_consumers IN ACCESS EXCLUSIVE MODE")
        searching = asyncio.ensure_future(search)
        await until_waiting(observer, reader, searching)
        end = "SELECT clock_timestamp() + interval '50 ms'"
        until = await observer.fetchval(end)
        while await observer.fetchval("SELECT clock_timestamp()") < until:
            assert not searching.done()
    return await searching


@checks("G-WAIT-2", level=Level.LIVE)
async def test_cursors_below_the_low_water_mark_are_found_within_a_minute(
    connections: list[Connection],
) -> None:
    writer, reader, _ = connections
    base = await reader.fetchval("SELECT queen.clock()")
    assert await mark(reader, base) > base - timedelta(seconds=1)
    await writer.execute(PUT, 1, GROUP, base - timedelta(seconds=10))
    marks = [await mark(reader, base + timedelta(seconds=second)) for second in range(1, 60)]
    assert base - timedelta(seconds=11) < min(marks) < base - timedelta(seconds=9)
    assert marks[-1] == min(marks)


@checks("G-COST-1", level=Level.LIVE)
async def test_a_sweep_that_takes_long_goes_on_in_shorter_steps_and_less_often(connections: list[Connection]) -> None:
    _, reader, _ = connections
    base = await reader.fetchval("SELECT queen.clock()")
    await mark(reader, base)
    state = "SELECT string_to_array(current_setting('queen.low_water_7'), ' ')::float8[]"
    await mark(reader, base + timedelta(seconds=2))
    quick = await reader.fetchval(state)
    await slowly(connections, mark(reader, base + timedelta(seconds=4)))
    slow = await reader.fetchval(state)
    now = base.timestamp()
    # A second later and twice as long if it took less than half a millisecond, which a busy machine may not manage.
    assert quick[2] - now == pytest.approx(3) if quick[5] == 2 else 3 <= quick[2] - now <= 62
    # Not all of what is slow here is the step.
    assert 5 <= slow[2] - now <= 64


@checks("G-WAIT-2", level=Level.LIVE)
async def test_what_waits_is_believed_for_a_second_and_not_when_the_clock_has_stepped_back(
    connections: list[Connection],
) -> None:
    writer, reader, _ = connections
    base = await reader.fetchval("SELECT queen.clock()")
    await writer.execute(PUT, 1, GROUP, base + timedelta(hours=1))
    assert await slowly(connections, next_wait(reader, base)) == base + timedelta(hours=1)
    await writer.execute(PUT, 2, GROUP, base + timedelta(seconds=5))
    assert await next_wait(reader, base + timedelta(seconds=2)) == base + timedelta(seconds=5)
    await slowly(connections, next_wait(reader, base + timedelta(seconds=2)))
    await writer.execute(PUT, 3, GROUP, base - timedelta(seconds=10))
    assert await next_wait(reader, base - timedelta(seconds=20)) == base - timedelta(seconds=10)


@checks("G-COST-1", level=Level.LIVE)
async def test_a_session_remembers_a_bounded_number_of_groups_and_takes_none_for_another(
    connections: list[Connection],
) -> None:
    writer, reader, _ = connections
    now = await reader.fetchval("SELECT queen.clock()")
    await writer.execute(PUT, 1, GROUP, now - timedelta(seconds=5))
    for group in (GROUP + 1000, GROUP, GROUP + 2000, GROUP):
        assert (await mark(reader, now, group) <= now - timedelta(seconds=5)) is (group == GROUP)
    await reader.execute(
        "SELECT queen.low_water(n, $1), queen.next_wait(n, $1) FROM generate_series(1, 3000) AS n", now
    )
    remembered = "SELECT count(current_setting($1 || n, true)) FROM generate_series(0, 3000) AS n"
    for name in ("queen.low_water_", "queen.next_wait_"):
        assert await reader.fetchval(remembered, name) <= 1000


@checks("G-COST-1", level=Level.LIVE)
async def test_a_pop_takes_the_mark_that_another_session_has_found(connections: list[Connection]) -> None:
    finder, reader, _ = connections
    found = (await finder.fetchval(POP, GROUP, None)).split()
    mark_at, looked_at = float(found[0]) - 5, float(found[1])
    given = " ".join([str(mark_at), str(looked_at + 3600), str(looked_at + 7200), *found[3:]])
    assert await reader.fetchval(POP, GROUP, given) != given  # looked at an hour from now: the clock has stepped back
    given = " ".join([str(mark_at), *found[1:6], "3600", *found[7:]])
    assert await reader.fetchval(POP, GROUP, given) is None  # it has not changed
    assert (await mark(reader, await reader.fetchval("SELECT queen.clock()"))).timestamp() == pytest.approx(mark_at)


@checks("G-WAIT-2", level=Level.LIVE)
async def test_a_low_water_mark_of_another_server_is_ignored(connections: list[Connection]) -> None:
    """Its successor, a standby or a restored backup, may have cursors that were ready earlier."""
    writer, reader, _ = connections
    await writer.execute(PUT, 1, GROUP, await writer.fetchval("SELECT queen.clock() - interval '10 s'"))
    found = (await reader.fetchval(POP, GROUP, None)).split()
    now = await reader.fetchval("SELECT queen.clock()")
    other = " ".join([str(now.timestamp() - 1), *found[1:6], "3600", str(float(found[7]) - 60_000)])
    assert float((await reader.fetchval(POP, GROUP, other)).split()[0]) < now.timestamp() - 9


@checks("G-WAIT-2", level=Level.LIVE)
async def test_a_recreated_group_is_not_ready_below_the_low_water_mark(connections: list[Connection]) -> None:
    """Other sessions know the number, and look for it while the group is being made: it is ready since that began."""
    maker, reader, _ = connections
    subscribe = "SELECT * FROM queen.subscribe_v1('q', 'g', 'all', NULL, true, true, 100)"
    await maker.execute("SELECT queen.resolve_partitions_v1(ARRAY['q'], ARRAY['p'], true)")
    data, ends = b'[{"payload":1}]', (14).to_bytes(4, "big")
    await maker.fetch(
        "SELECT queen.push_messages_v1(gen_random_uuid(), false, ARRAY(SELECT id FROM queen.partitions), ARRAY[1], "
        "ARRAY[$1::bytea], ARRAY[$2::bytea], ARRAY[NULL::bytea], NULL, NULL, NULL, o.version, NULL) "
        "FROM queen.push_options AS o",
        data, ends,
    )  # fmt: skip
    await maker.execute("DELETE FROM queen.consumer_groups_metadata")
    group = await maker.fetchval(f"SELECT grp_id FROM ({subscribe}) AS s")
    await mark(reader, await reader.fetchval("SELECT queen.clock()"), group)
    await maker.execute("SELECT queen.delete_group_v1('q', 'g', true, '', 100)")
    async with maker.transaction():
        row = await maker.fetchrow(subscribe)
        assert row is not None
        assert (row["grp_id"], row["complete"]) == (group, True)
        ready_at = await maker.fetchval("SELECT ready_at FROM queen.partition_consumers")
        await mark(reader, ready_at + timedelta(milliseconds=500), group)
    assert await mark(reader, ready_at + timedelta(milliseconds=700), group) <= ready_at
