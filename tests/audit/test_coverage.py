"""Every column and every field has an entry in the table of what audits see, and what it says is true.

Wrong values are planted in copies of a small world, which the second implementation of the audits judges side by side:
``test_second`` says that it judges as the audits do. QUEEN_TEST_SEED chooses them, and QUEEN_DAMAGES says how many.
"""

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import fields

from spark_validation import coverage
from spark_validation.audits import all_audits
from spark_validation.coverage import ALL_ALIKE, COLUMNS, FIELDS, Entry
from spark_validation.journal.schema import Call
from tests.audit import damages, second
from tests.audit.damages import KINDS, ROW, ROW_KINDS, Damage, copied, copy_of, whole
from tests.audit.stored_world import damaging, read
from tests.audit.world import World, make
from tests.support.runs import Tables
from tests.support.servers import drop_database

SEED = int(os.environ.get("QUEEN_TEST_SEED", "1"))
MOST = int(os.environ.get("QUEEN_DAMAGES", "40"))
#: How often each type of damage is planted, each time at another place.
PLACES = 3


@pytest.fixture(scope="module")
def world(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = make(postgres, tmp_path_factory.mktemp("world"))
    yield made
    asyncio.run(drop_database(postgres, made.dsn))


def judged(copies: dict[int, Tables], taken_at: int) -> dict[int, set[str]]:
    """By copy: the audits that find something."""
    together, red = Tables(), defaultdict(set)
    for number, rows in copies.items():
        together.add(copied(rows, number))
    for audit, found in second.judge(second.as_tables(together), taken_at).items():
        for name, _ in found:
            red[copy_of(name)].add(audit)
    return red


def test_every_audit_that_is_named_exists():
    known = {audit.name for audit in all_audits("queen")}
    named = {audit for entries in (*COLUMNS.values(), *FIELDS.values()) for entry in entries.values()
             if not isinstance(entry, str) for audit in entry}  # fmt: skip
    assert named - known == set()


def test_every_field_of_a_journal_has_an_entry():
    lists = {"": Call, **damages.ITEMS}
    assert {items: {*entries} for items, entries in FIELDS.items()} == {
        items: {each.name for each in fields(kind) if each.name not in damages.ITEMS} | {ROW}
        for items, kind in lists.items()
    }


def test_the_page_is_current():
    assert Path(coverage.PAGE).read_text(encoding="utf-8") == coverage.page()


def test_every_column_has_an_entry(world: World):
    async def find() -> dict[str, set[str]]:
        found = defaultdict(set)
        async with damaging(world.dsn) as database:
            for table, column, _ in database.columns:
                found[table].add(column)
        return found

    found = asyncio.run(find())
    assert {*found} == {*COLUMNS, *ALL_ALIKE}
    assert {table: {*entries} - {ROW} for table, entries in COLUMNS.items()} == {t: found[t] for t in COLUMNS}


@pytest.mark.nightly
def test_a_wrong_value_in_a_journal_is_noticed(world: World):
    """Of each field and type of damage at three places; in copies of the whole world, side by side."""
    rows, taken_at = read(world.dsn, world.calls)
    copies, what = {0: rows}, {}
    for items, entries in FIELDS.items():
        for name, entry in entries.items():
            if isinstance(entry, str):
                continue
            for kind in ROW_KINDS if name == ROW else KINDS:
                for place in range(PLACES):
                    calls = damages.damaged(world.calls, items, name, kind, SEED + place)
                    if calls is not None and calls != world.calls and whole(calls):
                        what[len(copies)] = (items, name)
                        copies[len(copies)] = Tables(**{**vars(rows), "calls": calls})
    red = judged(copies, taken_at)
    assert red.pop(0, set()) == set()
    unseen = defaultdict(set)
    for number, (items, name) in what.items():
        unseen[items, name] |= red[number] & {*FIELDS[items][name]}
    assert [field for field, audits in unseen.items() if not audits] == [], f"seed {SEED}"


@pytest.mark.nightly
def test_a_wrong_value_in_the_database_is_noticed(world: World):
    """By one of the audits that the table names, for some types of damage to each column."""
    copies, what = {}, {}

    async def plant(chosen: list[tuple[str, str]]) -> int:
        async with damaging(world.dsn) as database:
            copies[0], taken_at = await asyncio.to_thread(read, world.dsn, world.calls)
            for place in range(PLACES - 1):
                for damage in damages.of_columns(database.columns, SEED + place):
                    if (damage.table, damage.column) in chosen and await database.do(damage):
                        try:
                            rows, _ = await asyncio.to_thread(read, world.dsn, world.calls)
                        finally:
                            await database.undo(damage)
                        what[len(copies)] = damage
                        copies[len(copies)] = rows
        return taken_at

    checked = sorted((table, column) for table, entries in COLUMNS.items() for column, entry in entries.items()
                     if not isinstance(entry, str))  # fmt: skip
    chosen = random.Random(SEED).sample(checked, min(MOST, len(checked)))
    taken_at = asyncio.run(plant(chosen))
    red = judged(copies, taken_at)
    assert red.pop(0, set()) == set()
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    for number, damage in what.items():
        seen[damage.table, damage.column] |= red[number] & named(damage)
    assert [place for place, audits in seen.items() if not audits] == [], f"seed {SEED}"


def named(damage: Damage) -> set[str]:
    entry: Entry = COLUMNS[damage.table][damage.column]
    return set() if isinstance(entry, str) else {*entry}
