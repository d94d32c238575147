"""The checkers: each finds exactly what was planted, and nothing in histories that are as they should be."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bench import histories
from spec.checkers import (
    NotObservableError,
    Result,
    Violation,
    ack,
    all_checkers,
    dead_letter,
    duplicate,
    judge,
    lease,
    loss,
    merge,
    order,
    transaction,
)
from spec.checkers.spans import greatest_before
from spec.history import (
    NEVER,
    QUEUE_MODE,
    Ack,
    AckItem,
    Configured,
    Delivery,
    Drained,
    History,
    Pop,
    Push,
    PushItem,
    Renewal,
    Transaction,
    from_lines,
    to_line,
)
from tests.support.simulation import Simulation, records

SECOND = 1_000_000_000
LIMIT = 2
LONG = histories.history(20_000)


class Story:
    """Builds a history call by call; each takes one millisecond of a clock that only moves between calls."""

    def __init__(self):
        self.records = [Configured(queue="q", retry_limit=LIMIT)]
        self.now = SECOND
        self.leases = 0

    def times(self, outcome="ok"):
        began, self.now = self.now, self.now + 1_000_000
        completed, self.now = self.now, self.now + 1_000_000
        return {"invoked": began, "completed": None if outcome == "unknown" else completed, "outcome": outcome}

    def add(self, record):
        self.records.append(record)
        return record

    def push(self, *ids, outcome="ok", partition="p", queue="q", duplicate=False, **item):
        items = tuple(
            PushItem(
                queue,
                partition,
                id_,
                {"id": id_},
                outcome,
                duplicate,
                item.get("message_id", f"m-{id_}"),
                item.get("spooled", False),
            )
            for id_ in ids
        )
        return self.add(Push(**self.times(outcome), items=items))

    def pop(self, *messages, outcome="ok", group=QUEUE_MODE, auto_ack=False, lease_seconds=10, queue="q", **more):
        """Deliver ("id", offset) or ("id", offset, attempt)."""
        self.leases += 1
        lease_id = "" if auto_ack or not messages else f"lease-{self.leases}"
        deliveries = tuple(self.delivery(lease_id, queue, *message) for message in messages)
        asked = {"batch": 10, "partitions": 10, **more}
        return self.add(
            Pop(
                **self.times(outcome), queue=queue, group=group, auto_ack=auto_ack, lease_seconds=lease_seconds,
                lease=lease_id, deliveries=deliveries, **asked,
            )
        )  # fmt: skip

    def delivery(self, lease_id, queue, id_, offset, attempt=1, partition="p"):
        when = f"2030-01-01T00:00:{offset or 0:02}Z"
        return Delivery(
            queue, partition, f"id of {partition}", f"m-{id_}", id_, {"id": id_}, lease_id, offset, attempt, when
        )

    def item(self, id_, pop, status="completed", outcome="ok", **more):
        return AckItem("q", "p", id_, pop.group if pop else QUEUE_MODE, status, pop and pop.lease, outcome, **more)

    def ack(self, pop, *ids, status="completed", outcome="ok", call="ok", **more):
        chosen = ids or [delivery.transaction_id for delivery in pop.deliveries]
        items = tuple(self.item(id_, pop, status, outcome, **more) for id_ in chosen)
        return self.add(Ack(**self.times(call), items=items))

    def transact(self, pop, acks, outputs, outcome="ok"):
        items = tuple(self.item(id_, pop, outcome=outcome) for id_ in acks)
        pushes = tuple(PushItem("out", "p", id_, {"id": id_}, outcome) for id_ in outputs)
        return self.add(Transaction(**self.times(outcome), pushes=pushes, acks=items))

    def renew(self, pop, seconds, outcome="ok"):
        return self.add(Renewal(**self.times(outcome), lease=pop.lease, seconds=seconds))

    def drain(self, queue="q", group=QUEUE_MODE):
        self.now += 1_000_000
        self.add(Drained(at=self.now, queue=queue, group=group))

    def wait(self, seconds):
        self.now += int(seconds * SECOND)

    @property
    def history(self):
        return History(tuple(self.records))


@pytest.fixture
def story():
    return Story()


def subjects(checker, story):
    return [violation.subject for violation in judge(checker, story.history).violations]


def everything(story):
    """All violations that any checker finds."""
    found = {}
    for check, checker in all_checkers():
        try:
            verdict = judge(checker, story.history)
        except NotObservableError:
            continue
        assert "crashed" not in verdict.text, verdict.text
        found |= {check.name: verdict.violations} if verdict.violations else {}
    return found


# Valid histories


def test_an_ordinary_history_has_no_violation(story):
    story.push("a", "b", "c")
    story.push("b", duplicate=True)
    first = story.pop(("a", 0), ("b", 1))
    story.ack(first, "b")
    story.ack(first, "b", noop=True)
    story.ack(first, "b", status="failed", outcome="fail")
    story.ack(first, "a", status="retry")
    second = story.pop(("a", 0, 2), ("c", 2))
    story.transact(second, ["a"], ["x", "y"])
    story.transact(second, ["a"], ["z"], outcome="fail")
    story.ack(second, "c", status="failed")
    third = story.pop(("c", 2, 2))
    story.ack(third, status="failed")
    fourth = story.pop(("c", 2, 3))
    story.ack(fourth, status="failed", dead=True)
    story.pop(("x", 0), ("y", 1), queue="out", auto_ack=True)
    story.drain()
    story.drain("out")
    assert everything(story) == {}


def test_unknown_outcomes_are_no_violation(story):
    story.push("a", "b", outcome="unknown")
    story.push("a", "b", duplicate=True)
    story.push("never", "stored", outcome="unknown")
    story.pop(outcome="unknown")
    story.wait(11)
    first = story.pop(("a", 0, 2), ("b", 1, 2))
    story.ack(first, "a", outcome="unknown", call="unknown")
    story.renew(first, 5, outcome="unknown")
    story.wait(20)
    second = story.pop(("b", 1, 3))
    story.ack(first, "b", outcome="fail")
    story.transact(second, ["b"], ["x"], outcome="unknown")
    story.pop(("x", 0), queue="out", auto_ack=True)
    story.drain()
    story.drain("out")
    assert everything(story) == {}


def test_an_unknown_failure_leaves_two_retry_counts_possible(story):
    story.push("a")
    for attempt in (1, 2):
        story.ack(story.pop(("a", 0, attempt)), status="failed", outcome="unknown", call="unknown")
        story.wait(11)
    early, late = story.records[:], story
    pop = story.pop(("a", 0, 3))
    story.ack(pop, status="failed", dead=True)
    assert subjects(dead_letter.dead_letters_come_in_time, late) == []
    story.records = [*early, pop, replace(story.records[-1], items=(story.item("a", pop, "failed"),))]
    assert subjects(dead_letter.dead_letters_come_in_time, story) == []


def test_what_was_spooled_may_turn_out_to_be_a_duplicate(story):
    story.push("a")
    story.push("a", spooled=True, message_id=None)
    assert subjects(duplicate.a_transaction_id_is_stored_once, story) == []
    story.push("a")
    assert subjects(duplicate.a_transaction_id_is_stored_once, story) == ["a"]


def test_calls_at_the_same_time_may_have_happened_in_any_order(story):
    first = Pop(invoked=1, completed=100, queue="q", lease="l", lease_seconds=10, auto_ack=True,
                deliveries=(story.delivery("", "q", "b", 1),), batch=5)  # fmt: skip
    second = replace(first, invoked=50, completed=60, deliveries=(story.delivery("", "q", "a", 0),))
    story.records += [first, second]
    assert subjects(order.first_deliveries_come_in_offset_order, story) == []


def _violations(checker, history):
    verdict = judge(checker, history)
    assert "crashed" not in verdict.text, verdict.text
    return verdict.violations


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_histories_of_the_model_are_valid(seed, rounds):
    simulation = Simulation(seed)
    simulation.run(rounds)
    history = History(tuple(records(simulation.drain())))
    found = {
        check.name: violations for check, checker in all_checkers() if (violations := _violations(checker, history))
    }
    assert found == {}


#: What to do to a valid delivery, and the checker that has to see it.
PLANTS = {
    "payload": (lambda each: replace(each, payload="forged"), loss.deliveries_are_what_was_pushed),
    "lane": (lambda each: replace(each, partition="elsewhere"), loss.deliveries_are_what_was_pushed),
    "message id": (lambda each: replace(each, message_id="other"), duplicate.a_transaction_id_is_stored_once),
    "order": (lambda each: replace(each, offset=-1), order.first_deliveries_come_in_offset_order),
    "time": (lambda each: replace(each, created_at="2029-01-01T00:00:00Z"), order.times_never_fall),
    "lease": (lambda each: replace(each, lease="other"), order.answers_keep_to_what_was_asked),
}


@pytest.mark.parametrize("what", PLANTS)
@given(seed=st.integers(0, 2**32))
def test_planted_faults_in_simulated_histories_are_found(what, seed):
    plant, checker = PLANTS[what]
    simulation = Simulation(seed)
    simulation.run(15)
    valid = list(records(simulation.drain()))
    pops = [number for number, record in enumerate(valid) if isinstance(record, Pop) and len(record.deliveries) > 1]
    number = next((number for number in reversed(pops) if not valid[number].auto_ack), None)
    assume(number is not None)
    before, last = valid[number].deliveries[-2:]
    if what in {"time", "order"}:
        assume(before.lane == last.lane)
    if what == "message id":
        assume(
            any(item.message_id == last.message_id for each in valid if isinstance(each, Push) for item in each.items)
        )
    planted = replace(valid[number], deliveries=(*valid[number].deliveries[:-1], plant(last)))
    history = History((*valid[:number], planted, *valid[number + 1 :]))
    assert judge(checker, history).violations != ()


# Planted violations


def test_a_first_delivery_below_an_earlier_one_is_found(story):
    story.push("a", "b")
    story.pop(("b", 1), auto_ack=True)
    story.pop(("a", 0), auto_ack=True)
    assert list(everything(story)) == ["first_deliveries_come_in_offset_order"]
    assert subjects(order.first_deliveries_come_in_offset_order, story) == ["a"]


def test_disorder_within_an_answer_is_found(story):
    story.push("a", "b")
    story.pop(("b", 1), ("a", 0), auto_ack=True)
    assert subjects(order.first_deliveries_come_in_offset_order, story) == ["a"]


def test_a_gap_is_found_unless_an_unanswered_auto_ack_may_have_taken_it(story):
    story.push("a", "b", "c")
    story.pop(("a", 0), ("c", 2), auto_ack=True)
    assert list(everything(story)) == ["deliveries_leave_no_gap"]
    story.pop(auto_ack=True, outcome="unknown")
    assert everything(story) == {}


def test_pushes_in_the_wrong_order_are_found(story):
    story.push("a")
    story.push("b")
    story.pop(("b", 0), ("a", 1), auto_ack=True)
    assert subjects(order.pushes_one_after_the_other_keep_their_order, story) == ["b"]
    assert list(everything(story)) == ["pushes_one_after_the_other_keep_their_order"]


def test_a_request_in_the_wrong_order_is_found(story):
    story.push("a", "b", "c")
    story.pop(("a", 0), ("c", 1), ("b", 2), auto_ack=True)
    assert subjects(order.a_request_keeps_its_order, story) == ["c"]


def test_a_time_that_falls_is_found(story):
    story.push("a", "b")
    pop = story.pop(("a", 0), ("b", 1), auto_ack=True)
    late = replace(pop.deliveries[0], created_at="2030-01-01T00:00:01.5Z")
    story.records[-1] = replace(pop, deliveries=(late, pop.deliveries[1]))
    assert everything(story) == {"times_never_fall": (
        Violation("b", "createdAt 2030-01-01T00:00:01Z stands above 2030-01-01T00:00:01.5Z"),
    )}  # fmt: skip


@pytest.mark.parametrize(
    "asked", [{"batch": 1}, {"partitions": 1}, {"partition": "p"}, {"lease": "another"}, {"queue": "another"}]
)
def test_an_answer_that_is_more_than_was_asked_is_found(story, asked):
    story.push("a")
    story.push("b", partition="r")
    pop = story.pop(("a", 0), ("b", 0, 1, "r"))
    story.records[-1] = replace(pop, **asked)
    assert len(judge(order.answers_keep_to_what_was_asked, story.history).violations) == 1


def test_a_transaction_id_that_is_stored_twice_is_found(story):
    story.push("a")
    story.push("a", message_id="m-other")
    assert subjects(duplicate.a_transaction_id_is_stored_once, story) == ["a"]


def test_two_queued_answers_with_one_id_are_found(story):
    story.push("a")
    story.push("a")
    story.push("b")
    assert subjects(duplicate.a_transaction_id_is_stored_once, story) == ["a"]


def test_a_message_at_two_offsets_is_found(story):
    story.push("a")
    story.pop(("a", 0))
    story.wait(11)
    story.pop(("a", 1, 2))
    assert subjects(duplicate.a_transaction_id_is_stored_once, story) == ["a"]


def test_a_duplicate_that_names_another_message_is_found(story):
    story.push("a")
    story.push("a", duplicate=True, message_id="m-other")
    assert list(everything(story)) == ["a_duplicate_names_the_stored_message"]


def test_a_duplicate_of_another_partition_is_found(story):
    story.push("a")
    story.push("a", partition="r", duplicate=True)
    assert list(everything(story)) == ["a_duplicate_has_an_original_in_its_partition"]


def test_a_lost_message_is_found_for_the_group_that_misses_it(story):
    story.push("a", "b")
    story.pop(("a", 0), ("b", 1), auto_ack=True)
    story.pop(("a", 0), auto_ack=True, group="g")
    story.drain()
    story.drain(group="g")
    assert everything(story) == {
        "every_group_gets_every_message": (
            Violation("b", "was stored in Lane(queue='q', partition='p'), and never delivered to group g"),
        )
    }


def test_a_message_that_is_delivered_and_forgotten_is_found(story):
    story.push("a", "b")
    pop = story.pop(("a", 0), ("b", 1))
    story.ack(pop, "a")
    story.drain()
    assert subjects(loss.what_was_delivered_is_done_in_the_end, story) == ["b"]


def test_a_message_that_was_never_pushed_is_found(story):
    story.pop(("a", 0), auto_ack=True)
    assert list(everything(story)) == ["deliveries_are_what_was_pushed"]


def test_a_changed_payload_and_a_delivery_from_the_past_are_found(story):
    story.pop(("b", 1), auto_ack=True)
    story.push("a", "b")
    pop = story.pop(("a", 0), auto_ack=True)
    story.records[-1] = replace(pop, deliveries=(replace(pop.deliveries[0], payload={"id": "A"}),))
    assert sorted(subjects(loss.deliveries_are_what_was_pushed, story)) == ["a", "b"]


def test_half_of_an_unanswered_request_is_found(story):
    story.push("a", "b", outcome="unknown")
    story.pop(("a", 0), auto_ack=True)
    assert everything(story) == {}, "the rest may still come"
    story.drain()
    assert list(everything(story)) == ["a_request_is_stored_whole_or_not_at_all"]


def test_a_refused_request_that_is_stored_is_found(story):
    story.push("a", outcome="fail")
    story.pop(("a", 0), auto_ack=True)
    assert list(everything(story)) == ["a_request_is_stored_whole_or_not_at_all"]


def test_two_leases_at_once_are_found(story):
    story.push("a")
    story.pop(("a", 0))
    story.wait(9)
    story.pop(("a", 0, 2))
    assert subjects(lease.a_lease_excludes_all_others, story) == ["lease-2"]


def test_a_delivery_beside_a_live_lease_is_found(story):
    story.push("a", "b")
    story.pop(("a", 0))
    story.pop(("b", 1), auto_ack=True)
    assert list(everything(story)) == ["a_lease_excludes_all_others"]


@pytest.mark.parametrize("how", ["time", "all acked", "retry", "failed", "unknown ack", "other group"])
def test_a_lease_that_may_be_over_excludes_no_consumer(story, how):
    story.push("a", "b")
    held = story.pop(("a", 0), ("b", 1))
    if how == "time":
        story.wait(10)
    elif how == "all acked":
        story.ack(held)
    elif how == "unknown ack":
        story.ack(held, outcome="unknown", call="unknown")
    elif how != "other group":
        story.ack(held, "a", status=how)
    story.pop(("b", 1, 2), group="g" if how == "other group" else QUEUE_MODE)
    assert subjects(lease.a_lease_excludes_all_others, story) == []


def test_a_renewed_lease_excludes_others_for_longer(story):
    story.push("a")
    held = story.pop(("a", 0))
    story.wait(9)
    story.renew(held, 60)
    story.wait(30)
    story.pop(("a", 0, 2))
    assert subjects(lease.a_lease_excludes_all_others, story) == ["lease-2"]


def test_an_ack_under_an_expired_lease_is_found(story):
    story.push("a")
    held = story.pop(("a", 0))
    story.wait(11)
    story.ack(held)
    assert list(everything(story)) == ["an_ended_lease_acks_nothing"]


def test_an_ack_under_a_lease_that_another_consumer_has_is_found(story):
    story.push("a", "b")
    held = story.pop(("a", 0), ("b", 1), lease_seconds=None)
    story.pop(("a", 0, 2), ("b", 1, 2))
    story.ack(held, "b")
    assert subjects(lease.an_ended_lease_acks_nothing, story) == ["b"]


def test_a_revived_lease_is_found(story):
    story.push("a")
    held = story.pop(("a", 0))
    story.wait(8)
    story.renew(held, 10)
    story.wait(9)
    story.renew(held, 10)
    assert subjects(lease.a_renewal_revives_nothing, story) == []
    story.wait(11)
    story.renew(held, 10, outcome="fail")
    story.renew(held, 10)
    assert subjects(lease.a_renewal_revives_nothing, story) == [held.lease]


@pytest.mark.parametrize(("first", "second"), [(2, 3), (1, 1)])
def test_wrong_attempts_are_found(story, first, second):
    story.push("a")
    story.pop(("a", 0, first))
    story.wait(11)
    story.pop(("a", 0, second))
    assert subjects(lease.attempts_rise, story) == ["a"]


def test_a_message_that_comes_after_its_ack_is_found(story):
    story.push("a", "b")
    story.ack(story.pop(("a", 0), ("b", 1)))
    story.pop(("b", 1, 2))
    assert list(everything(story)) == ["what_is_done_does_not_come_again"]
    assert subjects(ack.what_is_done_does_not_come_again, story) == ["b"]


def test_a_message_that_comes_after_auto_ack_is_found(story):
    story.push("a")
    story.pop(("a", 0), auto_ack=True)
    story.pop(("a", 0, 2), auto_ack=True)
    assert list(everything(story)) == ["what_is_done_does_not_come_again"]


def test_wrong_answers_to_repeated_acks_are_found(story):
    story.push("a", "b")
    pop = story.pop(("a", 0), ("b", 1))
    story.ack(pop)
    story.ack(pop, "a", outcome="fail")
    story.ack(pop, "b", status="failed", noop=True)
    assert subjects(ack.a_repeated_ack_is_harmless, story) == ["a", "b"]


@pytest.mark.parametrize("failures", [LIMIT - 1, LIMIT + 1])
def test_a_dead_letter_early_or_late_is_found(story, failures):
    story.push("a")
    for attempt in range(1, failures + 1):
        story.ack(story.pop(("a", 0, attempt)), status="failed")
    story.ack(story.pop(("a", 0, failures + 1)), status="failed", dead=True)
    assert list(everything(story)) == ["dead_letters_come_in_time"]
    assert subjects(dead_letter.dead_letters_come_in_time, story) == ["a"]


def test_a_second_dead_letter_is_found(story):
    story.push("a")
    pop = story.pop(("a", 0))
    story.ack(pop, status="dlq", dead=True)
    story.ack(pop, status="dlq", dead=True)
    assert subjects(dead_letter.dead_letters_come_in_time, story) == ["a"]


def outputs(story, *ids):
    story.pop(*((id_, number) for number, id_ in enumerate(ids)), queue="out", auto_ack=True)
    story.drain("out")


@pytest.mark.parametrize("outcome", ["ok", "unknown"])
def test_half_of_a_transaction_is_found(story, outcome):
    story.push("a")
    story.transact(story.pop(("a", 0)), ["a"], ["x", "y"], outcome)
    outputs(story, "x")
    assert subjects(transaction.a_transaction_happens_whole_or_not_at_all, story) == ["x"]


def test_an_output_of_a_failed_transaction_is_found(story):
    story.push("a")
    story.transact(story.pop(("a", 0)), ["a"], ["x"], "fail")
    outputs(story, "x")
    assert subjects(transaction.a_transaction_happens_whole_or_not_at_all, story) == ["x"]


def test_an_output_without_its_ack_is_found(story):
    story.push("a")
    story.transact(story.pop(("a", 0)), ["a"], ["x"], "unknown")
    outputs(story, "x")
    story.wait(11)
    story.pop(("a", 0, 2))
    assert list(everything(story)) == ["a_transaction_happens_whole_or_not_at_all"]


def test_an_input_with_two_outputs_is_found(story):
    story.push("a")
    pop = story.pop(("a", 0))
    story.transact(pop, ["a"], ["x"], "unknown")
    story.transact(pop, ["a"], ["y"], "unknown")
    assert subjects(transaction.each_input_makes_its_output_once, story) == []
    outputs(story, "x", "y")
    assert subjects(transaction.each_input_makes_its_output_once, story) == ["a"]


def test_a_late_transaction_is_found(story):
    story.push("a")
    pop = story.pop(("a", 0))
    story.ack(pop)
    story.transact(pop, ["a"], ["x"])
    assert list(everything(story)) == ["a_late_transaction_fails"]


# Verdicts, histories


def test_every_checker_has_a_planted_violation_above():
    source = Path(__file__).read_text(encoding="utf-8")
    assert [check.name for check, _ in all_checkers() if source.count(check.name) < 1] == []


def test_results_merge_to_the_worst():
    assert merge([]) is Result.VALID
    assert merge([Result.VALID, Result.UNKNOWN]) is Result.UNKNOWN
    assert merge([Result.INVALID, Result.UNKNOWN, Result.VALID]) is Result.INVALID


def test_a_checker_that_crashes_or_judges_nothing_is_unknown(story):
    def crashing(_history):
        yield None
        raise RuntimeError("why")

    def finding(_history):
        yield Violation("a", "bad")
        raise RuntimeError("why")

    assert judge(crashing, story.history).result is Result.UNKNOWN
    assert "why" in judge(crashing, story.history).text
    assert judge(finding, story.history).result is Result.INVALID
    assert judge(lambda _history: iter(()), story.history).result is Result.UNKNOWN


def test_a_server_without_offsets_is_not_judged_by_them(story):
    story.push("a", "b")
    story.pop(("b", None, None), ("a", None, None), auto_ack=True)
    for checker in (order.first_deliveries_come_in_offset_order, lease.attempts_rise):
        with pytest.raises(NotObservableError):
            judge(checker, story.history)


def test_spans_compare_only_what_is_certainly_before():
    one, two, three = (0, 10, 5, "one"), (5, 20, 9, "two"), (11, 30, 1, "three")
    assert list(greatest_before([three, two, one])) == [(one, None), (two, None), (three, one)]
    unanswered = (5, NEVER, 9, "two")
    assert list(greatest_before([unanswered, three])) == [(unanswered, None), (three, None)]


def test_a_history_survives_as_lines(story):
    story.push("a", "é")
    pop = story.pop(("a", 0))
    story.ack(pop)
    story.renew(pop, 5)
    story.transact(pop, ["a"], ["x"], "unknown")
    story.drain()
    lines = [to_line(record) for record in story.records]
    assert from_lines(lines) == story.history
    assert all("\n" not in line for line in lines)
    assert json.loads(lines[1])["kind"] == "Push"


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"kind":"Pull"}', '{"kind":"Drained","at":1}'])
def test_a_line_that_is_no_record_is_named(story, line):
    with pytest.raises(ValueError, match="line 2 is no record"):
        from_lines([to_line(story.records[0]), line])


# Size


def test_twenty_thousand_calls_are_judged_valid_by_every_checker():
    for check, checker in all_checkers():
        verdict = judge(checker, LONG)
        assert (verdict.result, verdict.violations) == (Result.VALID, ()), (check.name, verdict)


def test_one_violation_among_many_calls_is_found():
    pop = next(record for record in reversed(LONG.records) if isinstance(record, Pop) and not record.auto_ack)
    end = max(record.completed for record in LONG.records if isinstance(record, Ack))
    again = replace(pop.deliveries[0], attempt=9, lease="again")
    planted = replace(pop, invoked=end + 1, completed=end + 2, lease="again", deliveries=(again,))
    history = History((*LONG.records, planted))
    found = [check.name for check, checker in all_checkers() if judge(checker, history).violations]
    assert found == ["what_is_done_does_not_come_again"]
