"""The log of a real PostgreSQL: read under one snapshot, and audited with a journal of what was done to it."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import nullcontext

import asyncpg
import pytest
from pyspark.sql import functions as F  # noqa: N812

from bench.generated_log import load
from spark_validation import command
from spark_validation.columns import spark_table
from spark_validation.errors import DatabaseError
from spark_validation.inputs import Inputs
from spark_validation.journal.schema import Call
from spark_validation.log.snapshot import Snapshot
from spark_validation.run import Result, run
from tests.support.servers import create_database, drop_database

MESSAGES, PARTITIONS, A_SEGMENT = 6_000, 7, 40


@pytest.fixture(scope="module")
def dsn(postgres: str) -> Iterator[str]:
    url = asyncio.run(create_database(postgres))
    asyncio.run(load(url, MESSAGES, PARTITIONS, A_SEGMENT, hot=0.3))
    yield url
    asyncio.run(drop_database(postgres, url))


def test_exactly_the_rows_of_the_snapshot_are_read(spark, dsn):
    """Although producers write on, and retention removes."""
    with Snapshot(dsn) as snapshot:
        log = snapshot.database(spark, messages_a_task=500).log
        assert log.rdd.getNumPartitions() >= MESSAGES // 500
        asyncio.run(load(dsn, 900, PARTITIONS, A_SEGMENT, hot=0.3))
        rows = log.agg(
            F.count("*").alias("n"),
            F.sum("offset").alias("offsets"),
            F.count_distinct("part_id", "offset").alias("keys"),
        )
        [row] = rows.collect()
        inside = snapshot.fetch("SELECT sum(n), sum(n * (2 * last_off - n + 1) / 2) FROM queen.segments")
    assert (row.n, row.offsets) == tuple(inside[0])
    assert row.n == row.keys == MESSAGES
    with Snapshot(dsn) as later:
        assert later.database(spark).log.count() == MESSAGES + 900


def test_the_snapshot_is_released_before_the_first_audit(engine, dsn, monkeypatch):
    """And all audits judge what it showed, whatever happens to the database then."""
    holding: list[int] = []

    async def holders() -> int:
        connection = await asyncpg.connect(dsn)
        query = "SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()"
        try:
            return await connection.fetchval(query + " AND datname = current_database()")
        finally:
            await connection.close()

    def progress(done: int, total: int, _name: str) -> None:
        if total and not done:
            holding.append(asyncio.run(holders()))

    monkeypatch.setattr(command, "_engine", lambda *_: nullcontext(engine))
    where = command.Where("local[2]", "2g")
    report = command.make(command.Request(dsn, None, None, where, ("G-ORD-2", "G-ORD-5"), 20, 0.0), progress)
    assert set(holding) == {0}
    assert {verdict.audit: verdict.result for verdict in report.verdicts}["the_log_has_no_gap"] is Result.VALID
    assert report.rows["log"] >= MESSAGES


def test_a_connection_that_ended_takes_nothing_from_what_was_read(dsn):
    with Snapshot(dsn) as ending, Snapshot(dsn) as other:
        [row] = ending.fetch("SELECT pg_backend_pid() AS pid")
        [ended] = other.fetch("SELECT pg_terminate_backend($1, 5000) AS done", row["pid"])
    assert ended["done"]


def test_a_hash_is_that_of_the_transaction_id(engine, dsn):
    with Snapshot(dsn) as snapshot:
        log = snapshot.database(engine).log
        stored = snapshot.fetch(
            "SELECT part_id, off, left(replace(hash::text, '-', ''), 15) FROM queen.transaction_ids"
        )
        read = {(row.part_id, row.offset): row.hash for row in log.collect()}
    assert stored
    assert {key: read[key] for key in read if read[key] is not None} == {
        (part, off): int(text, 16) for part, off, text in stored
    }


def test_a_log_without_journals_is_judged_by_itself(engine, dsn):
    with Snapshot(dsn) as snapshot:
        verdicts = run(Inputs(database=snapshot.database(engine)), ["G-ORD-2", "G-ORD-5", "G-DUR-1"])
    by = {verdict.audit: verdict for verdict in verdicts}
    assert by["the_log_has_no_gap"].result is Result.VALID
    assert by["logged_times_never_fall"].result is Result.VALID
    assert by["answered_pushes_are_in_the_log"].text == "needs journals (--journal)"


def test_a_missing_segment_is_a_gap(engine, dsn):
    with Snapshot(dsn) as before:
        [part, last, count] = before.fetch(
            "SELECT part_id, last_off, n FROM queen.segments WHERE last_off >= n ORDER BY part_id, last_off LIMIT 1"
        )[0]

    where = f"WHERE part_id = {part} AND last_off = {last}"
    take = f"CREATE TABLE taken AS SELECT * FROM queen.segments {where}; DELETE FROM queen.segments {where}"
    give_back = "INSERT INTO queen.segments SELECT * FROM taken; DROP TABLE taken"

    async def execute(statements: str) -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute(statements)
        await connection.close()

    asyncio.run(execute(take))
    with Snapshot(dsn) as snapshot:
        [verdict] = [
            each
            for each in run(Inputs(database=snapshot.database(engine)), ["G-ORD-2"])
            if each.audit == "the_log_has_no_gap"
        ]
    asyncio.run(execute(give_back))
    assert [(each.offset, each.text) for each in verdict.evidence] == [
        (last + 1, f"offsets {last - count + 1} to {last} not in the log")
    ]


def test_an_empty_journal_beside_a_log_says_nothing(engine, dsn):
    calls = spark_table(engine, Call, [])
    with Snapshot(dsn) as snapshot:
        [verdict] = run(Inputs(calls, snapshot.database(engine)), ["G-SPOOL-2"])
    assert verdict.result is Result.UNKNOWN
    assert verdict.text.startswith("no message that was answered as buffered")


def test_a_silent_server_is_reported(monkeypatch):
    monkeypatch.setattr("pyspark_queen.database.CONNECT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(DatabaseError, match=r"cannot be read: no answer in 0\.1 s\. Is PostgreSQL"):
            Snapshot(f"postgresql://postgres@127.0.0.1:{port}/postgres")
