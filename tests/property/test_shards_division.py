"""How pushes are divided among databases, and what becomes of the answers of their parts."""

from collections.abc import Mapping
from functools import reduce
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import defstruct

from queen.core.errors import DatabaseUnavailableError, PartlyStoredError, QueenError
from queen.core.job_type import JobType
from queen.core.placement import ShardList, first_list, queue_on, with_added
from queen.log.requests import Buffered, PartitionBatch, PartlyBuffered, Push, Pushed, Stored
from queen.shards.division import DividedPush, SimpleMqDivision, divisions
from queen.simple_mq.sqs_administration import dead_letter_name_for, group_of
from spec.guarantees import Level, checks

OUTCOMES = st.sampled_from(["stored", "buffered", "failed"])


def result_of(outcome: str, part: Push) -> Any:
    """What a database answers to its part: its messages have the number of their partition as the offset."""
    if outcome == "failed":
        return DatabaseUnavailableError("down")
    if outcome == "buffered":
        return Buffered()
    return Pushed([Stored(0, int(batch.partition), 0) for batch in part.batches])


@checks("G-SHARD-2", level=Level.MODEL)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.fixed_dictionaries(dict.fromkeys(range(4), OUTCOMES)))
def test_answers_come_in_the_order_of_the_push_or_as_an_error(slots: list[int], outcomes: Mapping[int, str]) -> None:
    push = Push([PartitionBatch("q", str(n), [n], b"", [0], None) for n in range(len(slots))], len(slots))
    places: dict[int, list[int]] = {}
    for number, slot in enumerate(slots):
        places.setdefault(slot, []).append(number)
    divided = DividedPush(push, places)
    results = {slot: result_of(outcomes[slot], part) for slot, part in divided.requests.items()}
    seen = {outcomes[slot] for slot in slots}
    if "failed" in seen:
        with pytest.raises(QueenError) as raised:
            divided.join(results)
        assert isinstance(raised.value, PartlyStoredError) == (seen != {"failed"})
        return
    joined = divided.join(results)
    if seen == {"buffered"}:
        assert isinstance(joined, Buffered)
        return
    assert isinstance(joined, PartlyBuffered if "buffered" in seen else Pushed)
    for number, (slot, each) in enumerate(zip(slots, joined.stored, strict=True)):
        assert isinstance(each, Buffered) if outcomes[slot] == "buffered" else each.first == number


NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,20}(--[A-Za-z0-9_-]{1,10})?(\.fifo)?", fullmatch=True)
QUEUE_JOBS = [kind for kind in JobType if isinstance(divisions(None, range(4)).get(kind), SimpleMqDivision)]  # type: ignore[arg-type]


@checks("G-SHARD-9", level=Level.MODEL)
@given(st.uuids(version=4), st.integers(0, 3), st.sampled_from(QUEUE_JOBS), st.sampled_from(["queue", "queue_id"]))
def test_every_request_of_a_queue_goes_to_the_database_that_made_it(
    number: UUID, slot: int, kind: JobType, field: str
) -> None:
    assert {JobType.ENQUEUE, JobType.DEQUEUE, JobType.SQS_SEND, JobType.SQS_DELETE} <= set(QUEUE_JOBS)
    request = defstruct("Request", [(field, UUID)])(queue_on(number, slot))
    assert divisions(None, range(4))[kind].slots(request) == [slot]  # type: ignore[arg-type]


@checks("G-SHARD-9", level=Level.MODEL)
@given(NAMES, st.lists(st.sampled_from("defg"), unique=True))
def test_queues_whose_names_are_equal_up_to_two_hyphens_have_the_same_places(name: str, added: list[str]) -> None:
    known: ShardList = reduce(with_added, added, first_list(["a", "b", "c"], []))
    for beside in (dead_letter_name_for(name), group_of(name)):
        assert beside.endswith(".fifo") == name.endswith(".fifo")
        assert known.candidates("", group_of(beside)) == known.candidates("", group_of(name))
