"""The audits and the checkers of the specification say the same of the same histories, whatever happened in them."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spark_validation.columns import spark_table
from spark_validation.inputs import Inputs
from spark_validation.journal.history import to_history
from spark_validation.journal.schema import Call
from spark_validation.run import run
from spec.checkers import all_checkers, judge
from tests.support.runs import Run

#: What the specification calls otherwise.
NAMES = {
    "first_deliveries_come_in_offset_order": "first_deliveries_in_offset_order",
    "pushes_one_after_the_other_keep_their_order": "pushes_keep_their_order",
    "times_never_fall": "delivered_times_never_fall",
}
RUNS = 8

answers = st.sampled_from(["answered", "answered", "answered", "lost answer", "lost request"])
partitions = st.sampled_from(["a", "b"])
groups = st.sampled_from([None, "g"])
statuses = st.lists(st.sampled_from(["completed", "completed", "completed", "failed", "retry"]), min_size=1, max_size=3)
actions = st.one_of(
    st.tuples(st.just("push"), st.lists(st.tuples(partitions, st.integers(0, 9)), min_size=1, max_size=3), answers),
    st.tuples(st.just("pop"), groups, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("autoAck"), groups, st.integers(1, 3)),
    st.tuples(st.just("ack"), st.integers(0, 3), statuses, answers),
    st.tuples(st.just("transact"), st.integers(0, 3), answers),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 61])),
)
#: A change to the journal that may or may not break a guarantee: which, and where.
damages = st.none() | st.tuples(
    st.sampled_from(["swap", "drop", "repeat", "attempt", "accept", "earlier"]), st.integers(0, 30)
)
programs = st.tuples(st.lists(actions, min_size=10, max_size=30), damages)


def perform(name: str, program: list) -> list[Call]:
    """The journal of an agent that does this, and then drains its queue."""
    run, taken = Run(name, 1), []
    for action, *what in program:
        how = {"answered": what[-1] == "answered", "happens": what[-1] != "lost request"}
        if action == "push":
            run.push(*((partition, f"{name} {partition}{number}") for partition, number in what[0]), **how)
        elif action == "pop":
            taken.insert(0, run.pop(what[0], what[1], answered=what[2]))
        elif action == "autoAck":
            run.pop(what[0], what[1], auto_ack=True)
        elif action == "wait":
            run.wait(what[0])
        elif what[0] < len(taken) and taken[what[0]].deliveries:
            if action == "ack":
                run.ack(taken[what[0]], *what[1], **how)
            else:
                run.transact(taken[what[0]], [f"{name} out {len(run.calls)}", f"{name} too {len(run.calls)}"], **how)
    for group in (None, "g"):
        run.drain(group)
    run.drain(None, run.out)
    run.end()
    return run.calls


def damage(calls: list[Call], kind: str, at: int) -> list[Call]:
    """The journal with one change, if it holds something to change."""
    pops = [place for place, call in enumerate(calls) if call.deliveries]
    acks = [place for place, call in enumerate(calls) if call.kind == "ack"]
    if kind == "accept" and acks:
        place = acks[at % len(acks)]
        calls[place] = replace(
            calls[place], acks=tuple(replace(item, outcome="ok", error=None) for item in calls[place].acks)
        )
    elif kind != "accept" and pops:
        place, other = pops[at % len(pops)], pops[(at + 1) % len(pops)]
        one, two = calls[place], calls[other]
        if kind == "swap":
            calls[place], calls[other] = (
                replace(one, deliveries=two.deliveries),
                replace(two, deliveries=one.deliveries),
            )
        elif kind == "drop":
            calls[place] = replace(one, deliveries=one.deliveries[1:])
        elif kind == "attempt":
            calls[place] = replace(one, deliveries=(replace(one.deliveries[0], attempt=2), *one.deliveries[1:]))
        elif kind == "earlier":
            calls[place] = replace(one, sent=calls[0].sent, answered=calls[0].sent + 1)
        elif kind == "repeat":
            last = calls[-1].sent
            calls.insert(-1, replace(one, lease=f"{one.lease} again", sent=last, answered=last + 5))
    return [replace(call, number=number) for number, call in enumerate(calls)]


def of_checkers(calls: list[Call]) -> set[str]:
    """Which checkers find something."""
    found = [(check.name, judge(checker, to_history(calls))) for check, checker in all_checkers()]
    return {NAMES.get(name, name) for name, verdict in found if verdict.violations}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@given(st.lists(programs, min_size=RUNS, max_size=RUNS))
@settings(
    max_examples=1, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)
def test_audits_and_checkers_say_the_same(engine, batch):
    journals = {}
    for number, (program, change) in enumerate(batch):
        calls = perform(f"r{number}", program)
        journals[f"r{number}"] = damage(calls, *change) if change else calls
    rows = spark_table(engine, Call, [call for calls in journals.values() for call in calls]).persist()
    verdicts = run(Inputs(rows), max_evidence=10_000)
    rows.unpersist()
    there = {verdict.audit for verdict in verdicts}
    both = {NAMES.get(check.name, check.name) for check, _ in all_checkers()}
    for name, calls in journals.items():
        audits = {v.audit for v in verdicts for each in v.evidence if (each.queue or "").partition(".")[0] == name}
        assert audits & both == of_checkers(calls) & there, (name, batch[int(name[1:])])
