"""How pushes are divided among databases, and what becomes of the answers of their parts."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queen.core.errors import DatabaseUnavailableError, PartlyStoredError, QueenError
from queen.log.requests import Buffered, PartitionBatch, PartlyBuffered, Push, Pushed, Stored
from queen.shards.division import DividedPush
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
