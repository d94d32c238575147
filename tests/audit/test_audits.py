"""The audits: each finds exactly what was planted, and nothing in runs that are as they should be."""

from collections import defaultdict
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_

from spark_validation import tables
from spark_validation.columns import spark_table
from spark_validation.inputs import Inputs
from spark_validation.journal import changes
from spark_validation.journal.schema import AckItem, Call
from spark_validation.run import Result, Verdict, run
from spark_validation.tables.columns import SECOND, answers, few
from spec.model import MessageId
from tests.audit import second
from tests.audit.conftest import TAKEN_AT, inputs
from tests.audit.faults import FAULTS, GONE, Scene, ordinary, skipped_delivery, two_leases
from tests.support.runs import Run, Tables


def found(verdicts: list[Verdict]) -> dict[str, dict[str, list]]:
    """By run and audit: the evidence."""
    by_run = defaultdict(lambda: defaultdict(list))
    for verdict in verdicts:
        assert verdict.violations == len(verdict.evidence)
        for evidence in verdict.evidence:
            by_run[evidence.queue.rpartition(".")[0]][verdict.audit].append(evidence)
    return by_run


def test_every_audit_had_something_to_judge(planted):
    assert [verdict.audit for verdict in planted.verdicts if verdict.result is not Result.INVALID] == []


@pytest.mark.nightly
def test_what_a_journal_lacks_is_no_violation(blurred):
    assert {name: dict(audits) for name, audits in found(blurred.verdicts).items()} == {}


NAMES = [f"{each.__name__}@{place}" for each, places in (FAULTS | GONE).items() for place in places]


@pytest.mark.parametrize("name", ["valid@0", "valid@1", *NAMES])
def test_exactly_what_was_planted_is_found(planted, name):
    there = found(planted.verdicts)[name]
    assert set(there) == set(planted.expected[name]), dict(there)
    for audit, offset in planted.expected[name].items():
        assert len(there[audit]) == 1, there[audit]
        assert offset is None or there[audit][0].offset == offset, there[audit]


@pytest.mark.nightly
def test_joins_with_too_many_rows_for_a_broadcast_say_the_same(engine, planted, monkeypatch):
    monkeypatch.setattr(tables.columns, "_BROADCAST_ROWS", 0)
    monkeypatch.setattr(tables.columns, "_DRIVER_ROWS", 0)
    shuffled = run(inputs(engine, planted.rows), max_evidence=10_000)

    def said(verdicts):
        # Of messages that lie in several calls, any call may be the evidence.
        return {
            v.audit: sorted((e.queue, e.partition or "", e.offset or 0, e.text) for e in v.evidence) for v in verdicts
        }

    assert said(shuffled) == said(planted.verdicts)


#: What is stored can be judged whatever a journal lacks.
BESIDE = {
    "groups_have_their_cursors", "no_group_is_forgotten", "partitions_are_complete", "cursors_stand_in_the_log",
    "the_log_has_the_pushed_payloads",
}  # fmt: skip


def said_of(inputs: Inputs, *guarantees: str) -> dict[str, tuple[str, str]]:
    """By audit: the verdict and its text."""
    verdicts = [each for each in run(inputs, guarantees) if each.audit not in BESIDE]
    return {each.audit: (each.result, each.text) for each in verdicts}


def journal(engine, calls: list[Call]) -> Inputs:
    return Inputs(spark_table(engine, Call, calls))


@pytest.mark.nightly
def test_what_a_journal_does_not_touch_is_unknown(engine):
    """One push, pop and ack, and no log."""
    simple = Run("s", 1)
    simple.push(("a", "one"))
    simple.ack(simple.pop())
    simple.end()
    said = said_of(journal(engine, simple.calls))
    assert {audit for audit, (result, _) in said.items() if result is Result.VALID} == {
        "first_deliveries_in_offset_order", "deliveries_leave_no_gap", "pushes_keep_their_order",
        "delivered_times_never_fall", "deliveries_are_what_was_pushed", "a_transaction_id_is_stored_once",
        "a_lease_excludes_all_others", "an_ended_lease_acks_nothing", "attempts_rise",
        "what_is_done_does_not_come_again", "pops_keep_to_their_limits", "answers_do_not_contradict_themselves",
        "only_leases_that_were_given_can_ack", "attempts_are_at_most_the_deliveries",
    }  # fmt: skip
    assert said["the_log_holds_what_was_pushed"] == (Result.UNKNOWN, "needs the log (--dsn)")
    assert said["each_input_makes_its_output_once"] == (Result.UNKNOWN, "no transaction with an ack to check")
    assert said["every_group_gets_every_message"][1].startswith("no message that was stored before a group was seen to")


