"""The audits: each finds exactly what was planted, and nothing in runs that are as they should be."""

from collections import defaultdict

import pytest

from queen_audit.run import Result, Verdict
from tests.audit.faults import FAULTS


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


def test_what_a_journal_lacks_is_no_violation(blurred):
    assert {name: dict(audits) for name, audits in found(blurred.verdicts).items()} == {}


NAMES = [f"{each.__name__}@{place}" for each, places in FAULTS.items() for place in places]


@pytest.mark.parametrize("name", ["valid@0", "valid@1", *NAMES])
def test_exactly_what_was_planted_is_found(planted, name):
    there = found(planted.verdicts)[name]
    assert set(there) == set(planted.expected[name]), dict(there)
    for audit, offset in planted.expected[name].items():
        assert len(there[audit]) == 1, there[audit]
        assert offset is None or there[audit][0].offset == offset, there[audit]
