"""How complex functions are, by radon's count: one more than the branches, loops and conditions that each has."""

from pathlib import Path

from radon.complexity import cc_visit
from radon.visitors import Function

_ROOT = Path(__file__).parents[2]
_MAX = 12


def test_functions_are_simple() -> None:
    files = [
        path
        for folder in ("bench", "pyspark_queen", "queen", "spark_validation", "spec")
        for path in (_ROOT / folder).rglob("*.py")
    ]
    complex_functions = {
        f"{path.relative_to(_ROOT)}: {block.fullname}"
        for path in (*files, _ROOT / "queen_command.py")
        for block in cc_visit(path.read_text())
        if isinstance(block, Function) and block.complexity > _MAX
    }
    assert not complex_functions, "make them simpler: CONTRIBUTING.md"
