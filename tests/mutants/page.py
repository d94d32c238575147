"""The kill table `docs/mutants.md`."""

from collections.abc import Sequence
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.run import Verdict

PAGE = Path("docs/mutants.md")
_TEXT_CHARS_MAX = 160

_HEAD = """# Mutants

Written by `tox -e mutants -- --write`. Each line is a deliberate fault in a copy of the server, and the check of the
guarantee that noticed it first. A guarantee without a mutant, or a mutant that survives, fails the build.
"""


def render(verdicts: Sequence[Verdict], before: str = "") -> str:
    """One line a mutant, in the order of the catalogue; those that were not run keep their lines of before."""
    lines = {_key(line): line for line in before.splitlines() if line.startswith("| G-")}
    lines |= {_key(line): line for line in map(_row, verdicts)}
    shown = [lines[key] for mutant in MUTANTS if (key := (mutant.guarantee, mutant.name)) in lines]
    ids = len({_key(line)[0] for line in shown})
    killed = sum("**survived**" not in line for line in shown)
    count = f"{len(shown)} mutants of {ids} guarantees, {killed} killed.\n"
    head = ["| guarantee | fault | in | killed by | what it said |", "|---|---|---|---|---|"]
    return "\n".join([_HEAD, count, *head, *shown, ""])


def _key(line: str) -> tuple[str, str]:
    guarantee, name, *_ = line.removeprefix("| ").split(" | ")
    return guarantee, name


def _row(verdict: Verdict) -> str:
    mutant = verdict.mutant
    places = ", ".join(f"`{path}`" for path in dict.fromkeys(edit.path for edit in mutant.edits))
    text = " ".join(verdict.text.split()).replace("|", "\\|")
    shown = text if len(text) <= _TEXT_CHARS_MAX else f"{text[:_TEXT_CHARS_MAX]}…"
    return f"| {mutant.guarantee} | {mutant.name} | {places} | {verdict.killer or '**survived**'} | {shown} |"
