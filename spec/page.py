"""The page `docs/guarantees.md`: the catalogue, with links to the checks that the source files name.

The checks are read from the sources and not by importing them, so the page does not depend on what is installed.
`python -m queen_spec.page` says whether the page is up to date; with `--write` it makes it so.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .guarantees import FAMILIES, GUARANTEES, Check, Guarantee, Level, missing_checks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FOLDERS = ("spec", "tests", "bench", "spark_validation")
PAGE = Path("docs/guarantees.md")

HEAD = """# Guarantees

Generated from `spec/guarantees.py` and the `@checks` in the sources by `python -m queen_spec.page --write`.
[How to read it](../spec/README.md).

*S* is a safety guarantee (what never happens), *L* one of liveness (what does happen, and by when). A level without
a link has no check yet.
"""


def scan(root: Path) -> list[Check]:
    """Every `@checks(...)` in the Python files of a source tree, in the order of their paths.

    Raises:
        ValueError: a check names an unknown guarantee, or names it other than by literals.
    """
    paths = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    return [check for path in paths for check in _checks_of(path, path.relative_to(root))]


def _checks_of(path: Path, relative: Path) -> Iterator[Check]:
    module = ".".join(relative.with_suffix("").parts)
    return _walk(ast.parse(path.read_text(encoding="utf-8"), str(path)), module, "")


def _walk(node: ast.AST, module: str, prefix: str) -> Iterator[Check]:
    for child in ast.iter_child_nodes(node):
        name = prefix
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{child.name}"
            for decorator in child.decorator_list:
                if isinstance(decorator, ast.Call) and _last_name(decorator.func) == "checks":
                    yield _check(decorator, module, name)
            name += "." if isinstance(child, ast.ClassDef) else ".<locals>."
        yield from _walk(child, module, name)


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _check(call: ast.Call, module: str, name: str) -> Check:
    levels = [keyword.value for keyword in call.keywords if keyword.arg == "level"]
    try:
        ids = tuple(str(ast.literal_eval(argument)) for argument in call.args)
        return Check(ids, Level[_last_name(levels[0])], module, name)
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError(f"{module}.{name}, line {call.lineno}: {error}") from error


def render_markdown(registry: Iterable[Check]) -> str:
    """The page: one table for each family."""
    registry = list(registry)
    missing = missing_checks(registry)
    needed = sum(len(guarantee.levels) for guarantee in GUARANTEES.values())
    count = f"{len(GUARANTEES)} guarantees, {needed} levels to check, {needed - len(missing)} of them checked.\n"
    return "\n".join([HEAD, count, *(_table(family, title, registry) for family, title in FAMILIES.items())])


def _table(family: str, title: str, registry: list[Check]) -> str:
    rows = [_row(guarantee, registry) for guarantee in GUARANTEES.values() if guarantee.family == family]
    return "\n".join([f"## {title}\n", "| id | statement | kind | levels |", "|---|---|---|---|", *rows, ""])


def _row(guarantee: Guarantee, registry: list[Check]) -> str:
    levels = "<br>".join(filter(None, (_level(level, guarantee, registry) for level in Level)))
    statement = f"{guarantee.statement}<br>*{guarantee.rationale}*"
    return f"| {guarantee.id} | {statement} | {guarantee.kind[0].upper()} | {levels} |"


def _level(level: Level, guarantee: Guarantee, registry: list[Check]) -> str:
    links = [_link(check) for check in registry if check.level is level and guarantee.id in check.ids]
    if links:
        return f"{level.value}: {', '.join(links)}"
    return level.value if level in guarantee.levels else ""


def _link(check: Check) -> str:
    return f"[`{check.name}`](../{check.module.replace('.', '/')}.py)"


def main(arguments: list[str], root: Path) -> int:
    """Write the page, or say whether it is up to date."""
    page, text = root / PAGE, render_markdown(scan(root))
    if "--write" in arguments:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{PAGE} is out of date: run `python -m queen_spec.page --write`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
