"""The archive of the log: exact, added to, safe from kills; and one with the log after retention."""

import asyncio
import json
from pathlib import Path

import asyncpg
import pyarrow.parquet as pq
import pytest

from bench.generated_log import load
from pyspark_queen.batches import batches
from pyspark_queen.segments import BYTES_A_BATCH, size_of
from queen.postgres.setup import prepare
from spark_validation.archive import database, job
from spark_validation.archive.folder import Archive, locked, open_archive, open_filled
from spark_validation.errors import ArchiveError
from spark_validation.inputs import Inputs
from spark_validation.log.snapshot import Snapshot
from spark_validation.run import Result, run
from tests.support.servers import create_database, drop_database

PARTITIONS, A_SEGMENT = 3, 10


@pytest.fixture
def dsn(postgres):
    url = asyncio.run(create_database(postgres))
    asyncio.run(load(url, 300, PARTITIONS, A_SEGMENT))
    yield url
    asyncio.run(drop_database(postgres, url))


def ask(dsn, query):
    async def fetch():
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetch(query)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def test_large_messages_are_taken_few_at_once():
    """Arrow has no more than 2 GiB of text in a batch."""
    rows = [(0, 0, 1, 0, None, b"", bytes(size << 20)) for size in (1, 1, 40, 1, 20, 20, 12)]
    assert [[len(row[6]) >> 20 for row in some] for some in batches(rows, size_of, BYTES_A_BATCH)] == [
        [1, 1],
        [40],
        [1, 20],
        [20, 12],
    ]


def add(spark, dsn: str, folder: Path) -> job.Done:
    with Snapshot(dsn) as snapshot, locked(folder):
        return job.add(spark, snapshot, open_archive(folder), a_task=100)


def rows(folder: Path) -> list[tuple]:
    """What is archived, without Spark."""
    files = open_filled(folder).files
    found = [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted((row["part_id"], row["offset"], row["message"]) for row in found)


def logged(dsn: str) -> list[tuple]:
    query = """SELECT s.part_id, s.last_off - s.n + 1 + i AS off, convert_from(m.message, 'UTF8')
    FROM queen.segments AS s, generate_series(0, s.n - 1) AS i, queen.message_at(s.data, s.ends, i) AS m
    ORDER BY 1, 2"""
    return [tuple(row) for row in ask(dsn, query)]


def test_it_holds_what_the_log_holds_and_each_run_adds_what_is_new(spark, dsn, tmp_path):
    assert add(spark, dsn, tmp_path).rows == 300
    assert rows(tmp_path) == logged(dsn)
    asyncio.run(load(dsn, 200, PARTITIONS + 1, A_SEGMENT))
    # A kill between the moves and the end of the run leaves files that are in no list.
    stray = open_filled(tmp_path).files[0]
    stray.with_name("000002-00000.parquet").write_bytes(stray.read_bytes())
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "half.parquet").write_bytes(b"PAR1")
    done = add(spark, dsn, tmp_path)
    assert (done.rows, done.too_late) == (200, 0)
    assert rows(tmp_path) == logged(dsn)
    assert add(spark, dsn, tmp_path).rows == 0
    days = {path.parent.relative_to(tmp_path) for path in open_filled(tmp_path).files}
    [today] = ask(dsn, "SELECT DISTINCT (created_at AT TIME ZONE 'UTC')::date::text FROM queen.segments")
    assert days == {Path(f"log/queue=generated/day={today[0]}")}


@pytest.mark.parametrize("known", [False, True])
def test_what_is_left_of_a_deleted_queue_is_passed_over(spark, dsn, tmp_path, known):
    """Its partitions are gone for everybody; their messages are removed step by step."""
    if known:
        add(spark, dsn, tmp_path)
        asyncio.run(load(dsn, 100, PARTITIONS, A_SEGMENT))
    ask(dsn, "SELECT queen.resolve_partitions_v1(ARRAY['kept'], ARRAY['p'], true)")
    ask(dsn, "SELECT queen.delete_queue_v1('generated', 1000)")
    assert logged(dsn)
    assert add(spark, dsn, tmp_path).rows == 0


