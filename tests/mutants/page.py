"""The kill table `docs/mutants.md`."""

from collections.abc import Sequence
from pathlib import Path

from queen_spec.guarantees import GUARANTEES
from tests.mutants.run import Verdict

PAGE = Path("docs/mutants.md")
_TEXT_CHARS_MAX = 160

_HEAD = """# Mutants

Written by `tox -e mutants -- --write`. Each line is a deliberate fault in a copy of the server, and the check of the
guarantee that noticed it first. A guarantee without a mutant, or a mutant that survives, fails the build.
"""


def render(verdicts: Sequence[Verdict]) -> str:
    """One line a mutant, in the order of the catalogue."""
    order = list(GUARANTEES)
    killed = sum(bool(verdict.killer) for verdict in verdicts)
    ids = len({verdict.mutant.guarantee for verdict in verdicts})
    lines = [
        f"{len(verdicts)} mutants of {ids} guarantees, {killed} killed.\n",
        "| guarantee | fault | in | killed by | what it said |",
        "|---|---|---|---|---|",
        *(_row(verdict) for verdict in sorted(verdicts, key=lambda verdict: order.index(verdict.mutant.guarantee))),
    ]
    return "\n".join([_HEAD, *lines, ""])


def _row(verdict: Verdict) -> str:
    mutant = verdict.mutant
    places = ", ".join(f"`{path}`" for path in dict.fromkeys(edit.path for edit in mutant.edits))
    text = " ".join(verdict.text.split()).replace("|", "\\|")
    shown = text if len(text) <= _TEXT_CHARS_MAX else f"{text[:_TEXT_CHARS_MAX]}…"
    return f"| {mutant.guarantee} | {mutant.name} | {places} | {verdict.killer or '**survived**'} | {shown} |"
