"""Pops that share a call of the procedure: each gets what it would get alone."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from spec.guarantees import Level, checks
from tests.support.locks import Connection, prepared_connections
from tests.support.procedures import push, resolve, subscribe
from tests.support.servers import create_database, drop_database

POP = """
    SELECT pop, grp_id, part_id FROM queen.pop_unified_batch_v1(
        ARRAY[10, 10], ARRAY[1, 1], $1::uuid[], NULL, ARRAY[1, 1], $2::bigint[], ARRAY[NULL, NULL]::bigint[],
        1000000, 1000000)
    WHERE pop IS NOT NULL
"""


@pytest.fixture
async def connection(postgres: str) -> AsyncIterator[Connection]:
    url = await create_database(postgres)
    async with prepared_connections(url, 1) as opened:
        yield opened[0]
    await drop_database(postgres, url)


@checks("G-POP-1", "G-POP-4", level=Level.LIVE)
async def test_a_pop_of_two_queues_beside_one_of_none_takes_one_partition_of_the_first(connection: Connection) -> None:
    """As many groups as pops, and yet not one each: a pop of a namespace, and one of an unknown queue."""
    groups = {}
    for queue, priority in (("low", 0), ("high", 9)):
        [part] = await resolve(connection, queue, ["p"])
        groups[queue] = await subscribe(connection, queue, "g")
        await connection.execute("UPDATE queen.queues SET priority = $2 WHERE name = $1", queue, priority)
        await push(connection, {part: [b"1"]})
    rows = await connection.fetch(POP, [uuid4(), uuid4()], [groups["low"], groups["high"]])
    assert [(row["pop"], row["grp_id"]) for row in rows] == [(1, groups["high"])]
