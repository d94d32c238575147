"""The mutants: each still changes something, each guarantee has one, and the table shows that all were killed."""

import re
from pathlib import Path

import pytest

from queen_spec.guarantees import GUARANTEES
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Edit
from tests.mutants.page import PAGE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.guarantee} {mutant.name}")
def test_a_mutant_changes_what_is_there(mutant):
    assert mutant.guarantee in GUARANTEES
    assert [problem for edit in mutant.edits if (problem := edit.problem(ROOT))] == []
    assert all(edit.old != edit.new for edit in mutant.edits)


def test_every_guarantee_has_a_mutant():
    assert set(GUARANTEES) - {mutant.guarantee for mutant in MUTANTS} == set()


def test_names_of_mutants_tell_them_apart():
    names = [(mutant.guarantee, mutant.name) for mutant in MUTANTS]
    assert len(set(names)) == len(names)


def test_the_table_shows_that_every_mutant_was_killed():
    rows = re.findall(
        r"^\| (G-\S+) \| (.+?) \| `.*?` \| (.+?) \|", (ROOT / PAGE).read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {(guarantee, name) for guarantee, name, _ in rows} == {(mutant.guarantee, mutant.name) for mutant in MUTANTS}
    assert [row for row in rows if "survived" in row[2]] == []


def test_a_text_that_is_not_there_once_is_refused(tmp_path):
    (tmp_path / "file").write_text("one two two")
    Edit("file", "one", "three").apply(tmp_path)
    assert (tmp_path / "file").read_text() == "three two two"
    for text, count in (("two", 2), ("four", 0)):
        with pytest.raises(ValueError, match=f"holds this text {count} times"):
            Edit("file", text, "").apply(tmp_path)
