"""The live audit: violations are told while the stream runs, from a real log and from journals that grow."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import pytest

from bench.generated_log import load
from queen.log.ids import message_id
from spark_validation import command
from spark_validation.errors import AuditError
from spark_validation.journal.schema import Call, Delivery, PushItem, to_line
from spark_validation.live import sources
from spark_validation.live import watch as live
from spark_validation.live.checkpoint import Checkpoint, Origin, opened
from spark_validation.live.windows import Finding
from spark_validation.log.snapshot import Snapshot
from tests.support.outage import fragile_postgres
from tests.support.processes import open_folder, wait_until
from tests.support.servers import create_database, drop_database
from tests.support.standby import pair


@pytest.fixture
def dsn(postgres):
    url = asyncio.run(create_database(postgres))
    asyncio.run(load(url, 300, 2, 10))
    yield url
    asyncio.run(drop_database(postgres, url))


@dataclass
class Heard:
    """What a watch tells; does something before its first finding is written down."""

    before: Callable[[], object] = lambda: None
    findings: list[Finding] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def found(self, finding):
        if not self.findings:
            self.before()
        self.findings.append(finding)

    def noticed(self, text):
        self.notices.append(text)


def once() -> bool:
    """A watch that judges what there is, and ends."""
    return False


def push(number: int, partition: str, part: int, offset: int, name: str) -> bytes:
    second = 1_000_000
    times = {"sent": number * second, "answered": number * second + 1}
    item = PushItem("generated", partition, name, "ok", message_id=message_id(part, offset))
    return to_line(Call(run="r", agent="a", number=number, kind="push", **times, pushes=(item,)))


def pop(number: int, offset: int) -> bytes:
    second = 1_000_000
    delivery = Delivery("q", "p", f"t{offset}", offset, 1)
    times = {"sent": number * second, "answered": number * second + 1}
    return to_line(
        Call(run="r", agent="a", number=number, kind="pop", lease=f"l{number}", **times, deliveries=(delivery,))
    )


async def remove_one_and_push_on(dsn: str) -> None:
    """A hole, and segments behind it."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ends, data)"
        " SELECT part_id, next_off + 9, 0, last_at, gen_random_uuid(), '', '[]' FROM queen.log_ends"
    )
    await connection.close()
    await load(dsn, 100, 2, 10)


def test_what_is_broken_while_it_watches_is_told(spark, dsn, tmp_path):
    journal = tmp_path / "journal"
    journal.mkdir()
    lines = journal / "a.jsonl"
    lines.write_bytes(pop(0, 0) + pop(1, 1))

    def write_on():
        with lines.open("ab") as file:
            # The agent is not done with the last line.
            file.write(pop(2, 3) + pop(3, 2) + pop(4, 4)[:20])

    heard = Heard(write_on)
    told = heard.findings
    found = live.findings(live.streams(spark, dsn, journal), 0, with_log=True)
    asyncio.run(remove_one_and_push_on(dsn))
    # Both partitions have a gap, and the journal a message that comes too late.
    live.watch(found, Checkpoint(tmp_path), 0.2, heard, lambda: len(told) < 3, dsn)
    gaps = sorted(each.offset for each in told if each.guarantee == "G-ORD-2")
    assert len(gaps) == 2
    assert sorted((each.guarantee, each.queue, each.offset) for each in told) == [
        ("G-ORD-1", "q", 2),
        *(("G-ORD-2", "generated", offset) for offset in gaps),
    ]
    assert [each.text for each in told if each.guarantee == "G-ORD-1"] == [
        "offset 2 was first delivered after offset 3 (a 3)"
    ]


def test_a_watch_continues_at_its_checkpoint(spark, dsn, tmp_path):
    """With what it remembers: what the second one finds needs what the first one read, and nothing is told twice."""
    journal = tmp_path / "journal"
    journal.mkdir()
    lines, folder, origin = journal / "a.jsonl", tmp_path / "checkpoint", Origin("it", str(journal))
    lines.write_bytes(pop(0, 0) + pop(1, 2) + pop(2, 1) + pop(3, 5))

    def watch() -> list[tuple[str, str, int | None]]:
        heard = Heard()
        with opened(folder, origin) as checkpoint:
            found = live.findings(live.streams(spark, dsn, journal), 0, with_log=True)
            live.watch(found, checkpoint, 0.2, heard, once, dsn)
        return sorted((each.guarantee, each.partition, each.offset) for each in heard.findings)

    assert watch() == [("G-ORD-1", "p", 1)]
    assert watch() == []
    before = asyncio.run(log_ends(dsn))
    asyncio.run(load(dsn, 100, 2, 10))
    gaps = asyncio.run(log_ends(dsn))
    asyncio.run(remove_one_and_push_on(dsn))
    (one, one_number, _), (other, other_number, end) = asyncio.run(log_ends(dsn))
    with lines.open("ab") as file:
        file.write(pop(4, 3))
        file.write(push(5, one, one_number, before[0][2], "not this one"))
        file.write(push(6, other, other_number, end + 5, "never stored"))
    assert watch() == sorted(
        [
            ("G-ORD-1", "p", 3),
            ("G-DUR-1", one, before[0][2]),
            ("G-DUR-1", other, end + 5),
            *(("G-ORD-2", name, offset + 10) for name, _, offset in gaps),
        ]
    )


