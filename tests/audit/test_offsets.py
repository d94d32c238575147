"""The gaps that audits find are those of the delivered offsets, in whatever calls and order these came."""

from itertools import pairwise
from random import Random

import pytest

from spark_validation.columns import spark_table
from spark_validation.inputs import Inputs
from spark_validation.journal.schema import Call, Delivery
from spark_validation.run import run

SEEDS = range(60)
PARTITIONS = ("a", "b")


def offsets_of(random: Random) -> list[int]:
    """Some in order, some not; with gaps, and some twice; across the words and buckets that audits count in."""
    first = random.choice([0, 1, 60, 63, 64, 8_190])
    kept = [offset for offset in range(first, first + random.choice([1, 3, 70, 200])) if random.random() > 0.02]
    twice = kept + random.choices(kept, k=random.choice([0, 0, 1, 3])) if kept else kept
    if random.random() < 0.5:
        random.shuffle(twice)
    return twice


def calls_of(seed: int, number: int) -> tuple[list[Call], dict[str, list[int]]]:
    """Pops of one queue, each with messages of both partitions, one after the other or mixed."""
    random = Random(seed)
    told = {partition: offsets_of(random) for partition in PARTITIONS}
    rest = {partition: list(offsets) for partition, offsets in told.items()}
    calls = []
    while any(rest.values()):
        items = []
        for partition, offsets in rest.items():
            count = random.choice([0, 1, 2, 7, 100])
            items += [(partition, offset) for offset in offsets[:count]]
            del offsets[:count]
        if random.random() < 0.2:
            random.shuffle(items)
        deliveries = tuple(Delivery(f"q{seed}", partition, f"{offset}", offset) for partition, offset in items)
        at = 1_000 * (number + len(calls))
        calls.append(
            Call(
                run="r",
                agent="a",
                number=number + len(calls),
                kind="pop",
                sent=at,
                answered=at + 500,
                queue=f"q{seed}",
                deliveries=deliveries,
            )
        )
    return calls, told


def text(below: int, offset: int) -> str:
    one = below + 2 == offset
    missing = f"offset {below + 1}" if one else f"offsets {below + 1} to {offset - 1}"
    return f"{missing} never came to the group, although {offset} did"


@pytest.mark.parametrize("many", [False, True])
def test_each_gap_between_delivered_offsets_is_found_once(engine, many, monkeypatch):
    if many:
        monkeypatch.setattr("spark_validation.tables.columns._BROADCAST_ROWS", 0)
        monkeypatch.setattr("spark_validation.tables.columns._DRIVER_ROWS", 0)
    calls: list[Call] = []
    expected = set()
    for seed in SEEDS:
        added, told = calls_of(seed, len(calls))
        calls += added
        for partition, offsets in told.items():
            gaps = [(low, high) for low, high in pairwise(sorted(set(offsets))) if high > low + 1]
            expected |= {(f"q{seed}", partition, text(low, high)) for low, high in gaps}
    calls.append(Call(run="r", agent="a", number=len(calls), kind="end", sent=10**9))
    verdicts = run(Inputs(calls=spark_table(engine, Call, calls)), ["G-ORD-2"], max_evidence=10_000)
    [found] = [verdict for verdict in verdicts if verdict.audit == "deliveries_leave_no_gap"]
    assert len(expected) > len(SEEDS)
    assert {(each.queue, each.partition, each.text) for each in found.evidence} == expected
    assert found.violations == len(expected)