def test_a_killed_agent_makes_unknown_what_it_may_have_done(engine):
    whole, killed = Run("w", 1), Run("k", 100)
    for simple in (whole, killed):
        for _ in range(2):
            simple.push(("a", f"{simple.name} one"))
    whole.end()
    rows = Tables()
    for simple in (whole, killed):
        rows.add(simple.tables())
    said = said_of(inputs(engine, rows), "G-DUR-3", "G-IDEM-3")
    assert {result for result, _ in said.values()} == {Result.UNKNOWN}
    assert "none was cut short" in said["the_log_holds_what_was_pushed"][1]
    assert "none was cut short" in said["a_duplicate_has_an_original_in_its_partition"][1]


@pytest.mark.parametrize(("seconds", "verdict"), [(0.0035, Result.INVALID), (60.0, Result.VALID)])
def test_the_length_of_a_lease_is_unknown_if_an_operator_changed_it(engine, seconds, verdict):
    """The journal tells one length, and a server's log another."""
    scene = Scene(*ordinary("run", 1))
    two_leases(scene, 2)
    told = Call(run="", agent="log", number=0, kind="change", sent=0, client=changes.LEASE, queue=scene.run.queue)
    scene.renumbered()
    scene.tables.calls.append(replace_(told, answered=1, lease_seconds=seconds))
    assert said_of(inputs(engine, scene.tables), "G-LEASE-1")["a_lease_excludes_all_others"][0] is verdict


def test_an_agent_that_wrote_on_behind_its_end_was_killed(engine):
    """It was started again."""
    run = Run("w", 1)
    run.push(("a", "one"))
    run.end()
    rows = run.tables()
    again = replace_(rows.calls[0], number=len(rows.calls), sent=rows.calls[-1].sent + 1, answered=None)
    rows.calls.append(again)
    said = said_of(inputs(engine, rows), "G-DUR-3")
    assert "none was cut short" in said["the_log_holds_what_was_pushed"][1]


def test_each_client_of_a_killed_agent_may_have_had_a_call_under_way(engine):
    """Its push was delivered to another client, and its answer is not in the journal."""
    agent = Run("k", 1)
    for name in ("one", "two"):
        agent.push(("a", name))
    for _ in range(2):
        agent.ack(agent.pop(None, 1))
    rows = Scene(agent, agent.tables()).renumbered()
    clients = {"push": "producer", "pop": "consumer", "ack": "consumer"}
    calls = [replace_(call, client=clients.get(call.kind, "")) for call in rows.calls]
    last_push = max(n for n, call in enumerate(calls) if call.kind == "push")
    del calls[last_push]
    rows.calls = [replace_(call, number=number) for number, call in enumerate(calls)]
    assert Result.INVALID not in {result for result, _ in said_of(inputs(engine, rows), "G-DUR-3").values()}
    assert not any(second.judge(second.as_tables(rows), TAKEN_AT).values())
    rows.calls = [replace_(call, client="") for call in rows.calls]
    found = [each for each in run(inputs(engine, rows), ("G-DUR-3",)) if each.violations]
    assert found, "one client has one call"


def test_an_id_that_stands_for_another_message_now_is_no_redelivery(engine):
    """Retention had removed the first one, which was done."""
    agent = Run("r", 1)
    agent.push(("a", "x"))
    popped = agent.pop(None, 1)
    agent.ack(popped)
    agent.end()
    *calls, end = agent.tables().calls
    later = {"sent": end.sent + 10, "answered": end.sent + 20}
    for offset, result in ((0, Result.INVALID), (9, Result.VALID)):
        told = replace_(popped.deliveries[0], offset=offset, message_id=None)
        rows = Tables(calls=[*calls, replace_(popped, lease="another", deliveries=(told,), **later), end])
        rows.calls = [replace_(call, number=number) for number, call in enumerate(rows.calls)]
        given = Inputs(inputs(engine, rows).calls)
        assert said_of(given, "G-ACK-2")["what_is_done_does_not_come_again"][0] is result
        assert bool(second.judge(second.as_tables(rows), TAKEN_AT)["what_is_done_does_not_come_again"]) == (offset == 0)