async def log_ends(dsn: str) -> list[tuple[str, int, int]]:
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch(
        "SELECT p.name, p.id, l.next_off FROM queen.log_ends AS l JOIN queen.partitions AS p ON p.id = l.part_id"
        " ORDER BY p.id"
    )
    await connection.close()
    return [tuple(row) for row in rows]


def test_a_checkpoint_belongs_to_a_database_and_journals(tmp_path):
    folder, origin = tmp_path / "c", Origin("one", "/journals")
    with opened(folder, origin) as checkpoint:
        assert checkpoint.told == -1
        checkpoint.tell(3)
        with pytest.raises(AuditError, match="another watch is running there"), opened(folder, origin):
            pass
    with opened(folder, origin) as checkpoint:
        assert checkpoint.told == 3
    with pytest.raises(AuditError, match="its installation is one, and now it is two"):
        opened(folder, Origin("two", "/journals")).__enter__()
    with pytest.raises(AuditError, match="its journal is /journals, and now it is None"):
        opened(folder, Origin("one", None)).__enter__()
    (folder / "origin.json").write_text("{")
    with pytest.raises(AuditError, match=r"origin\.json cannot be read"):
        opened(folder, origin).__enter__()
    other = tmp_path / "o"
    other.mkdir()
    (other / "file").touch()
    with pytest.raises(AuditError, match="has other files, and no checkpoint"):
        opened(other, origin).__enter__()


def test_a_line_that_is_none_is_named(spark, tmp_path):
    journal: Path = tmp_path / "journal"
    journal.mkdir()
    (journal / "a.jsonl").write_bytes(b"{}\n")
    found = live.findings(live.streams(spark, None, journal), 0, with_log=False)
    with pytest.raises(AuditError, match=r"a\.jsonl: Object missing required field"):
        live.watch(found, Checkpoint(tmp_path), 0.2, Heard(), lambda: True, None)


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_the_watch_waits_while_postgresql_is_unavailable(spark, tmp_path):
    """What was broken meanwhile is told, and what was told before is not told again."""
    with open_folder() as folder, fragile_postgres(folder) as postgres:
        url = asyncio.run(create_database(postgres.dsn))
        asyncio.run(load(url, 300, 2, 10))

        class Restarting(Heard):
            def noticed(self, text):
                super().noticed(text)
                if len(self.notices) == 1:
                    postgres.start()
                    asyncio.run(remove_one_and_push_on(url))

        heard = Restarting(postgres.kill)
        found = live.findings(live.streams(spark, url, None), 0, with_log=True)
        asyncio.run(remove_one_and_push_on(url))
        live.watch(found, Checkpoint(tmp_path), 0.2, heard, lambda: len(heard.findings) < 4, url)
    assert [text.partition(":")[0] for text in heard.notices] == [
        "PostgreSQL is unavailable",
        "PostgreSQL is available again",
    ]
    assert len({(each.guarantee, each.partition, each.offset) for each in heard.findings}) == 4
    assert len(heard.findings) == 4


@pytest.mark.timeout(2400)
def test_a_replica_accuses_nobody(tmp_path):
    """It may lag behind the journals, so it is refused beside them, before Spark starts; its log alone is judged."""
    with open_folder() as folder, pair(folder / "pair") as both:
        asyncio.run(load(both.dsn_of("one"), 20, 2, 10))
        replica = both.dsn_of("two")
        replayed = "SELECT pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()"
        wait_until(lambda: both.sql("two", replayed).strip() == "t", "the replay of the log")
        (tmp_path / "a.jsonl").write_bytes(push(0, "000000", 1, 7, "t7"))
        where = command.Where("local[1]", "1g")
        request = command.Request(replica, tmp_path, None, where, (), 20, 0.0)
        for judge in (
            lambda: command.make(request, lambda *_: None),
            lambda: command.watch(command.Watch(replica, tmp_path, where, 1.0, 1.0), Heard(), once),
        ):
            with pytest.raises(AuditError, match="a replica here, which may lack what journals say"):
                judge()
        with Snapshot(replica) as snapshot:
            assert snapshot.messages() == 20


@pytest.mark.parametrize("unfinished", [0, 1, 7, 8, 9, 100])
def test_a_line_that_its_agent_is_not_done_with_is_not_read(tmp_path, monkeypatch, unfinished):
    """However many looks back it takes to find its beginning."""
    monkeypatch.setattr(sources, "_TAIL", 8)
    for whole in (b"", b"a\n", b"first line\nsecond\n"):
        path = tmp_path / "a.jsonl"
        path.write_bytes(whole + b"x" * unfinished)
        assert sources.Journals(str(tmp_path)).end() == {str(path): len(whole)}
