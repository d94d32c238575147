"""Damaged segments: violations with their place, beside which the rest is judged, and which an archive leaves out."""

import asyncio
from pathlib import Path

import pytest

from bench.generated_log import load
from spark_validation import sail
from spark_validation.archive import database
from spark_validation.archive.folder import open_filled
from spark_validation.inputs import Inputs
from spark_validation.log.snapshot import Snapshot
from spark_validation.run import Result, run
from tests.audit.test_archive import add, ask
from tests.support.processes import run as queen
from tests.support.servers import create_database, drop_database

A_SEGMENT = 200
#: How a segment is damaged, and what is said of it.
WAYS = {
    "ids": ("ids = '123'", r"it has 200 messages, and 3 bytes of hashes, not 3200"),
    "n": ("n = 150", r"it has 150 messages, and "),
    "ends": ("ends = substr(ends, 1, 10)", r"it has 200 messages, and 10 bytes of their ends, not 800"),
}
OF_DATA = {
    "data": ("data = substr(data, 1, 50)", r"do not fit its data of 50 bytes"),
    "text": ("data = set_byte(data, 1, 35)", r"its data is not JSON: "),
    "letters": ("data = set_byte(data, 12, 255)", r"its data is not JSON: 'utf-8' codec"),
    "marks": ("ends = set_byte(ends, 3, get_byte(ends, 3) + 1)", r"its messages do not end where they should"),
}


@pytest.fixture
def dsn(postgres):
    """A partition for each way, of three segments: the middle one is to be damaged."""
    url = asyncio.run(create_database(postgres))
    ways = len(WAYS | OF_DATA) + 1
    asyncio.run(load(url, 3 * A_SEGMENT * ways, ways, A_SEGMENT))
    yield url
    asyncio.run(drop_database(postgres, url))


def damage(dsn: str) -> list[str]:
    """Damages a segment in each way; the partitions by way, and last that of the segment whose pages are gone."""
    parts = [row["id"] for row in ask(dsn, "SELECT id FROM queen.partitions ORDER BY id")]
    middle = f"last_off = {2 * A_SEGMENT - 1}"
    for part, (change, _) in zip(parts, (WAYS | OF_DATA).values(), strict=False):
        ask(dsn, f"UPDATE queen.segments SET {change} WHERE part_id = {part} AND {middle}")
    names = "SELECT reltoastrelid::regclass::text AS name FROM pg_class WHERE oid = 'queen.segments'::regclass"
    [row] = ask(dsn, names)
    chunks = f"SELECT chunk_id FROM {row['name']}"
    before = {each["chunk_id"] for each in ask(dsn, chunks)}
    # Stored again, it has pages of its own.
    ask(dsn, f"UPDATE queen.segments SET ids = ids || ''::bytea WHERE part_id = {parts[-1]} AND {middle}")
    new = {each["chunk_id"] for each in ask(dsn, chunks)} - before
    assert new
    lost = ", ".join(map(str, new))
    # PostgreSQL changes such a table only if it takes it for another kind of table.
    kind = f"UPDATE pg_class SET relkind = '{{}}' WHERE oid = '{row['name']}'::regclass"
    gone = f"DELETE FROM {row['name']} WHERE chunk_id IN ({lost})"
    for statement in (kind.format("r"), gone, kind.format("t"), "VACUUM queen.segments"):
        ask(dsn, statement)
    return parts


@pytest.mark.timeout(900)
def test_damage_is_a_violation_with_its_place_and_the_rest_is_judged(spark, sail_session, dsn, tmp_path: Path):
    damage(dsn)
    names = [row["name"] for row in ask(dsn, "SELECT name FROM queen.partitions ORDER BY id")]
    with Snapshot(dsn) as snapshot, sail.spoken():
        verdicts = {each.audit: each for each in run(Inputs(database=snapshot.database(sail_session)))}
    found = {each.partition: each for each in verdicts["every_segment_can_be_read"].evidence}
    wanted = dict(zip(names, [*(WAYS | OF_DATA).values(), ("", "PostgreSQL says: ")], strict=True))
    assert set(found) == set(names)
    for name, evidence in found.items():
        place = f"the segment with offsets {A_SEGMENT} to {2 * A_SEGMENT - 1} is damaged: "
        assert evidence.text.startswith(place)
        assert wanted[name][1] in evidence.text
        assert evidence.offset == A_SEGMENT
    assert verdicts["the_log_has_no_gap"].result is Result.VALID

    archive = tmp_path / "archive"
    ended = queen("audit", "archive", str(archive), "--master", "local[2]", patience=600, QUEEN_AUDIT_DSN=dsn)
    assert ended.returncode == 1, ended.stderr
    assert f"archived {(len(names) * 3 - len(names)) * A_SEGMENT} messages of {len(names)} partitions" in ended.stdout
    said = " ".join(ended.stderr.split())
    assert all(f"left out: generated/{name}: the segment with offsets {A_SEGMENT} to" in said for name in names)
    assert all(why in said for _, why in OF_DATA.values())
    done = add(spark, dsn, archive)
    assert (done.rows, done.damaged) == (0, ())
    newer = "SELECT 1 FROM queen.segments AS t WHERE t.part_id = s.part_id AND t.last_off > s.last_off"
    ask(dsn, f"DELETE FROM queen.segments AS s WHERE EXISTS ({newer})")
    with Snapshot(dsn) as snapshot, sail.spoken():
        both = database.read(sail_session, open_filled(archive), snapshot)
        found = {each.audit: each for each in run(Inputs(database=both), ["G-DUR-1", "G-ORD-2"])}
    assert {each.partition for each in found["every_segment_can_be_read"].evidence} == set(names)
