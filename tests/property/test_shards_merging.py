"""Rows of several databases, put together, are the rows that one database with everything would give."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from queen.core.administration import (
    ConnectedRow,
    CursorOrder,
    CursorRow,
    ErrorRow,
    GroupOrder,
    GroupRow,
    Page,
    PartitionOrder,
    PartitionRow,
    QueueMetricsRow,
    QueueOrder,
    QueueRow,
    WorkerLevelsRow,
)
from queen.core.statistics import ClockState, LogStatistics, QueueStatistics
from queen.shards.merging import as_one, combined, in_order, mean_by, total
from queen.shards.reads.catalogue import (
    labels_of,
    number_of_matches,
    queues_of_all,
    sorted_partitions,
    sorted_queues,
    summary_of,
)
from queen.shards.reads.groups import connected_of_all, groups_of_all, sorted_cursors, sorted_groups
from queen.shards.reads.messages import commonest, errors_of_all, respanned
from queen.shards.reads.pages import within
from queen.shards.reads.statistics import (
    LEVELS,
    busiest_first,
    clock_of_all,
    log_of_all,
    names_in_turn,
)
from queen.spool.state import SpoolState, together

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DATABASES = 3
numbers = st.integers(0, 3)
places = st.integers(0, DATABASES - 1)
times = st.integers(0, 5).map(lambda seconds: NOW + timedelta(seconds=seconds))


def spread(rows: Sequence[Any], where: Sequence[int]) -> list[list[Any]]:
    """Rows on their databases."""
    return [[row for row, place in zip(rows, where, strict=True) if place == number] for number in range(DATABASES)]


def partition(name: str, number: int, at: datetime) -> PartitionRow:
    return PartitionRow(1, "q", name, NOW, number, number, 0, 0, 0, 0, 0, None, at)


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.tuples(numbers, times, places), max_size=12),
    st.sampled_from(list(PartitionOrder)),
    st.booleans(),
    st.integers(1, 4),
    st.integers(0, 4),
)
def test_a_page_of_partitions_is_that_of_one_database(
    made: dict[str, tuple[int, datetime, int]], order: PartitionOrder, reverse: bool, limit: int, offset: int
) -> None:
    rows = [partition(name, number, at) for name, (number, at, _) in made.items()]
    page = Page(order, limit, offset, reverse)
    together = sorted_partitions([rows], page, of_one_queue=True)
    # Each database sends the first of its own.
    begin = Page(order, limit + offset, 0, reverse)
    parts = [
        sorted_partitions([part], begin, of_one_queue=True)
        for part in spread(rows, [place for *_, place in made.values()])
    ]
    assert sorted_partitions(parts, page, of_one_queue=True) == together


@given(
    st.lists(st.tuples(st.sampled_from("qrs"), numbers, numbers, times, places), max_size=12),
    st.sampled_from(list(QueueOrder)),
    st.booleans(),
)
def test_queues_are_added_up_before_they_are_sorted(
    figures: list[tuple[str, int, int, datetime, int]], order: QueueOrder, reverse: bool
) -> None:
    rows = [
        QueueRow(number, name, "", "", at, 1, number, pending, 0, 0, 0, 0, pending, at, at)
        for name, number, pending, at, _ in figures
    ]
    parts = spread(rows, [place for *_, place in figures])
    found = sorted_queues(queues_of_all(queues_of_all([part]) for part in parts), Page(order, 10, 0, reverse))
    assert [row.name for row in found] == [
        row.name for row in sorted_queues(queues_of_all([rows]), Page(order, 10, 0, reverse))
    ]
    for row in found:
        own = [each for each in rows if each.name == row.name]
        assert (row.total, row.pending, row.partitions) == (
            sum(each.total or 0 for each in own), sum(each.pending or 0 for each in own), len(own),
        )  # fmt: skip
        assert row.created_at == min(each.created_at for each in own)


def test_a_queue_that_one_database_has_not_counted_has_no_time_of_its_statistics() -> None:
    known = QueueRow(1, "q", "", "", NOW, 1, 1, 1, 0, 0, 0, 0, 0, None, NOW)
    unknown = QueueRow(9, "q", "", "", NOW, *[None] * 10)
    [row] = queues_of_all([[known], [unknown]])
    assert (row.queue_id, row.partitions, row.computed_at) == (1, 1, None)


def test_a_summary_counts_a_queue_once() -> None:
    rows = [
        QueueRow(1, "q", "n", "t", NOW, 2, 3, 1, 1, 1, 0, 1, 4, NOW - timedelta(seconds=9.5), NOW),
        QueueRow(2, "r", "n", "", NOW, 1, 1, 0, 0, 1, 0, 0, 0, None, NOW - timedelta(seconds=1)),
    ]
    found = summary_of(rows, NOW)
    assert (found.queues, found.partitions, found.namespaces, found.tasks, found.total) == (2, 3, 1, 1, 4)
    assert (found.age_mean, found.age_median, found.age_min, found.age_max) == (4.5, 4.5, 0.0, 9.0)
    assert found.computed_at == NOW - timedelta(seconds=1)
    assert summary_of([], NOW).lag_max == 0
    assert [(row.label, row.queues, row.total) for row in labels_of(rows, "namespace")] == [("n", 2, 4)]
    assert [row.label for row in labels_of(rows, "task")] == ["t"]


def test_matches_are_added_up_where_they_are_known() -> None:
    row = partition("p", 1, NOW)
    assert number_of_matches([[structs.replace(row, matches=2)], [], [structs.replace(row, matches=3)]]) == 5
    assert number_of_matches([[row], []]) is None


def group(name: str, lag: int | None, at: datetime | None, paused: bool = False) -> GroupRow:
    return GroupRow(1, name, "q", "all", NOW, NOW, 1, 1, lag, 0, 0, 0, True, at, NOW, paused)


@given(st.lists(st.tuples(st.sampled_from("gh"), numbers, times, places), max_size=10), st.booleans())
def test_groups_are_added_up_before_they_are_sorted(made: list[tuple[str, int, datetime, int]], reverse: bool) -> None:
    rows = [group(name, lag, at) for name, lag, at, _ in made]
    parts = spread(rows, [place for *_, place in made])
    for order in GroupOrder:
        page = Page(order, 5, 0, reverse)
        found = sorted_groups(groups_of_all(groups_of_all([part]) for part in parts), page)
        assert [(row.name, row.total_lag, row.oldest_at) for row in found] == [
            (row.name, row.total_lag, row.oldest_at) for row in sorted_groups(groups_of_all([rows]), page)
        ]


def test_a_group_without_undone_messages_is_the_youngest() -> None:
    rows = [group("none", 0, None), group("new", 1, NOW), group("old", 1, NOW - timedelta(days=1), paused=True)]
    assert [row.name for row in sorted_groups(rows, Page(GroupOrder.AGE, 5))] == ["old", "new", "none"]
    [row] = groups_of_all([[rows[0]], [structs.replace(rows[2], name="none")]])
    assert (row.paused, row.oldest_at) == (True, NOW - timedelta(days=1))


def test_totals_of_cursors_are_added_up_unless_one_is_unknown() -> None:
    row = CursorRow("q", "p", 1, 1, None, None, None, 2)
    other = structs.replace(row, partition="r", total=3)
    page = Page(CursorOrder.NAME, 5)
    assert [each.total for each in sorted_cursors([[row], [other]], page, of_one_queue=True)] == [5, 5]
    unknown = structs.replace(other, total=None)
    assert [each.total for each in sorted_cursors([[row], [unknown]], page, of_one_queue=True)] == [None, None]


def test_a_consumer_that_waits_on_all_databases_is_one() -> None:
    row = ConnectedRow("longPoll", "host:1", NOW, None, None, None, "w", 1)
    other = structs.replace(row, address="host:2", since=NOW - timedelta(seconds=1))
    found = connected_of_all([[row, other], [structs.replace(row, since=NOW + timedelta(seconds=1))], [other]])
    assert [(each.address, each.total) for each in found] == [("host:2", 2), ("host:1", 2)]
    assert found[1].since == NOW


@given(st.lists(st.tuples(st.sampled_from("ef"), st.lists(numbers, min_size=4, max_size=4), times), max_size=6))
def test_no_dead_letter_is_lost_between_spans_of_time(made: list[tuple[str, list[int], datetime]]) -> None:
    rows = [ErrorRow(error, sum(counts), at, at, counts, at, at + timedelta(seconds=8)) for error, counts, at in made]
    found = errors_of_all([[row] for row in rows], 5)
    assert {row.error: row.number for row in found} == {
        error: sum(sum(counts) for name, counts, _ in made if name == error) for error, _, _ in made
    }
    assert all(sum(row.counts) == row.number for row in found)


def test_a_span_of_time_counts_where_its_middle_is() -> None:
    row = ErrorRow("e", 3, NOW, NOW, [1, 2], NOW, NOW + timedelta(seconds=2))
    assert respanned(row, NOW, NOW + timedelta(seconds=2)).counts == [1, 2]
    assert respanned(row, NOW - timedelta(seconds=2), NOW + timedelta(seconds=2)).counts == [0, 3]


def test_common_errors_are_added_up() -> None:
    assert commonest([[("a", 1), ("b", 3)], [("a", 3)], []]) == [("a", 4), ("b", 3)]


def test_rows_end_where_an_answer_would_be_too_large() -> None:
    row = partition("p", 1, NOW)
    assert len(within([row] * 3, lambda _row: 4, 9)) == 2
    assert len(within([row], lambda _row: 10, 9)) == 1


def work(queue: str, messages: int, parked: int) -> QueueMetricsRow:
    return QueueMetricsRow(NOW, queue, None, 1, messages, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, float(messages), parked)


def test_the_busiest_queue_is_the_one_with_the_most_messages_on_all_databases() -> None:
    rows = combined([[work("a", 3, 0), work("b", 2, 0)], [work("b", 2, 0)]], ["queue"], {"push_messages": total})
    assert busiest_first(rows) == ["b", "a"]


def test_a_mean_counts_by_its_weight() -> None:
    rows = [work("a", 1, 0), work("a", 3, 0)]
    assert mean_by("push_messages")(rows, "lag_ms_max") == pytest.approx(2.5)
    assert mean_by("pop_messages")(rows, "lag_ms_max") == 0.0


def test_a_worker_has_one_cpu_and_connections_to_each_database() -> None:
    row = WorkerLevelsRow(NOW, "h", 1, 80, 5, [*[10.0] * 9], [1.0] * 9, [20.0] * 9, [5.0] * 9)
    found = as_one([row, row], LEVELS)
    assert found.averages == [10, 10, 10, 10, 20, 20, 20, 20, 10]


def test_the_last_step_of_a_clock_is_that_of_any_database() -> None:
    first = ClockState(1, 2.0, NOW, 0.0, False)
    second = ClockState(2, -9.0, NOW + timedelta(seconds=1), 5.0, True)
    assert clock_of_all([first, second]) == ClockState(3, -9.0, NOW + timedelta(seconds=1), 5.0, True)
    assert clock_of_all([ClockState(), ClockState()]) == ClockState()


def test_statistics_count_a_queue_once() -> None:
    queue = QueueStatistics("q", 1, 2, 3, 4, 5)
    part = LogStatistics(1, 0, 7.0, None, [queue], [])
    found = log_of_all([part, part], 10, 10)
    assert (found.queues, found.oldest_s, found.statistics_age_s) == (1, 7.0, None)
    assert found.of_queues == [QueueStatistics("q", 2, 4, 6, 8, 10)]


def test_names_come_in_turn() -> None:
    assert names_in_turn([["a", "b", "c"], ["b"], ["d"]]) == ["a", "b", "d", "c"]


def test_rows_keep_their_order_among_equals() -> None:
    rows = [partition(name, number, NOW) for name, number in (("a", 1), ("b", 2), ("c", 1))]
    assert [row.name for row in in_order(rows, (lambda row: row.total, True))] == ["b", "a", "c"]


def test_spools_of_several_databases_are_one() -> None:
    spool = SpoolState(False, 1, 2, 3, 4.0, 5.0, 6, 7, 8, 1, 9.0, ["23505"], 1.0)
    found = together([spool, structs.replace(spool, spooling=True, oldest_age_s=1.0, held_codes=["22001"])])
    assert found == SpoolState(True, 2, 4, 6, 4.0, 10.0, 12, 14, 16, 2, 9.0, ["22001", "23505"], 1.0)
