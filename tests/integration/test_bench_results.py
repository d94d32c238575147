"""What is computed from runs of load, and the page that shows them, without any load."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pytest

from bench.database import Postgres
from bench.load import page, record, session
from bench.load.results import (
    Latency,
    Level,
    Moment,
    Run,
    Second,
    Used,
    Weight,
    bytes_a_message,
    compare,
    compare_with_earlier,
    drifts,
    median_run,
    rates,
    read,
    stall_seconds,
    used,
)
from bench.load.runner import Plan, shown
from bench.load.target import TargetError
from bench.machine import Machine
from bench.scenario import Results, Sample, Session, Target, percentiles, write
from bench.scenario import read as read_samples


@pytest.fixture
def full_disk() -> Iterator[BinaryIO]:
    with Path("/dev/full").open("wb", buffering=0) as file:
        yield file


MACHINE = Machine(2, "a <processor>", 1 << 30, "Linux", "3.11", {"asyncpg": "1"}, 0.5)


def made(server: str = "queen", number: int = 1, pushed: int = 20, **other: Any) -> Run:
    fields: dict[str, Any] = {
        "scenario": "push-1", "server": server, "version": "1", "number": number, "session": "2026-11-21T10",
        "started_at": "2026-11-21T10:00", "seconds": 2.0, "settings": {"VUS": "5", "PREFIX": "x"}, "pushed": pushed,
        "delivered": 0, "acked": 0, "dropped": 0, "crossed": [], "latency": {"push": Latency(9, 1, 2, 3, 4, 5, 6)},
        "used": Used(pushed, 2.0, {"server": 0.2, "postgres": 0.1, "load": 0.4}), "memory_bytes": 1_000_000,
        "table_bytes": 100.0, "wal_bytes": 200.0, "stall_s": 0.0,
        "timeline": [Second(1, 5, 0, 5, {"server": 0.1}), Second(2, 20, 0, 20, {"server": 0.2})],
        "moments": [Moment(0, "push", 1.0, 2.0), Moment(1, "push", 1.5, 4.0)], "levels": [], "machine": MACHINE,
        "postgres": Postgres("18", True, {"fsync": "on"}), "load": "v1",
    }  # fmt: skip
    return Run(**fields | other)


def test_a_stall_is_the_longest_time_without_progress() -> None:
    timeline = [Second(1, 0, 0, 0), Second(2, 5, 0, 9), Second(3, 5, 0, 9), Second(6, 5, 0, 9), Second(7, 6, 0, 9)]
    assert stall_seconds(timeline) == 4
    assert stall_seconds([]) == 0
    idle_at_both_ends = [Second(1, 0, 0, 0), Second(9, 5, 0, 9), Second(10, 6, 0, 9), Second(20, 6, 0, 9)]
    assert stall_seconds(idle_at_both_ends) == 0


def test_bytes_count_messages_pushed_between_two_samples() -> None:
    looks = [Weight(5_000, 900_000, 7_000), Weight(9_000, 1_000_000, 8_000), Weight(25_000, 2_900_000, 4_007_000)]
    assert bytes_a_message(looks, 26_000) == (100.0, 200.0)
    assert bytes_a_message([*looks, Weight(26_000, 3_000_000, 9_000_000)], 26_000) == (100.0, 200.0), (
        "the queue is deleted"
    )
    assert bytes_a_message(looks[:2], 26_000) == (None, None), "too few messages"
    assert bytes_a_message(looks[:1], 26_000) == bytes_a_message([], 0) == (None, None)
    reused = [Weight(0, 900_000, 0), Weight(20_000, 900_000, 4_000_000)]
    assert bytes_a_message(reused, 30_000) == (None, 200.0), "what came went where something had been deleted"


def test_secret_settings_are_not_shown() -> None:
    settings = {"QUEEN_URL": "http://me:word@host:1/x", "QUEEN_TOKEN": "t", "VUS": "5"}
    assert shown(settings) == {"QUEEN_URL": "http://…@host:1/x", "QUEEN_TOKEN": "…", "VUS": "5"}


async def test_results_that_cannot_be_written_are_told_of_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_disk: BinaryIO
) -> None:
    async def two(*_: object) -> AsyncIterator[Run]:
        yield made(number=1)
        yield made(number=2)

    monkeypatch.setattr(session, "run", two)
    plan, found = Plan([], [], 2, {}, None, "2026-11-21T10:00:00+00:00"), list[Run]()
    with pytest.raises(TargetError, match=r"No space left on device"):
        await session._gather(plan, tmp_path, full_disk, lambda *_: None, found)
    assert [each.number for each in found] == [1]


def test_only_runs_of_one_kind_are_compared_with_earlier_ones() -> None:
    now, then = made(session="b", pushed=40), made(session="a", pushed=20)
    assert compare_with_earlier([now], [then])[0].ratios == [2.0]
    for other in ({"settings": {"VUS": "6"}}, {"workers": 4}, {"scenario": "push-10"}):
        assert compare_with_earlier([now], [made(session="a", **other)]) == []


def test_neighbouring_runs_of_two_servers_are_compared() -> None:
    runs = [made("a", 1, 20), made("b", 1, 10), made("b", 2, 10), made("a", 2, 40), made("a", 3, 1)]
    found = {each.figure: each for each in compare(runs)}
    assert list(found) == [
        "messages/s", "median", "p99", "CPU of the server per message", "CPU of PostgreSQL per message",
        "CPU of both per message",
    ]  # fmt: skip
    rate = found["messages/s"]
    assert (rate.first, rate.second, list(rate.ratios), rate.median) == ("a", "b", [2.0, 4.0], 3.0)
    assert [round(ratio, 3) for ratio in found["CPU of the server per message"].ratios] == [0.5, 0.25]
    assert compare([made("a", 1, 1)]) == []


def test_runs_are_compared_with_the_middle_of_each_earlier_session() -> None:
    earlier = [made(pushed=pushed, session="2026-11-20") for pushed in (10, 40, 20)]
    [rate] = [each for each in compare_with_earlier([made(pushed=30)], earlier) if each.figure == "messages/s"]
    assert (rate.second, list(rate.ratios)) == ("2026-11-20", [1.5])
    assert compare_with_earlier([made(scenario="other")], earlier) == []
    assert median_run(earlier).pushed == 20


def test_preparation_is_no_part_of_what_a_message_takes() -> None:
    timeline = [
        Second(1, 0, 0, 9, {"server": 50.0}, loading=False), Second(2, 0, 5, 9, {"server": 60.0}),
        Second(3, 0, 15, 9, {"server": 61.0}), Second(4, 0, 25, 9, {"server": 62.0}),
        Second(5, 0, 25, 9, {"server": 90.0}),
    ]  # fmt: skip
    assert used(timeline, Used(1, 1, {})) == Used(20, 2, {"server": 2.0})
    whole = Used(7, 7, {"server": 7.0})
    assert used(timeline[:2], whole) == whole
    late = [Second(1, 1000, 0, 9), Second(2, 2000, 0, 9), Second(3, 3000, 100, 9), Second(4, 4000, 400, 9)]
    assert used(late, whole) == Used(400, 2, {}), "what was pushed before is not what was delivered"
    assert rates(timeline) == [("delivered", 3, 10.0), ("delivered", 4, 10.0), ("delivered", 5, 0.0)]


def test_a_run_that_changes_is_seen_by_its_thirds() -> None:
    timeline = [Second(at, pushed, 0, 0) for at, pushed in enumerate((0, 10, 20, 30, 35, 40, 45))]
    moments = [Moment(at, "push", 1, p99) for at, p99 in enumerate((2, 2, 2, 3, 3, 3, 6, 6, 600))]
    levels = [Level(at, (at + 1) * 1_000_000, None) for at in range(3)]
    found = {each.figure: each.ratio for each in drifts(made(timeline=timeline, moments=moments, levels=levels))}
    assert found == {"messages/s": 0.5, "p99 of push, ms": 3.0, "memory, MB": 3.0}
    assert drifts(made(timeline=[], moments=[])) == []


def test_what_the_dashboard_records_is_latency_by_second(tmp_path: Path) -> None:
    names = ["http_req_duration{op:push}", "http_reqs", "time"]
    lines = [
        {"event": "param", "data": {"aggregates": {"trend": ["avg", "max", "med", "min", "p(90)", "p(95)", "p(99)"]}}},
        {"event": "metric", "data": {name: {"type": "trend"} for name in reversed(names)}},
        {"event": "snapshot", "data": [[1, 9, 2, 1, 3, 4, 5], [7, 7], [5000]]},
        {"event": "cumulative", "data": [[1, 9, 8, 1, 3, 4, 8], [7, 7], [5000]]},
        {"event": "snapshot", "data": [[0, 0, 0, 0, 0, 0, 0], [0, 0], [6000]]},
        {"event": "snapshot", "data": [[1, 9, 3, 1, 3, 4, 6], [7, 7], [7000]]},
    ]
    path = tmp_path / "periods.ndjson"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines) + b'{"event":"snaps')
    found = list(record.moments(path, {names[0]: "push", "http_req_duration{op:ack}": "ack"}))
    assert found == [Moment(0, "push", 2, 5), Moment(2, "push", 3, 6)]
    assert list(record.moments(tmp_path / "none", {names[0]: "push"})) == []


def test_results_of_another_version_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_bytes(b'{"scenario": "old"}\n' + msgspec.json.encode(made()) + b"\n" + b"{cut")
    assert [each.scenario for each in read(file)] == ["push-1"]


def test_an_interrupted_session_does_not_affect_the_next(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    for before in (b"", msgspec.json.encode(made(number=1)) + b"\n"):
        file.write_bytes(before + msgspec.json.encode(made(number=2))[:50])
        assert len(read(file)) == bool(before)
        with session._results(tmp_path) as results:
            results.write(msgspec.json.encode(made(number=3)) + b"\n")
        assert [run.number for run in read(file)] == ([1, 3] if before else [3])
        with session._results(tmp_path) as results:
            results.write(msgspec.json.encode(made(number=4)) + b"\n")
        assert [run.number for run in read(file)][-2:] == [3, 4]
        assert file.read_bytes().count(b"\n\n") == 0


def test_a_failed_run_counts_in_the_median(tmp_path: Path) -> None:
    runs = [made(number=number, pushed=pushed) for number, pushed in enumerate((0, 0, 10_000))]
    assert "5,000" not in page.as_html(runs, [], tmp_path, [])


def test_the_page_has_the_last_three_sessions_that_compare_and_all_that_were_named(tmp_path: Path) -> None:
    def beside(*named: Run) -> list[str]:
        others = [made(session=f"2026-11-2{n}", scenario="push-10") for n in range(5, 9)]
        earlier = [made(session=f"2026-11-1{n}") for n in range(1, 5)]
        html = page.as_html([made()], [*earlier, *others], tmp_path, named)
        return re.findall("<h2>Beside (.*?)</h2>", html)

    last = ["2026-11-14", "2026-11-13", "2026-11-12"]
    assert beside() == last
    assert beside(made(session="2025-01-01"), made(session="2026-12-01", scenario="push-10")) == [*last, "2025-01-01"]
    assert beside(made(session="2026-11-11")) == [*last, "2026-11-11"], "it lies in the folder, too"


def test_the_page_is_one_file_with_every_plot_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / made().folder
    folder.mkdir(parents=True)
    (folder / "profile-7.svg").write_text("<svg/>")
    levels = [Level(0, 1_000_000, 5_000_000), Level(60, 2_000_000, 5_000_000)]
    runs = [made(seconds=90.0, levels=levels, profiles=["profile-7.svg"]), made("other", crossed=["checks: rate==1"])]
    html = page.as_html(runs, [made(session="2026-11-20", pushed=10)], tmp_path)
    for title in (
        "Latency by percentile", "Throughput", "Latency: push", "CPU per message", "CPU, queen",
        "Memory of the server", "Tables with indexes", "queen beside other", "Beside 2026-11-20",
        "Flame graph: run 1, queen, profile-7",
    ):  # fmt: skip
        assert title in html
    assert "Threshold crossed: push-1 (other): checks: rate==1" in html
    assert "a &lt;processor&gt;" in html
    assert "http" not in html.replace("http_", "")
    assert "<script" not in html
    assert html.count("<svg") == html.count("</svg>")


# ---------------------------------------------------------------- other scenarios than those of load

SESSION = Session("made-up", "2026-11-21T10:00", {}, MACHINE, None)


def sampled(*rates: tuple[str, int, float]) -> Results:
    """Rates by side and run."""
    return Results(SESSION, [Sample("push of 1", side, run, {"messages/s": rate}) for side, run, rate in rates])


def test_sides_are_compared_run_by_run_and_judged_by_the_middle() -> None:
    found = sampled(("a", 0, 50), ("b", 0, 100), ("b", 1, 10), ("a", 1, 9), ("a", 2, 4), ("b", 2, 4), ("a", 3, 7))
    assert found.values("push of 1", "messages/s", "a") == [50, 9, 4, 7]
    assert found.values("push of 1", "messages/s", "a / b") == [0.5, 0.9, 1.0], "the last run has no neighbour"
    for wanted, met in ((">= 0.9", True), (">= 0.91", False), ("<= 0.9", True), ("< 0.9", False), ("= 0.9", True)):
        target = Target("push*", "messages/s", "a / b", wanted)
        assert list(found.verdicts([target])) == [("push of 1", target, 0.9, met)]
    assert list(found.verdicts([Target("pop*", "messages/s", "a", "< 1"), Target("*", "ms", "a", "< 1")])) == []


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentiles([]) == {}
    assert percentiles([3, 1, 2]) == {"median ms": 2, "p95 ms": 2, "p99 ms": 2, "longest ms": 3}
    assert percentiles(range(1, 102))["p99 ms"] == 100


def test_the_last_session_of_a_scenario_is_read(tmp_path: Path) -> None:
    first, second = sampled(("a", 0, 1)), sampled(("a", 0, 2))
    other = Results(msgspec.structs.replace(SESSION, scenario="other"), first.samples)
    file = tmp_path / "samples.jsonl"
    text = b""
    for each in (first, second, other):
        write(file, each)
        text += file.read_bytes()
    file.write_bytes(text)
    assert read_samples(file, "made-up") == second
    with pytest.raises(ValueError, match="has no results of `queen bench third`"):
        read_samples(file, "third")
