"""The audit over three databases, one snapshot each: green after a load, red with the name of the one with a fault."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from pyspark_queen.source import QueenSource
from spark_validation.archive import job
from spark_validation.archive.database import read
from spark_validation.archive.folder import locked, open_archive
from spark_validation.journal.schema import Call, PushItem, to_line
from spark_validation.log.several import Snapshots, snapshot_of
from tests.support.processes import Server, run, wait_until
from tests.support.shards import NAMES, new_databases, serving_shards, urls


@pytest.fixture(scope="module")
def place(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], Path]]:
    """Three databases after a load with all that an audit judges, and the folder of its journals."""
    folder = tmp_path_factory.mktemp("load")
    with new_databases(postgres) as databases:
        with serving_shards(databases, folder / "server", "--workers", "2") as server:
            pushed(server)
            with ThreadPoolExecutor(1) as beside:
                cutting = beside.submit(cut, databases["b"], server)
                done = run(
                    "bench", "load", "flow-1000", "--url", f"http://127.0.0.1:{server.port}", "--runs", "1",
                    "--seconds", "8", "--set", "RATE=60", "--set", "VUS=3", "--set", "TOLERATE=1", "--journal",
                    "--folder", str(folder / "journals"), patience=300,
                )  # fmt: skip
                cutting.result()
            assert done.returncode in (0, 1), done.stderr
        yield databases, folder / "journals"


def pushed(server: Server) -> None:
    """A queue with three messages in a partition of each database."""
    items = [{"queue": "few", "partition": f"p@{name}", "payload": n} for name in NAMES for n in range(3)]
    assert server.request("POST", "/api/v1/push", {"items": items})[0] == 201


def cut(url: str, server: Server) -> None:
    """Ends all connections of one database in the middle of the load."""

    def messages() -> bool:
        status, answer = server.request("GET", "/api/v1/resources/overview")
        return status == 200 and answer["messages"]["total"] > 200

    wait_until(messages, "messages")
    execute(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


def execute(url: str, *statements: str) -> list[asyncpg.Record]:
    async def ask() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(url)
        try:
            return [row for statement in statements for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    return asyncio.run(ask())


def audit(databases: dict[str, str], journals: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = run(
        "audit", "--dsn", urls(databases), "--journal", str(journals), "--json", "--master", "local[2]", *options,
        patience=1500,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.timeout(2400)
def test_a_load_over_three_databases_is_audited_green(place: tuple[dict[str, str], Path]) -> None:
    databases, journals = place
    code, report = audit(databases, journals)
    assert (code, [each for each in report["verdicts"] if each["violations"]]) == (0, [])
    judged = {each["audit"] for each in report["verdicts"] if each["result"] == "valid"}
    assert {
        "answered_pushes_are_in_the_log", "the_log_has_no_gap", "first_deliveries_in_offset_order",
        "cursors_stand_in_the_log", "groups_have_their_cursors", "transaction_ids_are_those_of_the_log",
        "no_group_is_forgotten",
    } <= judged  # fmt: skip
    assert report["about"]["database"].startswith("a: ")
    assert report["rows"]["log"] > 100


@pytest.mark.timeout(600)
def test_the_data_source_reads_all_of_them(spark: Any, place: tuple[dict[str, str], Path]) -> None:
    databases, _ = place
    spark.dataSource.register(QueenSource)
    read_ = spark.read.format("queen").options(dsn=urls(databases), queue="few")
    rows = read_.schema("partition string, offset bigint, partitionNumber bigint, database string").load().collect()
    assert sorted((row.partition, row.offset, row.database) for row in rows) == [
        (f"p@{name}", n, name) for name in NAMES for n in range(3)
    ]
    assert {row.partitionNumber >> 40 for row in rows} == {0, 1, 2}
    one = read_.option("partition", "p@b").option("startingOffsets", '{"few": {"p@b": 1}}')
    assert sorted(row.offset for row in one.load().collect()) == [1, 2]
    with pytest.raises(Exception, match="there is no partition p@x"):
        read_.option("partition", "p@x").load().collect()
    with pytest.raises(Exception, match="database d: PostgreSQL cannot be used"):
        spark.read.format("queen").option("dsn", f"{urls(databases)} d=postgresql://127.0.0.1:1/x").load().collect()


@pytest.mark.timeout(600)
def test_a_stream_reads_all_of_them(spark: Any, place: tuple[dict[str, str], Path], tmp_path: Path) -> None:
    databases, _ = place
    spark.dataSource.register(QueenSource)
    stream = spark.readStream.format("queen").options(dsn=urls(databases), queue="few", startingOffsets="earliest")
    writer = stream.load().writeStream.format("memory").queryName("few").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    assert spark.table("few").count() == 3 * len(NAMES)


@pytest.mark.timeout(600)
def test_an_archive_has_all_of_them(spark: Any, place: tuple[dict[str, str], Path], tmp_path: Path) -> None:
    databases, _ = place
    with snapshot_of(urls(databases)) as snapshot, locked(tmp_path):
        assert isinstance(snapshot, Snapshots)
        messages = snapshot.messages()
        assert job.add(spark, snapshot, open_archive(tmp_path)).rows == messages
        assert job.add(spark, snapshot, open_archive(tmp_path)).rows == 0
        assert read(spark, open_archive(tmp_path), snapshot).log.count() == messages
    assert read(spark, open_archive(tmp_path), None).log.count() == messages


@pytest.mark.timeout(2400)
def test_faults_of_one_database_are_found_with_its_name(place: tuple[dict[str, str], Path]) -> None:
    """The last test: it destroys the databases."""
    databases, journals = place
    lost = execute(
        databases["b"],
        "DELETE FROM queen.segments AS s USING (SELECT part_id, min(last_off) AS last_off FROM queen.segments"
        " WHERE n > 0 GROUP BY part_id HAVING count(*) > 2 LIMIT 1) AS f"
        " WHERE s.part_id = f.part_id AND s.last_off = (SELECT min(o.last_off) FROM queen.segments AS o"
        " WHERE o.part_id = f.part_id AND o.last_off > f.last_off) RETURNING s.part_id",
    )
    assert lost
    # A partition that two databases have.
    execute(
        databases["c"],
        "INSERT INTO queen.partitions (queue_id, name) SELECT q.id, 'p@a' FROM queen.queues AS q"
        " WHERE q.name = 'few' RETURNING id",
    )
    code, report = audit(databases, journals, "--guarantee", "G-ORD-2", "--guarantee", "G-DUR-1")
    assert code == 1
    found = {each["audit"]: each["evidence"] for each in report["verdicts"] if each["violations"]}
    assert {each["database"] for each in found["the_log_has_no_gap"]} == {"b"}
    assert any(
        each["text"] == "is in the databases a and c" and each["partition"] == "p@a"
        for each in found["partitions_are_complete"]
    )


class Pushes:
    """Pushes to a partition of each database, and the journal of their answers."""

    def __init__(self, server: Server, journal: Path) -> None:
        self._server, self._journal, self._number = server, journal, 0
        journal.mkdir()

    def push(self, stored: Mapping[str, int]) -> None:
        """Pushes one message to each, which are stored at these offsets."""
        self._number += 1
        ids = {name: f"{name}{self._number}" for name in NAMES}
        items = [{"queue": "w", "partition": f"p@{n}", "payload": 1, "transactionId": ids[n]} for n in NAMES]
        status, answers = self._server.request("POST", "/api/v1/push", {"items": items})
        assert status == 201
        assert [int(answer["message_id"][24:], 16) for answer in answers] == [stored[name] for name in NAMES]
        pushes = tuple(
            PushItem("w", f"p@{name}", ids[name], "ok", message_id=answer["message_id"])
            for name, answer in zip(NAMES, answers, strict=True)
        )
        sent = self._number * 10_000_000
        call = Call(
            run="r", agent="a", number=self._number, kind="push", sent=sent, answered=sent + 1, pushes=pushes
        )  # fmt: skip
        with (self._journal / "a.jsonl").open("ab") as file:
            file.write(to_line(call))


@pytest.mark.timeout(2400)
def test_a_watch_tells_what_one_of_them_has_lost(postgres: str, tmp_path: Path) -> None:
    """And nothing before, nor of what the others keep."""
    journal = tmp_path / "journal"
    with new_databases(postgres) as databases, serving_shards(databases, tmp_path / "server") as server:
        pushes = Pushes(server, journal)

        def watch() -> tuple[int, list[tuple[str, str, int]]]:
            done = run(
                "audit", "watch", "--dsn", urls(databases), "--journal", str(journal), "--seconds", "0", "--json",
                "--master", "local[1]", "--checkpoint", str(tmp_path / "checkpoint"), patience=1500,
            )  # fmt: skip
            assert done.returncode in (0, 1), done.stderr
            found = [json.loads(line) for line in done.stdout.splitlines()]
            return done.returncode, sorted((each["guarantee"], each["partition"], each["offset"]) for each in found)

        for number in range(2):
            pushes.push(dict.fromkeys(NAMES, number))
        assert watch() == (0, [])
        for number in (2, 3):
            pushes.push(dict.fromkeys(NAMES, number))
        # Before anybody has seen them, a message of one database is lost, and offsets of another.
        execute(databases["c"], "DELETE FROM queen.segments WHERE last_off = 2 AND n > 0")
        execute(
            databases["b"],
            "INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ends, data)"
            " SELECT part_id, next_off + 9, 0, last_at, gen_random_uuid(), '', '[]' FROM queen.log_ends",
        )
        pushes.push({"a": 4, "b": 14, "c": 4})
        assert watch() == (1, [("G-DUR-1", "p@c", 2), ("G-ORD-2", "p@b", 14), ("G-ORD-2", "p@c", 3)])
