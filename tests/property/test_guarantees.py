"""The catalogue itself: well-formed ids, checks that name known ones, and a page that is up to date."""

import ast
import re
import runpy
from functools import cache
from pathlib import Path

import pytest

from spec import verify_page
from spec.guarantees import FAMILIES, GUARANTEES, Check, Level, checks, missing_checks
from spec.page import PAGE, main, render_markdown, scan

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("guarantee", GUARANTEES.values(), ids=GUARANTEES)
def test_an_entry_is_well_formed(guarantee):
    assert re.fullmatch(r"G-[A-Z]+-[1-9]\d*", guarantee.id)
    assert guarantee.family in FAMILIES
    assert guarantee.levels
    assert re.fullmatch(r"[^|\n.]{3,60}", guarantee.title), "a few words, fit for a heading"
    for text in (guarantee.statement, guarantee.rationale):
        assert re.fullmatch(r"[^|\n]+[^.\s]\.", text), "sentences in one paragraph"


def test_ids_of_a_family_are_numbered_in_order():
    for family in FAMILIES:
        numbers = [int(id_.rsplit("-", 1)[1]) for id_, guarantee in GUARANTEES.items() if guarantee.family == family]
        assert numbers == list(range(1, len(numbers) + 1))


def test_checks_leaves_what_it_decorates_alone(monkeypatch):
    monkeypatch.setattr("spec.guarantees.REGISTRY", registry := [])

    def test():
        pass

    assert checks("G-ORD-1", "G-ORD-2", level=Level.LIVE)(test) is test
    assert [(check.ids, check.level) for check in registry] == [(("G-ORD-1", "G-ORD-2"), Level.LIVE)]
    assert registry[0].name.endswith("<locals>.test")


def test_checks_of_an_unknown_id_is_refused():
    with pytest.raises(ValueError, match="unknown guarantees: G-ORD-99"):
        checks("G-ORD-1", "G-ORD-99", level=Level.MODEL)(len)


def test_missing_checks_tells_what_nothing_checks():
    everything = [Check((id_,), level, "m", "n") for id_, guarantee in GUARANTEES.items() for level in guarantee.levels]
    assert missing_checks(everything) == []
    assert missing_checks(everything[1:]) == [(everything[0].ids[0], everything[0].level)]


def test_every_guarantee_is_checked_on_each_of_its_levels():
    assert missing_checks(scan(ROOT)) == []


def test_every_guarantee_is_checked_on_each_of_its_levels_by_day():
    """Without the tests that are marked ``nightly``; some parameters of the others may be."""
    assert missing_checks([check for check in scan(ROOT) if not _runs_at_night(check)]) == []


def _runs_at_night(check: Check) -> bool:
    return not {"*", check.name.rsplit(".", 1)[-1]}.isdisjoint(_marked_nightly(check.module))


@cache
def _marked_nightly(module: str) -> set[str]:
    """The names of the marked tests of a module; ``*``: all."""
    source = ast.parse((ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8"))
    every = any(ast.unparse(node) == "pytestmark = pytest.mark.nightly" for node in source.body)
    tests = [node for node in ast.walk(source) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    marked = {test.name for test in tests if "pytest.mark.nightly" in map(ast.unparse, test.decorator_list)}
    return marked | ({"*"} if every else set())


def test_scan_finds_what_the_decorator_records(monkeypatch):
    monkeypatch.setattr("spec.guarantees.REGISTRY", registry := [])
    runpy.run_path(str(ROOT / "tests/property/test_model.py"))
    recorded = [(check.name, check.ids, check.level) for check in registry]
    scanned = [(c.name, c.ids, c.level) for c in scan(ROOT) if c.module == "tests.property.test_model"]
    assert recorded == scanned


def test_scan_reads_nested_things_and_names_the_line_of_a_bad_one(tmp_path):
    (tmp_path / "tests").mkdir()
    source = tmp_path / "tests" / "test_x.py"
    source.write_text('class A:\n    @g.checks("G-ORD-1", level=Level.AUDIT)\n    async def b(self): ...\n')
    assert scan(tmp_path) == [Check(("G-ORD-1",), Level.AUDIT, "tests.test_x", "A.b")]
    for bad in ('"G-NO-1", level=Level.AUDIT', '"G-ORD-1"', "x, level=Level.AUDIT", '"G-ORD-1", level=Level.NO'):
        source.write_text(f"@checks({bad})\ndef f(): ...\n")
        with pytest.raises(ValueError, match=r"tests\.test_x\.f, line 1"):
            scan(tmp_path)


def test_the_page_names_the_files_with_checks():
    names = ("test_y", "test_z")
    page = render_markdown([Check(("G-ORD-1",), Level.MODEL, "tests.property.test_x", name) for name in names])
    assert "Checks: model 2, " in page
    assert "\n- model: [property/test_x.py](../tests/property/test_x.py)\n- live: no check yet\n" in page
    assert page.count("no check yet") == sum(len(guarantee.levels) for guarantee in GUARANTEES.values()) - 1


def test_the_page_has_a_heading_and_an_anchor_for_each_guarantee():
    page = render_markdown([])
    for id_, guarantee in GUARANTEES.items():
        assert f'<a id="{id_.lower()}"></a>\n\n### {id_}: {guarantee.title}\n\n{guarantee.statement}\n' in page
        assert f"](#{id_.lower()})" in page


def test_the_page_is_up_to_date():
    assert main([], ROOT) == 0, f"run: python -m spec.page --write ({PAGE})"


def test_the_page_of_verify_says_for_each_guarantee_what_covers_it_or_why_nothing_does():
    covered = verify_page.covering(scan(ROOT))
    assert covered.keys() | verify_page.WHY_NOT.keys() == set(GUARANTEES)
    assert not covered.keys() & verify_page.WHY_NOT.keys()
    page = verify_page.render(scan(ROOT))
    assert all(f"| [{id_}](guarantees.md#{id_.lower()}) |" in page for id_ in GUARANTEES)


def test_a_page_that_is_not_up_to_date_is_written(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    assert main([], tmp_path) == 1
    assert "--write" in capsys.readouterr().err
    assert main(["--write"], tmp_path) == 0
    assert main([], tmp_path) == 0


@pytest.mark.parametrize("path", ["docs/semantics.md", *sorted(str(p) for p in Path("spec/model").glob("*.py"))])
def test_texts_name_known_guarantees_only(path):
    named = set(re.findall(r"G-[A-Z]+-\d+", (ROOT / path).read_text(encoding="utf-8")))
    assert named <= set(GUARANTEES)
