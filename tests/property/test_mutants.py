"""The mutants: each still makes a fault that can run, each guarantee has one, and the checks that must notice exist."""

import ast
from pathlib import Path

import pytest

from spec.guarantees import FAMILIES, GUARANTEES
from spec.page import scan
from tests.mutants.catalogue import MUTANTS, sample
from tests.mutants.mutant import Edit
from tests.mutants.page import PAGE, render

ROOT = Path(__file__).parents[2]
#: Where `queen verify` has its checks.
VERIFY = ("spec.conformance.", "spec.checkers.")


@pytest.fixture(scope="module")
def checks():
    return scan(ROOT)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.guarantee} {mutant.name}")
def test_a_mutant_changes_what_is_there_once_each_time(mutant):
    before = {edit.path: (ROOT / edit.path).read_text(encoding="utf-8") for edit in mutant.edits}
    after = dict(before)
    for edit in mutant.edits:
        after[edit.path] = edit.applied(after[edit.path])
    assert all(after[path] != before[path] for path in before)
    for path, text in after.items():
        assert not path.endswith(".py") or ast.parse(text, path)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.guarantee} {mutant.name}")
def test_checks_that_have_to_notice_a_mutant_exist(mutant, checks):
    path, _, test = mutant.tests.partition("::")
    own = [check for check in checks if mutant.guarantee in check.ids]
    if not mutant.tests:
        assert [check for check in own if check.module.startswith(VERIFY)]
    else:
        module, name = path.removesuffix(".py").replace("/", "."), test.partition("[")[0]
        assert [check for check in own if check.module == module and name in ("", check.name)]


def test_every_guarantee_has_a_mutant():
    assert {mutant.guarantee for mutant in MUTANTS} == set(GUARANTEES)


def test_every_area_is_in_the_sample_once():
    assert [GUARANTEES[mutant.guarantee].family for mutant in sample()] == list(FAMILIES)


def test_names_of_mutants_tell_them_apart():
    names = [(mutant.guarantee, mutant.name) for mutant in MUTANTS]
    assert len(set(names)) == len(names)


def test_a_text_that_is_not_there_once_is_refused(tmp_path):
    (tmp_path / "file").write_text("one two two")
    Edit("file", "one", "three").apply(tmp_path)
    assert (tmp_path / "file").read_text() == "three two two"
    for text, count in (("two", 2), ("four", 0)):
        with pytest.raises(ValueError, match=f"holds this text {count} times"):
            Edit("file", text, "").apply(tmp_path)


def test_the_page_is_up_to_date():
    assert (ROOT / PAGE).read_text(encoding="utf-8") == render(), "run: python -m tests.mutants --write"
