"""The windows of the live audit: what they find in what comes, in any order, and how much they remember."""

import random

import msgspec
import pytest

from spark_validation.journal.schema import AckItem, Call, Delivery, PushItem
from spark_validation.live import windows
from spark_validation.live.calls import said
from spark_validation.live.windows import CallWindow, LogWindow, Place, Said, Segment, Stored
from tests.audit.faults import ordinary

PLACE = Place("q", "p", "g")
MS = 1_000


def segments(count: int, size: int = 3) -> list[Segment]:
    return [
        Segment(1, size * n, size * n + size - 1, 1000 + n, 0, 0, [0, *range(size * n + 1, size * n + size)])
        for n in range(count)
    ]


def in_batches(rows, rng):
    """The rows cut into micro-batches at random places."""
    rows = list(rows)
    while rows:
        size = rng.randint(1, len(rows))
        yield rows[:size]
        del rows[:size]


def of_log(rows, seed=0):
    window, rng = LogWindow(), random.Random(seed)
    return [finding for batch in in_batches(rows, rng) for finding in window.add(PLACE, batch)]


def of_calls(rows, clock_bound=0, seed=0):
    window, rng = CallWindow(), random.Random(seed)
    return [finding for batch in in_batches(rows, rng) for finding in window.add(PLACE, batch, clock_bound)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("place", [1, 20, 39])
def test_each_fault_of_a_log_is_found_once(place, seed):
    rows = segments(40)
    assert of_log(rows, seed) == []
    [gap] = of_log(rows[:place] + rows[place + 1 :] + [segments(41)[40]], seed)
    assert (gap.guarantee, gap.offset) == ("G-ORD-2", 3 * place + 3)
    back = msgspec.structs.replace(rows[place], created_at=1)
    assert [(each.guarantee, each.offset) for each in of_log([*rows[:place], back, *rows[place + 1 :]], seed)] == [
        ("G-ORD-5", 3 * place)
    ]
    again = msgspec.structs.replace(rows[place], ids=[0, 1, 77_777])
    assert [(each.guarantee, each.offset) for each in of_log([*rows[:place], again, *rows[place + 1 :]], seed)] == [
        ("G-IDEM-1", 3 * place + 1)
    ]


def test_what_was_answered_as_stored_is_in_the_log():
    """In whatever batch its segment and its call come; beyond what is remembered, or read, nothing is said."""
    rows = segments(40)
    every = [Stored(1, each.first + n, id_, 120) for each in rows for n, id_ in enumerate(each.ids) if id_]
    for seed in range(5):
        rng, window = random.Random(seed), LogWindow()
        found = []
        for batch in in_batches(rows, rng):
            upto = batch[-1].last
            calls = [each for each in every if each.offset <= upto and rng.random() < 0.7]
            rng.shuffle(calls)
            found += window.add(PLACE, batch, calls)
        assert found == []
        assert list(window.add(PLACE, [], every)) == []
        wrong = [Stored(1, 31, 999_999, 120), Stored(1, 120, 7, 120), Stored(0, 31, 999_999, 120)]
        assert [each.offset for each in window.add(PLACE, [], wrong)] == [31, 120]


def test_a_duplicate_names_a_message_that_is_in_the_log():
    window, rows = LogWindow(), segments(4)
    right = Said("a", 0, 0, 1, [], [], [], [], 1, 12, [("x", 4)])
    [named] = right.stored()
    assert list(window.add(PLACE, rows, [msgspec.structs.replace(named, id=5)])) == []
    assert [(each.guarantee, each.offset) for each in window.add(PLACE, [], [named])] == [("G-IDEM-2", 4)]


@pytest.mark.parametrize("seed", range(5))
def test_attempts_rise_in_whatever_order_deliveries_arrive(seed):
    """Only of one message, and of calls of which one ended before the other began."""

    def tried(number: int, sent: int, attempt: int, offset: int | None = 3) -> Said:
        return Said("a", number, sent, sent + MS, [], [], [], [], tried=[("x", offset, attempt)])

    first = tried(0, 0, 1)
    rng = random.Random(seed)
    for other, violations in (
        (tried(1, 10 * MS, 2), 0),
        (tried(1, 10 * MS, 1), 1),
        (tried(1, MS // 2, 1), 0),
        (tried(1, 10 * MS, 1, offset=9), 0),
        (tried(1, 10 * MS, 1, offset=None), 1),
    ):
        found = of_calls(rng.sample([first, other], 2), seed=seed)
        assert [each.guarantee for each in found] == ["G-LEASE-5"] * violations, other


def test_answers_that_no_request_can_have_are_found_without_others():
    delivery = Delivery("q", "p", "x", 3, 1)
    pop = {"run": "r", "agent": "a", "number": 0, "sent": 0, "answered": 1, "kind": "pop", "queue": "q", "lease": "l"}
    good = Call(**pop, batch=1, deliveries=(delivery,))
    push = msgspec.structs.replace(good, kind="push", deliveries=())
    ack = msgspec.structs.replace(good, kind="ack", deliveries=())
    for call, guarantee in (
        (good, None),
        (Call(**pop, batch=1, deliveries=(delivery, Delivery("q", "p", "y", 4, 1))), "G-POP-1"),
        (Call(**pop, partitions=1, deliveries=(delivery, Delivery("q", "other", "y", 4, 1))), "G-POP-1"),
        (Call(**pop, partition="other", deliveries=(delivery,)), "G-POP-1"),
        (Call(**{**pop, "queue": "other"}, deliveries=(delivery,)), "G-POP-1"),
        (Call(**{**pop, "lease": None}, deliveries=(delivery,)), "G-POP-1"),
        (Call(**pop, auto_ack=True, deliveries=(delivery,)), "G-POP-1"),
        (msgspec.structs.replace(ack, acks=(AckItem("q", "p", "x", outcome="ok"),)), None),
        (msgspec.structs.replace(ack, acks=(AckItem("q", "p", "x", status="failed", outcome="ok", dead=True),)), None),
        (msgspec.structs.replace(ack, acks=(AckItem("q", "p", "x", outcome="ok", dead=True),)), "G-ACK-4"),
        (msgspec.structs.replace(ack, acks=(AckItem("q", "p", "x", outcome="fail", noop=True),)), "G-ACK-4"),
        (msgspec.structs.replace(push, pushes=(PushItem("q", "p", "x", "ok", duplicate=True, offset=3),)), None),
        (msgspec.structs.replace(push, pushes=(PushItem("q", "p", "x", "fail", duplicate=True),)), "G-IDEM-2"),
        (msgspec.structs.replace(push, pushes=(PushItem("q", "p", "x", "fail", spooled=True),)), "G-DUR-4"),
    ):
        found = [each for place, what in said(call) for each in CallWindow().add(place, [what], 0)]
        assert [each.guarantee for each in found] == ([guarantee] if guarantee else []), call


def test_nobody_says_what_a_part_of_the_log_had_that_was_not_read():
    window = LogWindow()
    late = [msgspec.structs.replace(each, since=30) for each in segments(40)[10:]]
    assert list(window.add(PLACE, late, [Stored(1, 29, 999_999, 120)])) == []
    assert [each.offset for each in window.add(PLACE, [], [Stored(1, 30, 999_999, 120)])] == [30]


def test_a_long_batch_forgets_while_it_is_read(monkeypatch):
    monkeypatch.setattr(windows, "MESSAGES", 4)
    window, rows = LogWindow(), segments(40)
    every = [Stored(1, each.first + n, id_, 120) for each in rows for n, id_ in enumerate(each.ids) if id_]
    wrong = [Stored(1, 31, 999_999, 120), Stored(1, 118, 999_999, 120)]
    assert [each.offset for each in window.add(PLACE, rows, [*every, *wrong])] == [31, 118]
    assert list(window.add(PLACE, [], [Stored(1, 31, 999_999, 120)])) == []
    assert len(window.seen) == 4


def test_what_retention_removed_is_no_gap():
    rows = segments(10)
    late = msgspec.structs.replace(rows[7], oldest=rows[7].first)
    assert of_log([*rows[:3], late, *rows[8:]]) == []


def test_transaction_ids_of_what_retention_removed_are_free_again():
    rows = segments(4)
    again = Segment(1, 12, 14, 2000, 0, 6, [0, 1, 10])
    assert [(each.guarantee, each.offset) for each in of_log([*rows, again])] == [("G-IDEM-1", 14)], "10 is still kept"
    beyond = Segment(1, 12, 14, 2000, 0, 12, [0, 1, 10])
    assert of_log([*rows, beyond]) == []


def test_transaction_ids_of_deleted_messages_are_free_again():
    again = Segment(1, 12, 14, 2000, 0, 0, [0, 1, 10], [(0, 1), (10, 12)])
    assert [(each.guarantee, each.offset) for each in of_log([*segments(4), again])] == [("G-IDEM-1", 13)]


def test_a_batch_of_many_segments_takes_time_by_its_length():
    """Not by its square: so many looks at so many ids would not end."""
    looks = 0

    class Counted(dict):
        def items(self):
            nonlocal looks
            for item in super().items():
                looks += 1
                yield item

    window = LogWindow(seen=Counted())
    rows = [Segment(1, 100 * n, 100 * n + 99, n, 0, 0, list(range(100 * n + 1, 100 * n + 101))) for n in range(300)]
    assert list(window.add(PLACE, rows)) == []
    assert looks <= len(rows)


def test_an_id_that_stands_for_another_message_now_may_be_delivered_again():
    """Retention removed the first one; offsets tell the two apart."""

    def said(number: int, given, finished) -> Said:
        return Said("a", number, number * MS, number * MS + 1, [], given, finished, [])

    for again, violations in ((9, 0), (3, 1), (None, 1)):
        rows = [said(0, [("x", 3)], []), said(1, [], [("x", 3)]), said(2, [("x", again)], [])]
        assert len(of_calls(rows)) == violations


@pytest.mark.parametrize("seed", range(5))
def test_a_partition_that_is_created_again_begins_again(seed):
    old = segments(6)
    new = [msgspec.structs.replace(each, part=2, created_at=each.created_at - 500) for each in segments(6)]
    assert of_log([*old, *new], seed) == []
    gap = [*old, *new[:3], *new[4:]]
    assert [(each.guarantee, each.offset) for each in of_log(gap, seed)] == [("G-ORD-2", 12)]


def calls(count: int) -> list[Said]:
    """One after the other: a pop of one message, then its ack."""
    rows = []
    for n in range(count):
        at = 10 * n * MS
        rows.append(Said("a", 2 * n, at, at + MS, [n], [(f"t{n}", n)], [], []))
        rows.append(Said("a", 2 * n + 1, at + 2 * MS, at + 3 * MS, [], [], [(f"t{n}", None)], []))
    return rows


@pytest.mark.parametrize("seed", range(5))
def test_each_fault_of_calls_is_found_once_in_whatever_order_they_arrive(seed):
    rows, rng = calls(20), random.Random(seed)
    late = Said("b", 0, 500 * MS, 501 * MS, [7], [("other", 7)], [], [])
    again = Said("b", 1, 600 * MS, 601 * MS, [], [("t5", 5)], [], [])
    queued = [Said("b", 2 + n, 700 * MS + n, 701 * MS + n, [], [], [], [("u", 100 + n)]) for n in range(2)]
    for faults, guarantee in (([late], "G-ORD-1"), ([again], "G-ACK-2"), (queued, "G-IDEM-1")):
        shuffled = [*rows, *faults]
        rng.shuffle(shuffled)
        assert [each.guarantee for each in of_calls(shuffled, seed=seed)] == [guarantee]
    assert of_calls(rng.sample(rows, len(rows)), seed=seed) == []


@pytest.mark.parametrize("seed", range(5))
def test_calls_of_a_partition_that_is_created_again_are_compared_with_each_other_only(seed):
    rng = random.Random(seed)
    old = [msgspec.structs.replace(call, part=1) for call in calls(10)]
    later = [
        msgspec.structs.replace(call, sent=call.sent + 500 * MS, answered=call.answered + 500 * MS) for call in old
    ]
    new = [msgspec.structs.replace(call, part=2) for call in later]
    assert {each.guarantee for each in of_calls([*old, *later], seed=seed)} == {"G-ORD-1", "G-ACK-2"}
    assert of_calls([*old, *new], seed=seed) == []
    assert of_calls(rng.sample([*old, *new], 40), seed=seed) == []
    [late, _] = calls(1)
    ack = Said("b", 1, 900 * MS, 901 * MS, [], [], [("t12", None)], [])
    pop = Said("a", 1, 990 * MS, 991 * MS, [2], [("t12", 2)], [], [], 9)
    older = Said("b", 0, 800 * MS, 801 * MS, [12], [("t12", 12)], [], [], 5)
    for rows in (
        [msgspec.structs.replace(pop, sent=1, answered=2, given=[]), older, ack, pop],
        [older, ack, pop],
        [ack, pop],
    ):
        window = CallWindow()
        assert [finding for row in rows for finding in window.add(PLACE, [row], 0)] == []
    nowhere = msgspec.structs.replace(late, sent=2_000 * MS, answered=2_001 * MS)
    assert of_calls([*old, *new, nowhere], seed=seed) == [], "it may be of either"
    assert {each.guarantee for each in of_calls([*old, *new, msgspec.structs.replace(nowhere, part=2)], seed=seed)} == {
        "G-ORD-1", "G-ACK-2",
    }  # fmt: skip


def test_beside_a_log_an_id_may_be_queued_again_as_another_message():
    """Its message may have been removed, which the log tells."""

    def queued(number: int, offset: int | None) -> Said:
        return Said("a", number, number * MS, number * MS + 1, [], [], [], [("u", offset)])

    for again, alone, beside in ((7, 1, 0), (3, 1, 1), (None, 1, 0)):
        rows = [queued(0, 3), queued(1, again)]
        assert len(list(CallWindow().add(PLACE, rows, 0))) == alone
        assert len(list(CallWindow().add(PLACE, rows, 0, beside_log=True))) == beside


@pytest.mark.parametrize("seed", range(5))
def test_pushes_in_sequence_keep_their_order(seed):
    """A push that began before the answer to the other may be stored before it."""

    def pushed(number: int, sent: int, *offsets: int) -> Said:
        queued = [(f"{number}.{n}", offset) for n, offset in enumerate(offsets)]
        return Said("a", number, sent, sent + MS, [], [], [], queued)

    first = pushed(0, 0, 10, 11)
    for other, guarantee in (
        (pushed(1, 10 * MS, 12, 13), []),
        (pushed(1, 10 * MS, 8, 9), ["G-ORD-3"]),
        (pushed(1, MS // 2, 8, 9), []),
        (pushed(1, 10 * MS, 13, 12), ["G-ORD-4"]),
    ):
        found = of_calls(random.Random(seed).sample([first, other], 2), seed=seed)
        assert [each.guarantee for each in found] == guarantee, other


def test_disorder_within_an_answer_is_found():
    [found] = of_calls([Said("a", 0, 0, MS, [2, 1], [("x", 2), ("y", 1)], [], [])])
    assert (found.guarantee, found.offset) == ("G-ORD-1", 1)


def test_clocks_that_may_differ_excuse_what_is_close():
    rows = [Said("a", 0, 0, MS, [5], [("x", 5)], [], []), Said("b", 0, 2 * MS, 3 * MS, [4], [("y", 4)], [], [])]
    assert [each.guarantee for each in of_calls(rows)] == ["G-ORD-1"]
    assert of_calls(rows, clock_bound=2 * MS) == []


def test_an_ordinary_run_gives_nothing():
    by_place = {}
    for call in ordinary("q", 1)[1].calls:
        for place, what in said(call):
            by_place.setdefault(place, []).append(what)
    assert any(what.first for rows in by_place.values() for what in rows)
    assert [finding for place, rows in by_place.items() for finding in CallWindow().add(place, rows, 0)] == []


def test_windows_stay_small():
    log, given = LogWindow(), CallWindow()
    assert list(log.add(PLACE, segments(2_000))) == []
    assert list(given.add(PLACE, calls(5_000), 0)) == []
    assert len(log.seen) == windows.MESSAGES
    assert len(given.calls) == windows.CALLS
    assert len(given.done) == len(given.given) == windows.MESSAGES
    tried = [Said("a", n, n, n, [], [], [], [], tried=[(str(n), n, 1)]) for n in range(1_100)]
    assert list(given.add(PLACE, tried, 0)) == []
    assert len(given.tried) == windows.MESSAGES
