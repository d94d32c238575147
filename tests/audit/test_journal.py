"""Journals: there and back, and what is said of files that cannot be read."""

import math
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_validation.errors import JournalError
from spark_validation.journal.files import files_of, open_journal, read_lines, write_lines, write_parquet
from spark_validation.journal.history import from_history, to_history
from spark_validation.journal.schema import VERSION, AckItem, Call, Delivery, PushItem
from tests.audit.faults import ordinary


@pytest.fixture(scope="module")
def calls():
    return ordinary("q", 1)[1].calls


def test_lines_come_back_as_they_were(tmp_path, calls):
    write_lines(tmp_path / "a.jsonl", calls)
    assert list(read_lines(tmp_path / "a.jsonl")) == calls


def test_a_history_keeps_everything_that_a_journal_tells_of_calls(calls):
    calls = [call for call in calls if call.kind != "sql"]  # of which histories tell nothing
    again = list(from_history(to_history(calls), "r", "q"))
    assert [call.kind for call in again] == [call.kind for call in calls]
    assert to_history(again).records[5:] == to_history(again).records[5:]
    for one, other in zip(calls, again, strict=True):
        assert (one.sent, one.answered, one.outcome) == (other.sent, other.answered, other.outcome) or one.kind in (
            "configured",
            "end",
        )
        assert [item.transaction_id for item in one.deliveries] == [item.transaction_id for item in other.deliveries]
        assert [replace(item, offset=None, message_id=None) for item in one.acks] == list(other.acks)


def test_lines_and_parquet_are_one_journal(tmp_path, calls):
    folder, work = tmp_path / "journal", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    write_lines(folder / "a.jsonl", calls[:50])
    write_parquet(folder / "b.parquet", calls[50:])
    journal = open_journal(folder, work)
    rows = [row for path in journal.parquet for row in pq.read_table(path).to_pylist()]
    assert sorted(row["number"] for row in rows) == [call.number for call in calls]
    assert journal.torn == ()


def test_a_killed_agent_leaves_half_a_line(tmp_path, calls):
    path = tmp_path / "a.jsonl"
    write_lines(path, calls)
    whole = path.read_bytes()
    rng = random.Random(1)
    for size in [len(whole) - 2, *(rng.randrange(1, len(whole)) for _ in range(20))]:
        path.write_bytes(whole[:size])
        read = list(read_lines(path))
        assert read == calls[: len(read)]
        assert len(read) in (whole[:size].count(b"\n"), whole[:size].count(b"\n") + 1)


def test_a_last_line_without_its_line_break_may_be_a_whole_row(tmp_path, calls):
    path, work = tmp_path / "a.jsonl", tmp_path / "work"
    work.mkdir()
    write_lines(path, calls)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert open_journal(tmp_path, work).torn == ()
    path.write_bytes(path.read_bytes()[:-1])
    assert open_journal(tmp_path, work).torn == (path,)


def test_a_bad_line_is_named(tmp_path, calls):
    path = tmp_path / "a.jsonl"
    write_lines(path, calls[:3])
    path.write_bytes(path.read_bytes().replace(b'"number":1,', b'"number":"x",'))
    with pytest.raises(
        JournalError, match=r"a\.jsonl, line 2: Expected `int`, got `str` - at `\$\.number`.*Remove the line"
    ):
        list(read_lines(path))


def test_a_folder_without_journals_is_refused(tmp_path):
    with pytest.raises(JournalError, match="no journal here"):
        open_journal(tmp_path, tmp_path)


def test_half_a_parquet_file_is_refused(tmp_path, calls):
    path = tmp_path / "a.parquet"
    write_parquet(path, calls)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(JournalError, match=r"a\.parquet is incomplete: .*rename it to a\.parquet\.lost"):
        open_journal(tmp_path, tmp_path)