def test_a_clock_that_is_set_is_bounded_on_both_sides_of_it(engine):
    """Comparisons before and after contradict each other: the clock was 2 s ahead, and then 3 s behind."""

    def compared(number: int, true: int, ahead: int) -> Call:
        sent = 100 * SECOND + true + ahead
        server = (100 * SECOND + true) // SECOND * SECOND
        times = {"sent": sent, "answered": sent + 10, "server_time": server, "server_precision": SECOND}
        return Call(run="r", agent="a", number=number, kind="clock", **times)

    aheads = (2 * SECOND, -3 * SECOND)
    rows = Tables(
        calls=[compared(n, n * SECOND // 10, ahead) for n, ahead in enumerate(a for a in aheads for _ in range(20))]
    )
    [bounds] = tables.Tables(Inputs(inputs(engine, rows).calls)).clocks.collect()
    assert bounds.moved
    assert bounds.low <= min(aheads) < max(aheads) <= bounds.high
    assert bounds.low >= min(aheads) - SECOND
    assert bounds.high <= max(aheads) + SECOND


def test_a_clock_that_drifts_is_known_as_well_as_at_any_moment(engine):
    """By 5 millionths, for half an hour."""
    calls = []
    for n in range(1800):
        true = 1_000 * SECOND + n * SECOND + n * 137_911 % SECOND
        sent = true + round(5e-6 * n * SECOND)
        times = {"sent": sent, "answered": sent + 1_000, "server_time": (true + 500) // SECOND * SECOND}
        calls.append(Call(run="r", agent="a", number=n, kind="clock", **times, server_precision=SECOND))
    [bounds] = tables.Tables(Inputs(inputs(engine, Tables(calls=calls)).calls)).clocks.collect()
    assert bounds.low <= 0 < 9_000 <= bounds.high
    assert bounds.high - bounds.low < SECOND // 5


def test_an_agent_of_which_nothing_is_known_may_have_taken_anything(engine):
    """Only the end of its journal is there, as of a file that was set aside."""
    scene = Scene(*ordinary("s", 1))
    skipped_delivery(scene, 0)
    rows = scene.renumbered()
    assert second.judge(second.as_tables(rows), TAKEN_AT)["every_group_gets_every_message"]
    rows.calls.append(Call(run="", agent="a.parquet.lost", number=1, kind="end", sent=0))
    said = said_of(inputs(engine, rows), "G-GRP-1", "G-GRP-3", "G-ORD-2")
    assert said.pop("the_log_has_no_gap") == (Result.VALID, "")
    assert {result for result, _ in said.values()} == {Result.UNKNOWN}, said
    assert not any(second.judge(second.as_tables(rows), TAKEN_AT).values())


def test_an_agent_of_which_nothing_is_known_may_have_pushed_first(engine):
    """So a push that was answered as a duplicate says nothing of when its message was stored."""
    scene = Scene(*ordinary("s", 1))
    first, second_, *_ = pushes = scene.pushes("a")
    calls = scene.tables.calls
    calls[first], calls[second_] = (
        replace_(calls[second_], sent=calls[first].sent, answered=calls[first].answered),
        replace_(calls[first], sent=calls[second_].sent, answered=calls[second_].answered),
    )
    for at in pushes:
        scene.item(at, "pushes", duplicate=True, message_id=None)
    # The third was delivered before anybody known pushed it.
    late = scene.run.calls[-1].sent
    calls.insert(-1, replace_(calls.pop(pushes[2]), sent=late - 20, answered=late - 10))
    rows = scene.renumbered()
    alone = second.judge(second.as_tables(rows), TAKEN_AT)
    assert alone["pushes_keep_their_order"]
    assert alone["deliveries_are_what_was_pushed"]
    rows.calls.append(Call(run="", agent="a.parquet.lost", number=1, kind="end", sent=0))
    said = run(inputs(engine, rows), ("G-ORD-3", "G-DUR-3"))
    assert [(each.audit, each.evidence) for each in said if each.violations] == []
    assert not any(second.judge(second.as_tables(rows), TAKEN_AT).values())


def told_less(call: Call, leases: str) -> Call:
    """Without message ids, and with other leases."""
    pushes = tuple(replace_(each, message_id=None) for each in call.pushes)
    deliveries = tuple(replace_(each, message_id=None) for each in call.deliveries)
    acks = tuple(replace_(each, message_id=None, lease=each.lease and f"{each.lease} {leases}") for each in call.acks)
    lease = call.lease and f"{call.lease} {leases}"
    return replace_(call, pushes=pushes, deliveries=deliveries, acks=acks, lease=lease)


@pytest.mark.nightly
def test_a_queue_that_was_made_anew_is_not_judged_by_journals_without_message_ids(engine):
    """What they tell of a name may be of either queue."""
    first, later = Run("s", 1), Run("s", 50)
    for simple, names in ((first, ("x", "y", "z")), (later, ("x", "w"))):
        simple.wait(1 if simple is first else 600)
        for name in names:
            simple.push(("a", name))
        while (popped := simple.pop(None, 1)).deliveries:
            simple.ack(popped)
        simple.drain(None)
    later.end()
    rows = later.tables()
    [began] = {call.sent for call in later.calls[:1]}
    made = replace_(next(each for each in rows.queues if each.queue == first.queue), created_at=began + 300 * SECOND)
    rows.queues = [made if each.queue == made.queue else each for each in rows.queues]
    rows.calls = [told_less(call, str(simple.now)) for simple in (first, later) for call in simple.calls]
    rows.calls = [replace_(call, number=number) for number, call in enumerate(rows.calls)]
    said = run(inputs(engine, rows))
    assert [(each.audit, each.evidence) for each in said if each.violations] == []
    unmade = replace_(made, created_at=0)
    rows.queues = [unmade if each.queue == made.queue else each for each in rows.queues]
    assert any(each.violations for each in run(inputs(engine, rows)))


def test_an_audit_with_only_excused_rows_is_not_valid(engine):
    """Nothing is left to be judged: retention has removed everything, or the queue gives up in silence."""
    simple = Run("s", 1)
    for number in range(3):
        simple.push(("a", f"m{number}"))
    while (popped := simple.pop()).deliveries:
        simple.ack(popped)
    simple.drain(None)
    simple.end()
    emptied, silent = simple.tables(), simple.tables()
    emptied.log, emptied.heads = [], [replace_(head, oldest_offset=head.next_offset) for head in emptied.heads]
    emptied.queues = [replace_(each, retention_seconds=1) for each in emptied.queues]
    silent.queues = [replace_(each, max_wait_seconds=1, keeps_dead_letters=False) for each in silent.queues]
    for rows in (emptied, silent):
        said = said_of(inputs(engine, rows), "G-GRP-1", "G-GRP-3", "G-ACK-3", "G-ORD-2")
        said.pop("the_log_has_no_gap")
        assert {result for result, _ in said.values()} == {Result.UNKNOWN}, said


def test_a_server_time_without_its_precision_bounds_no_clock(engine):
    calls = [Call(run="r", agent="a", number=0, kind="clock", sent=SECOND, answered=SECOND + 5, server_time=SECOND)]
    given = replace(journal(engine, calls), clock_bound=7)
    assert [tuple(row) for row in tables.Tables(given).clocks.collect()] == [("a", -7, 7, 0, False)]


@pytest.mark.nightly
def test_a_dead_letter_that_was_deleted_with_its_message_is_not_missed(engine):
    """Retention has removed the trace of the deletion, but the log of the server tells it."""
    scene = Scene(*ordinary("gone", 1))
    letter = scene.tables.dead_letters[0]
    [item] = {
        each.transaction_id
        for call in scene.tables.calls
        for each in call.acks
        if each.dead and each.partition == letter.partition
    }
    scene.tables.dead_letters = []
    part = scene.run.message_id(MessageId(scene.run.queue, letter.partition, 0))
    last = scene.tables.calls[-2]
    told = Call(
        run="", agent="server", number=0, kind="change", client=changes.MESSAGE_DELETED, sent=last.sent,
        answered=last.answered, group="", acks=(AckItem("", part, item, ""),),
    )  # fmt: skip
    for calls, result in (([], Result.INVALID), ([told, replace_(told, number=1, kind="end", acks=())], Result.VALID)):
        scene.tables.calls += calls
        [verdict] = [
            each
            for each in run(inputs(engine, scene.tables), ["G-DLQ-1"])
            if each.audit == "answered_dead_letters_are_kept"
        ]
        assert verdict.result is result


def test_what_several_audits_ask_of_a_table_is_asked_once(spark):
    rows = spark.range(3)
    first = few(rows.where("id > 0"))
    assert few(rows.where("id > 0")) is first
    assert few(rows.where("id > 1")) is not first
    assert few(spark.range(3).where("id > 1")).count() == 1
    answers.forget()
    assert few(rows.where("id > 0")) is not first


def test_empty_tables_with_other_names_of_columns_are_not_the_same(engine):
    offsets, hashes = (few(engine.createDataFrame([], f"lane bigint, {name} bigint")) for name in ("offset", "hash"))
    assert (few(offsets).columns, few(hashes).columns) == (["lane", "offset"], ["lane", "hash"])
    answers.forget()
