"""Where this server means to answer differently than the original: `tests/data/intended-differences.yaml`.

An entry covers a difference if it lists the record and one of its patterns matches; `*` stands for anything.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from msgspec import Struct

from tests.support.processes import ROOT

FILE = ROOT / "tests" / "data" / "intended-differences.yaml"
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- intended differences: begin -->\n", "<!-- intended differences: end -->\n"
#: Record by record, or in spans such as 26-42.
_SPAN = re.compile(r"(\d+)(?:-(\d+))?")


class Intended(Struct, frozen=True):
    """One way to answer differently.

    Attributes:
        what: what it is about.
        reason: what is answered here, and why.
        differences: patterns of differences.
        records: numbers of the recording.
    """

    what: str
    reason: str
    differences: Sequence[str]
    records: frozenset[int]

    def covers(self, number: int, difference: str) -> str | None:
        """The pattern that matches."""
        if number not in self.records:
            return None
        return next((pattern for pattern in self.differences if _matches(pattern, difference)), None)


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


def load() -> list[Intended]:
    """All entries."""
    entries: list[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return [Intended(each["what"], each["reason"], each["differences"], _numbers(each["records"])) for each in entries]


def _numbers(text: str | int) -> frozenset[int]:
    return frozenset(
        number for first, last in _SPAN.findall(str(text)) for number in range(int(first), int(last or first) + 1)
    )


def judge(observed: Mapping[int, Sequence[str]], entries: Sequence[Intended]) -> Iterator[str]:
    """Complaints: differences that are not intended, and entries, patterns and records that do not occur."""
    used: dict[str, tuple[set[str], set[int]]] = {entry.what: (set(), set()) for entry in entries}
    for number, found in observed.items():
        for difference in found:
            covering = [(entry, pattern) for entry in entries if (pattern := entry.covers(number, difference))]
            if not covering:
                yield f"record {number}: `{difference}` is not intended"
            for entry, pattern in covering:
                used[entry.what][0].add(pattern)
                used[entry.what][1].add(number)
    for entry in entries:
        patterns, numbers = used[entry.what]
        yield from (f"{entry.what}: `{each}` does not occur" for each in entry.differences if each not in patterns)
        if missing := sorted(entry.records - numbers):
            yield f"{entry.what}: does not occur in records {missing}"


def rendered(entries: Sequence[Intended]) -> str:
    """The table of the page."""
    rows = [f"| {entry.what} | {entry.reason} | {len(entry.records)} |\n" for entry in entries]
    return "".join([BEGIN, "| what | here | records |\n", "|---|---|---|\n", *rows, END])


def with_table(page: str) -> str:
    """A page with the table as it should be."""
    begin, end = page.index(BEGIN), page.index(END) + len(END)
    return page[:begin] + rendered(load()) + page[end:]