def test_a_job_that_was_killed_is_done_again(spark, dsn, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Archive, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            add(spark, dsn, tmp_path)
    assert open_archive(tmp_path).runs == ()
    assert add(spark, dsn, tmp_path).rows == 300
    assert rows(tmp_path) == logged(dsn)


def test_an_archive_that_differs_from_the_log_is_not_added(spark, dsn, tmp_path, monkeypatch):
    real = Snapshot.log
    monkeypatch.setattr(Snapshot, "log", lambda *given, **how: real(*given, **how).where("offset <> 7"))
    with pytest.raises(ArchiveError, match="differ from the log in 3 partitions, the first is generated/0"):
        add(spark, dsn, tmp_path)
    assert open_archive(tmp_path).runs == ()


def test_log_and_archive_are_one_after_retention(spark, dsn, tmp_path):
    add(spark, dsn, tmp_path)
    ask(dsn, "DELETE FROM queen.segments WHERE last_off < 50")
    asyncio.run(load(dsn, 100, PARTITIONS, A_SEGMENT))
    with Snapshot(dsn) as snapshot:
        both = database.read(spark, open_filled(tmp_path), snapshot)
        assert sorted(both.log.select("part_id", "offset").collect()) == sorted(
            (head.part_id, offset) for head in snapshot.state().heads for offset in range(head.next_offset)
        )
        verdicts = {verdict.audit: verdict for verdict in run(Inputs(database=both), ["G-ORD-2", "G-RET-1"])}
        assert verdicts["the_log_has_no_gap"].result is Result.VALID
        # The archive does not excuse what the queue never allowed.
        assert verdicts["only_what_may_go_is_gone"].violations == PARTITIONS
    assert database.read(spark, open_filled(tmp_path), None).log.count() == 300


def test_earlier_removals_are_counted(spark, dsn, tmp_path):
    ask(dsn, "DELETE FROM queen.segments WHERE last_off < 20")
    assert add(spark, dsn, tmp_path).too_late == 20 * PARTITIONS


def test_a_file_that_is_gone_or_torn_is_named(tmp_path, dsn, spark):
    add(spark, dsn, tmp_path)
    [path, *_] = open_filled(tmp_path).files
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ArchiveError, match=rf"parquet has {len(whole) - 1} bytes, and {len(whole)} were written"):
        open_filled(tmp_path)
    path.unlink()
    with pytest.raises(ArchiveError, match=r"parquet is missing"):
        open_filled(tmp_path)


def test_the_archive_of_another_database_is_refused(spark, dsn, postgres, tmp_path):
    """Its partitions have the same numbers, and would be taken for those of this one."""
    other = asyncio.run(create_database(postgres))
    try:
        asyncio.run(load(other, 300, PARTITIONS, A_SEGMENT))
        add(spark, other, tmp_path)
    finally:
        asyncio.run(drop_database(postgres, other))
    before = open_filled(tmp_path)
    with pytest.raises(ArchiveError, match=r"the archive of another database: it has installation"):
        add(spark, dsn, tmp_path)
    with Snapshot(dsn) as snapshot, pytest.raises(ArchiveError, match="Name the folder that belongs to --dsn"):
        database.read(spark, before, snapshot)
    assert open_filled(tmp_path) == before
    empty = asyncio.run(create_database(postgres))
    try:
        asyncio.run(prepare(empty, 60_000))
        with pytest.raises(ArchiveError, match=r"it has installation"):
            add(spark, empty, tmp_path)
    finally:
        asyncio.run(drop_database(postgres, empty))
    assert open_filled(tmp_path) == before


def test_the_archive_of_a_database_that_was_set_back_is_refused(spark, dsn, tmp_path):
    add(spark, dsn, tmp_path)
    newest = "SELECT part_id, next_off - 1 FROM queen.log_ends"
    ask(dsn, f"DELETE FROM queen.segments WHERE (part_id, last_off) IN ({newest})")
    with pytest.raises(ArchiveError, match=r"before a restore: its partition \d+ is generated/\d up to offset"):
        add(spark, dsn, tmp_path)


def test_the_archive_of_an_earlier_release_gets_to_know_its_database(spark, dsn, tmp_path):
    add(spark, dsn, tmp_path)
    [path] = (tmp_path / "runs").glob("*.state.json")
    state = json.loads(path.read_bytes())
    there = state.pop("installation")
    del state["deleted"]
    path.write_text(json.dumps(state))
    add(spark, dsn, tmp_path)
    assert open_filled(tmp_path).state().installation == there


def test_what_was_deleted_is_known_when_retention_has_removed_it(spark, dsn, tmp_path):
    ask(dsn, "SELECT queen.delete_message_v1(min(part_id), 3, NULL) FROM queen.segments")
    add(spark, dsn, tmp_path)
    with Snapshot(dsn) as snapshot:
        [gone] = snapshot.state().deleted
        assert (gone.first, gone.last) == (3, 3)
    ask(dsn, "DELETE FROM queen.segments WHERE last_off < 50")
    ask(dsn, "DELETE FROM queen.deleted_messages")
    with Snapshot(dsn) as snapshot:
        both = database.read(spark, open_filled(tmp_path), snapshot)
        assert [tuple(row) for row in both.deleted.collect()] == [(gone.part_id, 3, 3)]
    add(spark, dsn, tmp_path)
    assert open_filled(tmp_path).state().deleted == [gone]


def test_two_jobs_at_once_are_refused(tmp_path):
    with locked(tmp_path), pytest.raises(ArchiveError, match="another archive job"), locked(tmp_path):
        pass


def test_long_names_of_queues_become_short_folders():
    assert job.directory("orders") == "orders"
    assert job.directory("ä" * 255).startswith("ä" * 32 + "~")
    assert len(job.directory("ä" * 255).encode()) < 100
    assert job.directory("ä" * 254) != job.directory("ä" * 255)
