"""The second implementation, in DuckDB, comes to the same verdicts as the audits."""

from collections import Counter

import pytest

from spark_validation.audits import all_audits
from spark_validation.tables import Tables
from tests.audit import second
from tests.audit.conftest import TAKEN_AT, Judged


@pytest.fixture(scope="module")
def opinions(planted: Judged, blurred: Judged) -> list[tuple[Judged, dict]]:
    return [(judged, second.judge(second.as_tables(judged.rows), TAKEN_AT)) for judged in (planted, blurred)]


def test_every_audit_of_queens_interface_has_a_second_implementation():
    assert {audit.name for audit in all_audits(Tables.interface)} == set(second.AUDITS)


@pytest.mark.nightly
@pytest.mark.parametrize("audit", second.AUDITS)
def test_both_report_the_same(opinions, audit):
    for judged, opinion in opinions:
        [verdict] = [each for each in judged.verdicts if each.audit == audit]
        evidence = Counter((each.queue.rpartition(".")[0], each.offset) for each in verdict.evidence)
        by_run = Counter(name for name, _ in evidence.elements())
        assert by_run == Counter(name for name, _ in opinion[audit].elements())
        told = {place for place in opinion[audit] if place[1] is not None}
        if all(offset is not None for _, offset in evidence):
            assert told <= set(evidence)
