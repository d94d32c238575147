"""The verdict on a schedule finds planted faults."""

from dataclasses import replace

from spec.history import Delivery, Push, PushItem
from tests.support.chaos.verdict import Verdict, judge_all, whole_history


def delivery(offset: int, key: str, transaction_id: str | None = None) -> Delivery:
    return Delivery(
        "q", "p", "1", f"id {offset}", transaction_id or f"id {offset}", {"id": key}, offset=offset, attempt=1
    )


def push(number: int, key: str, chosen: str = "", outcome: str = "ok") -> Push:
    item = PushItem("q", "p", chosen, {"id": key}, outcome, spooled=True)  # type: ignore[arg-type]
    end = None if outcome == "unknown" else number * 10 + 5
    return Push(invoked=number * 10, completed=end, outcome=outcome, items=(item,))  # type: ignore[arg-type]


def verdict(pushes: list[Push], log: list[Delivery]) -> Verdict:
    return judge_all(whole_history(pushes, tuple(log), 1000), log)


PUSHES = [push(1, "a"), push(2, "b", "chosen"), push(3, "c", outcome="unknown")]
LOG = [delivery(0, "a"), delivery(1, "b", "chosen")]


def test_log_with_what_was_answered_is_accepted() -> None:
    assert verdict(PUSHES, LOG).faults == {}
    assert verdict(PUSHES, [*LOG, delivery(2, "c")]).faults == {}


def test_lost_message_is_found_with_an_id_of_server_or_producer() -> None:
    for missing in (0, 1):
        log = [replace(each, offset=place) for place, each in enumerate(LOG[:missing] + LOG[missing + 1 :])]
        assert "every_group_gets_every_message" in verdict(PUSHES, log).faults


def test_message_that_is_there_twice_is_found() -> None:
    assert "doubled" in verdict(PUSHES, [*LOG, delivery(2, "a")]).faults


def test_gap_is_found() -> None:
    assert "gaps" in verdict(PUSHES, [LOG[0], replace(LOG[1], offset=2)]).faults
    assert "gaps" in verdict(PUSHES, [replace(LOG[0], offset=1), replace(LOG[1], offset=2)]).faults


def test_messages_in_the_wrong_order_are_found() -> None:
    log = [replace(LOG[1], offset=0), replace(LOG[0], offset=1)]
    assert "pushes_one_after_the_other_keep_their_order" in verdict(PUSHES, log).faults


def test_message_that_was_never_pushed_is_found() -> None:
    assert "deliveries_are_what_was_pushed" in verdict(PUSHES, [*LOG, delivery(2, "z")]).faults


def test_partition_in_two_databases_is_found() -> None:
    log = [*LOG, replace(LOG[0], partition_id=str(1 << 40), payload={"id": "z"})]
    assert "gaps" in verdict(PUSHES, sorted(log, key=lambda each: each.offset or 0)).faults


def test_push_without_an_answer_is_stored_whole_or_not_at_all_in_each_database() -> None:
    lost = PushItem("q", "p", "lost", {"id": "lost"}, "unknown")
    stored = PushItem("q", "other", "stored", {"id": "stored"}, "unknown")
    pushes = [*PUSHES, Push(invoked=50, completed=None, outcome="unknown", items=(lost, stored))]
    for part_id, is_half in ((1 << 40, False), (2, True)):
        there = replace(delivery(0, "stored", "stored"), partition="other", partition_id=str(part_id))
        found = verdict(pushes, [*LOG, there]).faults
        assert ("a_request_is_stored_whole_or_not_at_all" in found) == is_half
