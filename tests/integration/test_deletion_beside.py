"""The deletion of a message beside a rotation of keys: both write the same segment again."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from queen.core.errors import DecryptionError
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.rotation import EncryptedPartition, RotationStore, StoredSegment, rotate_all
from queen.postgres.store import Store
from queen.security.keyring import Keyring
from spec.guarantees import Level, checks
from tests.support.flushes import flush_of
from tests.support.locks import Connection, prepared_connections, until_waiting
from tests.support.servers import create_database, drop_database

QUEUE = "sealed"
KEYS = Keyring(b"\1" * 32)
PUSH = (
    "SELECT * FROM queen.push_messages_v1("
    "$1, false, $2, $3, $4, $5, $6, NULL, NULL, NULL, (SELECT version FROM queen.push_options), NULL)"
)
KEPT = "SELECT off, payload, key_id FROM queen.messages ORDER BY off"


class Watcher:
    """Whom nothing surprises."""

    def begun(self, total: int | None) -> None: ...

    def advanced(self, number: int) -> None: ...

    def unreadable(self, place: str, why: DecryptionError) -> None:
        raise AssertionError(place) from why


@pytest.fixture
async def url(postgres: str) -> AsyncIterator[str]:
    """A database of its own: a rotation takes all that is encrypted."""
    url = await create_database(postgres)
    yield url
    await drop_database(postgres, url)


@pytest.fixture
async def connections(url: str) -> AsyncIterator[list[Connection]]:
    async with prepared_connections(url, 3) as opened:
        yield opened


@pytest.fixture
async def pool(url: str) -> AsyncIterator[Pool]:
    pool = Pool(parse(url, "queen test", 5000), 1, 30)
    yield pool
    await pool.close()


@pytest.fixture
async def part_id(connections: list[Connection], pool: Pool) -> int:
    """A partition with three messages in clear, of a queue that is encrypted since."""
    columns = await flush_of(Store(pool), QUEUE, [b'"one"', b'"two"', b'"three"'])
    c = columns
    await connections[0].fetch(PUSH, c.flush, c.part, c.n, c.data, c.ends, c.ids)
    await connections[0].execute("UPDATE queen.queues SET encryption_enabled = true, ever_encrypted = true")
    return columns.part[0]


@checks("G-DUR-3", "G-SEC-5", level=Level.LIVE)
async def test_a_deletion_waits_for_a_rotation_of_the_segment_and_cuts_what_that_has_written(
    connections: list[Connection], part_id: int, pool: Pool
) -> None:
    rotating, deleting, observer = connections
    async with rotating.transaction():
        [row] = await rotating.fetch("SELECT last_off, ends, data FROM queen.segments")
        await rotating.execute(
            "SELECT queen.replace_segment_v1($1, $2, $3, $4, $5)", part_id, row["last_off"], row["data"],
            b'[{"payload":"ONE, longer"},{"payload":"TWO, longer"},{"payload":"THREE, longer"}]',
            b"".join(end.to_bytes(4, "big") for end in (26, 52, 80)),
        )  # fmt: skip
        deletion = asyncio.create_task(deleting.fetchval("SELECT queen.delete_message_v1($1, 1, NULL)", part_id))
        await until_waiting(observer, deleting, deletion)
        assert not deletion.done()
    assert await deletion is True
    kept = [(row["off"], row["payload"]) for row in await observer.fetch(KEPT)]
    assert kept == [(0, '"ONE, longer"'), (2, '"THREE, longer"')]


class Overtaken(RotationStore):
    """Of which somebody deletes a message behind its back, once."""

    def __init__(self, pool: Pool, connection: Connection) -> None:
        super().__init__(pool)
        self._connection, self._deleted = connection, False

    async def find_segments(self, place: EncryptedPartition, after: int) -> list[StoredSegment]:
        found = await super().find_segments(place, after)
        if not self._deleted:
            self._deleted = True
            assert await self._connection.fetchval("SELECT queen.delete_message_v1($1, 1, NULL)", place.part_id)
        return found


@checks("G-SEC-3", level=Level.LIVE)
@pytest.mark.usefixtures("part_id")
async def test_a_rotation_comes_back_to_a_segment_of_which_a_message_was_deleted_meanwhile(
    connections: list[Connection], pool: Pool
) -> None:
    rotation = await rotate_all(Overtaken(pool, connections[0]), KEYS, Watcher())
    kept = [(row["off"], row["key_id"]) for row in await connections[0].fetch(KEPT)]
    assert kept == [(0, KEYS.current_id), (2, KEYS.current_id)]
    assert rotation.unreadable == 0
