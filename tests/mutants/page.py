"""The page `docs/mutants.md`: what mutants are, and how many each guarantee has."""

from collections import Counter
from pathlib import Path

from spec.guarantees import FAMILIES, GUARANTEES
from tests.mutants.catalogue import MUTANTS

PAGE = Path("docs/mutants.md")

_HEAD = """# Mutants

A mutant is a deliberate fault in a copy of the server, such as "a lease lasts five seconds longer". It breaks one
[guarantee](guarantees.md), and the checks of that guarantee must notice. Mutants therefore test the checks: a mutant
that *survives* shows that a check is missing or too weak.

A mutant replaces a text in the sources ([`catalogue.py`](../tests/mutants/catalogue.py),
[`simple_mq.py`](../tests/mutants/simple_mq.py)). A server runs from the changed copy of the tree, and `queen verify`
judges it over HTTP. If the fault cannot be seen over HTTP, the tests that the mutant names judge the copy.
[ADR 18](adr/0018-mutants-in-copies-of-the-tree.md) gives the reasons.

| command | what it does |
|---|---|
| `tox -e mutants` | runs all mutants, and fails if one survives |
| `tox -e mutants -- G-ORD-1 G-ORD-2` | runs the mutants of these guarantees |
| `tox -e mutants-sample` | runs one mutant per area |
| `tox -e mutants -- --list` | lists the mutants and where their checks are, without running them |
| `tox -e mutants -- --write` | writes this page |

`tests/property/test_mutants.py` checks the catalogue without a server: each guarantee has a mutant, each text occurs
exactly once in its file, the changed Python can be parsed, and the checks that have to notice exist.

Each guarantee has one mutant, or as many as this table says:
"""


def render() -> str:
    """The page: one row per area."""
    counts = Counter(mutant.guarantee for mutant in MUTANTS)
    head = ["| area | mutants | guarantees with several |", "|---|---|---|"]
    return "\n".join([_HEAD, *head, *(_row(family, counts) for family in FAMILIES), ""])


def _row(family: str, counts: Counter[str]) -> str:
    own = [id_ for id_, guarantee in GUARANTEES.items() if guarantee.family == family]
    several = ", ".join(f"{id_}: {counts[id_]}" for id_ in own if counts[id_] > 1)
    return f"| {FAMILIES[family]} | {sum(counts[id_] for id_ in own)} | {several} |"
