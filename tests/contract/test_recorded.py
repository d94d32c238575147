"""A second tour changes no example; a change of an operation changes its example only."""

from typing import Any

from tests.contract.recorded import settled

LEASE, OTHER_LEASE = "9ada70e1-3069-4471-8f6d-b96634e22663", "11111111-3069-4471-8f6d-b96634e22663"
TIME, OTHER_TIME = "2026-11-25T12:50:05.288204Z", "2027-01-01T00:00:00.1Z"


def _example(answer: Any) -> dict[str, Any]:
    return {"answers": {"200": answer}}


def test_ids_times_and_processes_change_nothing() -> None:
    recorded = {"popQueue": _example({"leaseId": LEASE, "createdAt": TIME, "worker_id": 1})}
    toured = {"popQueue": _example({"leaseId": OTHER_LEASE, "createdAt": OTHER_TIME, "worker_id": 2})}
    assert settled(recorded, toured) == recorded


def test_a_new_field_another_number_and_another_length_replace_an_example() -> None:
    recorded = {"popQueue": _example({"messages": [1]})}
    for answer in ({"messages": [1], "more": None}, {"messages": [2]}, {"messages": [1, 1]}, {"messages": None}):
        toured = {"popQueue": _example(answer)}
        assert settled(recorded, toured) == toured


def test_measurements_change_nothing_but_a_new_field_does() -> None:
    recorded = {"getStatus": _example({"avgLagMs": 1.5, "points": [], "last": None, "busiest": "a"})}
    other = _example({"avgLagMs": 2, "points": [{}], "last": TIME, "busiest": "b"})
    assert settled(recorded, {"getStatus": other}) == recorded
    toured = {"getStatus": _example({"avgLagMs": 1.5, "points": [], "last": None, "busiest": "a", "more": 1})}
    assert settled(recorded, toured) == toured


def test_a_replaced_example_has_the_ids_of_those_that_stay() -> None:
    recorded = {"popQueue": _example({"leaseId": LEASE}), "ack": _example({})}
    toured = {"popQueue": _example({"leaseId": OTHER_LEASE}), "ack": _example({"lease": f"of {OTHER_LEASE}"})}
    assert settled(recorded, toured)["ack"] == _example({"lease": f"of {LEASE}"})


def test_an_operation_that_is_gone_has_no_example() -> None:
    assert settled({"old": _example(1)}, {"new": _example(2)}) == {"new": _example(2)}