def agents(folder: Path, work: Path) -> dict[str, list[tuple[int, str]]]:
    """By agent: number and kind of what is read of a folder."""
    work.mkdir()
    found: dict[str, list[tuple[int, str]]] = {}
    for path in open_journal(folder, work).parquet:
        for row in pq.read_table(path).to_pylist():
            found.setdefault(row["agent"], []).append((row["number"], row["kind"]))
    return found


def test_what_was_set_aside_or_has_no_rows_counts_as_cut_short_from_the_beginning(tmp_path, calls):
    """Its only row is the second one."""
    folder = tmp_path / "journal"
    (folder / "deep").mkdir(parents=True)
    write_lines(folder / "a.jsonl", calls)
    write_parquet(folder / "b.parquet", [])
    (folder / "c.jsonl").touch()
    (folder / "d.jsonl").write_bytes(b'{"run":')
    (folder / "e.half").write_bytes(b"PAR1")
    (folder / "deep" / "f.parquet.lost").write_bytes(b"PAR1")
    (folder / "periods.ndjson").write_text('{"metrics": 1}\n')
    found = agents(folder, tmp_path / "work")
    assert len(found.pop("q")) == len(calls)
    lost = ("b.parquet", "c.jsonl", "d.jsonl", "e.half", "deep/f.parquet.lost")
    assert found == {name: [(1, "end")] for name in lost}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.jsonl.gz", "would be ignored.*Unpack or rename"),
        ("a.JSONL", "would be ignored"),
        ("a.ndjson", "has rows of a journal.*rename it to"),
        ("_a.parquet", "cannot be read by Spark: rename it"),
        (".a.parquet", "cannot be read by Spark"),
        ("a[1].parquet", "cannot be read by Spark"),
        ("a{1}.parquet", "cannot be read by Spark"),
        ("a:1.parquet", "cannot be read by Spark"),
    ],
)
def test_a_journal_that_would_be_passed_over_is_refused(tmp_path, calls, name, said):
    write = write_parquet if name.endswith(".parquet") else write_lines
    write(tmp_path / name, calls)
    with pytest.raises(JournalError, match=said):
        open_journal(tmp_path, tmp_path)


def test_rows_of_an_unknown_kind_or_outcome_are_refused(tmp_path, calls):
    path, place = tmp_path / "a.parquet", next(n for n, call in enumerate(calls) if call.acks)
    item = replace(calls[place].acks[0], outcome="perhaps")
    for change, said in (
        ({"kind": "pushed"}, "'pushed' is not a valid kind. Valid are push, pop"),
        ({"outcome": "OK"}, "'OK' is not a valid outcome"),
        ({"acks": (item,)}, "'perhaps' is not a valid outcome"),
    ):
        write_parquet(path, [*calls[:place], replace(calls[place], **change)])
        with pytest.raises(JournalError, match=said):
            open_journal(tmp_path, tmp_path)


def test_values_that_are_none_are_refused(tmp_path, calls):
    path = tmp_path / "a.parquet"
    write_parquet(path, calls)
    table = pq.read_table(path)
    rows = table.to_pylist()
    deliveries = next(row for row in rows if row["deliveries"])["deliveries"]
    acks = next(row for row in rows if row["acks"])["acks"]
    for change, said in (
        ({"agent": None}, r"agent is null in a row"),
        ({"auto_ack": None}, r"auto_ack is null in a row"),
        ({"acks": [acks[0] | {"dead": None}]}, r"acks\.dead is null in a row"),
        ({"deliveries": [*deliveries, deliveries[0] | {"partition": None}]}, r"deliveries\.partition is null in a row"),
        ({"deliveries": [None]}, r"deliveries\.\w+ is null in a row"),
        ({"sent": -1}, r"-1 is not a valid sent"),
        (
            {"answered": 1_900_000_000_000_000_000},
            r"1900000000000000000 is not a valid answered.*times are in microseconds",
        ),
        ({"deliveries": [deliveries[0] | {"offset": -5}]}, r"-5 is not a valid deliveries\.offset"),
        ({"lease_seconds": math.nan}, r"nan is not a valid lease_seconds"),
        ({"lease_seconds": -1.0}, r"-1\.0 is not a valid lease_seconds"),
    ):
        changed = [*rows[:-1], rows[-1] | change]
        pq.write_table(pa.Table.from_pylist(changed, table.schema), path)
        with pytest.raises(JournalError, match=said):
            open_journal(tmp_path, tmp_path)
    pq.write_table(pa.Table.from_pylist([row | {"pushes": row["pushes"] or None} for row in rows], table.schema), path)
    assert open_journal(tmp_path, tmp_path).parquet == (path,), "no list is an empty one"


