"""The checkers of simple-mq's histories: a good one has no violation, and its checker alone finds a planted fault."""

from dataclasses import replace

import pytest

from spec.checkers import simple_mq as checkers
from spec.simple_mq_history import Ack, Enqueue, Left, Poll, SimpleMqHistory, from_lines, to_lines

SECOND = checkers.SECOND_NS


def at(second: float) -> dict[str, int]:
    return {"invoked": int(second * SECOND), "completed": int((second + 0.1) * SECOND)}


GOOD = SimpleMqHistory(
    (
        Enqueue(**at(0), queue="q", data="a", message_id="1"),
        Enqueue(**at(0), queue="q", data="b", message_id="2"),
        Enqueue(**at(0), queue="q", data="c", message_id="3"),
        Enqueue(**at(0), queue="q", data="d", message_id="4"),
        Enqueue(invoked=0, outcome="unknown", queue="q", data="e"),
        Enqueue(**at(0), outcome="fail", queue="q", data="f"),
        Poll(**at(1), queue="q", message_id="1", data="a", delivery_count=1),
        Poll(**at(1), queue="q"),
        Ack(**at(2), queue="q", message_id="1"),
        Ack(**at(3), queue="q", message_id="1", outcome="fail"),
        Poll(**at(1), queue="q", message_id="2", data="b", delivery_count=1),
        Poll(**at(11.2), queue="q", message_id="2", data="b", delivery_count=2),
        Ack(invoked=12 * SECOND, outcome="unknown", queue="q", message_id="2"),
        Poll(**at(5), queue="q", message_id="5", data="e", delivery_count=1),
        Left(queue="q", count=2, message_ids=("4", "5")),
    ),
    visibility_timeout_s=10,
    max_deliveries=2,
    dead=frozenset({"3"}),
)


def test_a_good_history_has_no_violation() -> None:
    assert checkers.violations(GOOD) == []


def test_a_history_survives_its_lines() -> None:
    assert from_lines(to_lines(GOOD)) == GOOD
    with pytest.raises(ValueError, match="line 1 is no record"):
        from_lines(['{"kind": "Nonsense"}'])


def _with(*records: object, without: object = None, **fields: object) -> SimpleMqHistory:
    kept = tuple(record for record in GOOD.records if record != without)
    return replace(GOOD, records=(*kept, *records), **fields)  # type: ignore[arg-type]


SECOND_DELIVERY = GOOD.records[11]
FAULTS = {
    "given_to_one_at_a_time": _with(
        replace(SECOND_DELIVERY, **at(10.8)), without=SECOND_DELIVERY,  # type: ignore[type-var]
    ),
    "delivery_counts_rise": _with(
        replace(SECOND_DELIVERY, delivery_count=1), without=SECOND_DELIVERY,  # type: ignore[type-var]
    ),
    "nothing_is_lost": _with(dead=frozenset()),
    "nothing_comes_from_nowhere": _with(
        replace(SECOND_DELIVERY, data="x"), without=SECOND_DELIVERY,  # type: ignore[type-var]
    ),
    "acked_is_gone": _with(Poll(**at(60), queue="q", message_id="1", data="a", delivery_count=2)),
    "counts_are_exact": _with(
        replace(GOOD.records[-1], count=3), without=GOOD.records[-1],  # type: ignore[type-var]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_its_checker_alone(name: str) -> None:
    found = {checker.__name__ for checker in checkers.CHECKERS if any(violation for violation in checker(FAULTS[name]))}
    assert found == {name}


def test_two_successful_acks_are_found() -> None:
    twice = _with(Ack(**at(4), queue="q", message_id="1"))
    assert [violation.text for violation in checkers.violations(twice)] == ["was acked successfully 2 times"]
