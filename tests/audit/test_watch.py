"""The live audit: violations are told while the stream runs, from a real log and from journals that grow."""

import asyncio
from pathlib import Path

import asyncpg
import pytest

from queen_audit.errors import AuditError
from queen_audit.journal.files import to_line
from queen_audit.journal.schema import Call, Delivery
from queen_audit.live import watch as live
from queen_bench.audit.log import load
from tests.support.servers import create_database, drop_database


@pytest.fixture
def dsn(postgres):
    url = asyncio.run(create_database(postgres))
    asyncio.run(load(url, 300, 2, 10))
    yield url
    asyncio.run(drop_database(postgres, url))


def pop(number: int, offset: int) -> bytes:
    second = 1_000_000
    delivery = Delivery("q", "p", f"t{offset}", offset, 1)
    times = {"sent": number * second, "answered": number * second + 1}
    return to_line(Call(run="r", agent="a", number=number, kind="pop", **times, deliveries=(delivery,)))


async def remove_one_and_push_on(dsn: str) -> None:
    """A hole, and segments behind it."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("UPDATE queen.partition_lookup SET next_off = next_off + 10")
    await connection.close()
    await load(dsn, 100, 2, 10)


def test_what_is_broken_while_it_watches_is_told(spark, dsn, tmp_path):
    journal = tmp_path / "journal"
    journal.mkdir()
    lines = journal / "a.jsonl"
    lines.write_bytes(pop(0, 0) + pop(1, 1))
    told = []

    def report(finding):
        if not told:
            with lines.open("ab") as file:
                # The agent is not done with the last line.
                file.write(pop(2, 3) + pop(3, 2) + pop(4, 4)[:20])
        told.append(finding)

    found = live.findings(live.streams(spark, dsn, journal), 0)
    asyncio.run(remove_one_and_push_on(dsn))
    # Both partitions have a gap, and the journal a message that comes too late.
    live.watch(found, tmp_path, 0.2, report, lambda: len(told) < 3)
    gaps = sorted(each.offset for each in told if each.guarantee == "G-ORD-2")
    assert len(gaps) == 2
    assert sorted((each.guarantee, each.queue, each.offset) for each in told) == [
        ("G-ORD-1", "q", 2),
        *(("G-ORD-2", "generated", offset) for offset in gaps),
    ]
    assert [each.text for each in told if each.guarantee == "G-ORD-1"] == [
        "offset 2 was delivered first after offset 3 (a 3)"
    ]


def test_a_line_that_is_none_is_named(spark, tmp_path):
    journal: Path = tmp_path / "journal"
    journal.mkdir()
    (journal / "a.jsonl").write_bytes(b"{}\n")
    found = live.findings(live.streams(spark, None, journal), 0)
    with pytest.raises(AuditError, match=r"a\.jsonl: Object missing required field"):
        live.watch(found, tmp_path, 0.2, lambda _: None, lambda: True)