@pytest.mark.parametrize("sent", ["-1", "1900000000000000000", "99999999999999999999999", "1.5"])
def test_an_invalid_time_is_reported_with_its_line(tmp_path, sent):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"run":"r","agent":"a","number":0,"kind":"end","sent":{sent}}}\n')
    with pytest.raises(JournalError, match=r"a\.jsonl, line 1: Expected `int`.*`\$\.sent`"):
        list(read_lines(path))


def test_columns_of_others_may_hold_anything(tmp_path, calls):
    path = tmp_path / "a.parquet"
    write_parquet(path, calls)
    table = pq.read_table(path)
    for name, values in (("n", [-5]), ("many", [[-1]]), ("deep", [[[1]]]), ("notes", [[{"kind": 1, "outcome": "x"}]])):
        table = table.append_column(name, pa.array(values * len(table)))
    pq.write_table(table, path)
    assert open_journal(tmp_path, tmp_path).parquet == (path,)


def test_a_damaged_page_is_told_with_its_file(tmp_path, calls):
    path = tmp_path / "a.parquet"
    write_parquet(path, calls)
    data = bytearray(path.read_bytes())
    data[4:400] = bytes(396)
    path.write_bytes(data)
    with pytest.raises(JournalError, match=r"a\.parquet cannot be read: .*a\.parquet\.lost"):
        open_journal(tmp_path, tmp_path)


def test_a_folder_whose_name_is_no_text_is_read(tmp_path, calls):
    folder = tmp_path / os.fsdecode(b"r\xe9sultats")
    folder.mkdir()
    write_lines(folder / "a.jsonl", calls)
    (folder / os.fsdecode(b"b\xe9.lost")).touch()
    assert set(agents(folder, tmp_path / "work")) == {"q", "b\N{REPLACEMENT CHARACTER}.lost"}
    write_parquet(tmp_path / "b.parquet", calls)
    (tmp_path / "b.parquet").rename(folder / "b.parquet")
    with pytest.raises(JournalError, match=r"b\.parquet cannot be read by Spark: rename it .* not UTF-8"):
        open_journal(folder, tmp_path)


def test_what_cannot_be_seen_is_refused_and_folders_behind_links_are_read(tmp_path, calls, monkeypatch):
    folder, elsewhere = tmp_path / "journal", tmp_path / "elsewhere"
    for each in (folder / "host1", elsewhere):
        each.mkdir(parents=True)
    write_lines(folder / "host1" / "a.jsonl", calls)
    write_lines(elsewhere / "b.jsonl", calls)
    (folder / "host2").symlink_to(elsewhere)
    (elsewhere / "round").symlink_to(folder)
    (elsewhere / "again").symlink_to(elsewhere)
    assert [path.name for path in files_of(folder)] == ["a.jsonl", "b.jsonl"]
    (folder / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    with pytest.raises(JournalError, match=r"gone.jsonl is a link to .*nowhere, which does not exist"):
        files_of(folder)
    (folder / "gone.jsonl").unlink()

    def scan(path, really=os.scandir):
        if str(path).endswith("host1"):
            raise PermissionError(13, "Permission denied", str(path))
        return really(path)

    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(JournalError, match="host1 cannot be listed: Permission denied"):
        files_of(folder)


def test_large_requests_are_written_few_at_once(tmp_path):
    items = tuple(PushItem("q", "p", str(number), "ok") for number in range(30_000))
    calls = [Call(run="r", agent="a", number=n, kind="push", sent=n, answered=n, pushes=items) for n in range(15)]
    write_parquet(tmp_path / "a.parquet", calls)
    with pq.ParquetFile(tmp_path / "a.parquet") as file:
        assert [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)] == [6, 6, 3]
        assert file.read(["number"])["number"].to_pylist() == list(range(15))


def test_words_are_looked_at_in_a_journal_of_many_row_groups(tmp_path, calls):
    """A batch of rows that are in several of them, as of every journal of more than 50,000 calls."""
    path, place = tmp_path / "a.parquet", next(n for n, call in reversed(list(enumerate(calls))) if call.acks)
    wrong = replace(calls[place], acks=(replace(calls[place].acks[0], outcome="perhaps"),))
    for written, said in ((calls, None), ([*calls[:place], wrong], "'perhaps' is not a valid outcome")):
        write_parquet(path, written)
        pq.write_table(pq.read_table(path), path, row_group_size=5)
        if said is None:
            assert open_journal(tmp_path, tmp_path).parquet == (path,)
        else:
            with pytest.raises(JournalError, match=said):
                open_journal(tmp_path, tmp_path)


def test_another_schema_is_refused_by_column(tmp_path, calls):
    path = tmp_path / "a.parquet"
    write_parquet(path, calls)
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, "run", pa.array([1] * len(table))).drop_columns(["sent"]), path)
    with pytest.raises(JournalError, match=r"run is int64 instead of string; sent is missing instead of int64"):
        open_journal(tmp_path, tmp_path)


def test_another_version_is_refused(tmp_path, calls):
    newer = [replace(call, version=VERSION + 1) for call in calls]
    for statistics in (True, False):
        write_parquet(tmp_path / "a.parquet", newer)
        pq.write_table(pq.read_table(tmp_path / "a.parquet"), tmp_path / "a.parquet", write_statistics=statistics)
        with pytest.raises(JournalError, match=rf"schema version \[{VERSION + 1}\]"):
            open_journal(tmp_path, tmp_path)
    write_lines(tmp_path / "a.jsonl", newer)
    with pytest.raises(JournalError, match=rf"schema version \[{VERSION + 1}\]"):
        list(read_lines(tmp_path / "a.jsonl"))


texts = st.text(max_size=5)
counts = st.none() | st.integers(0, 2**53)
outcomes = st.sampled_from(["ok", "fail", "unknown"])
rows = st.builds(
    Call,
    kind=st.sampled_from(["push", "pop", "ack", "transaction"]),
    run=texts,
    agent=texts,
    number=st.integers(0, 9),
    sent=st.integers(0, 2**53),
    answered=counts,
    outcome=outcomes,
    lease_seconds=st.none() | st.floats(0, 1e6),
    pushes=st.lists(
        st.builds(PushItem, texts, texts, st.none() | texts, outcomes, offset=counts, payload_hash=counts), max_size=2
    ).map(tuple),
    deliveries=st.lists(st.builds(Delivery, texts, texts, texts, offset=counts, attempt=counts), max_size=2).map(tuple),
    acks=st.lists(st.builds(AckItem, texts, texts, texts, lease=st.none() | texts, outcome=outcomes), max_size=2).map(
        tuple
    ),
)


@given(st.lists(rows, max_size=4))
@settings(max_examples=50, deadline=None)
def test_any_rows_come_back_from_both_formats(tmp_path_factory, calls):
    folder: Path = tmp_path_factory.mktemp("journal")
    write_lines(folder / "a.jsonl", calls)
    assert list(read_lines(folder / "a.jsonl")) == calls
    write_parquet(folder / "a.parquet", calls)
    read = pq.read_table(folder / "a.parquet").to_pylist()
    assert [row["pushes"] for row in read] == [
        [{field: getattr(item, field) for field in PushItem.__struct_fields__} for item in call.pushes]
        for call in calls
    ]
