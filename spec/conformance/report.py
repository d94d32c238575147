"""The report of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal["valid", "invalid", "unknown", "skipped"]

OUTCOMES: tuple[Outcome, ...] = ("invalid", "unknown", "skipped", "valid")


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one check for one guarantee; `evidence` is what shows a violation, a script or a history."""

    id: str
    check: str
    result: Outcome
    text: str = ""
    level: str = "live"
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class StatusRow:
    """The statuses that a kind of answer had; no guarantee depends on them."""

    situation: str
    recommended: str
    seen: tuple[tuple[int, int], ...]

    @property
    def as_recommended(self) -> bool:
        """Whether all of them are what this interface recommends."""
        recommended = self.recommended.split(" or ")
        return all(str(status) in recommended or f"{status // 100}xx" in recommended for status, _ in self.seen)

    @property
    def shown(self) -> str:
        """Each status with its count."""
        return ", ".join(f"{status} ({count})" for status, count in self.seen)


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a run, by guarantee; `seed` and `profile` repeat its choices."""

    url: str
    seed: int
    profile: str
    seconds: float
    rows: tuple[Row, ...]
    statuses: tuple[StatusRow, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing is invalid and nothing unknown: what could not be seen has not been shown."""
        return bool(self.rows) and all(row.result in {"valid", "skipped"} for row in self.rows)

    @property
    def is_violated(self) -> bool:
        """Whether something is invalid."""
        return any(row.result == "invalid" for row in self.rows)

    @property
    def summary(self) -> str:
        """One line with the number of results of each kind."""
        counts = Counter(row.result for row in self.rows)
        numbers = ", ".join(f"{counts[outcome]} {outcome}" for outcome in reversed(OUTCOMES))
        ids = len({row.id for row in self.rows})
        return f"{ids} guarantees, {len(self.rows)} results: {numbers}; seed {self.seed}, {self.seconds:.1f} s"


RECOMMENDED = {
    "push": "201",
    "pop, with messages": "200",
    "pop, empty": "204",
    "pop of an unknown queue": "204",
    "malformed request": "4xx",
}


def status_rows(statuses: Counter[tuple[str, int]], recommended: Mapping[str, str]) -> tuple[StatusRow, ...]:
    """The counts of a run by situation, each with what is recommended: 200 where nothing is said."""
    situations = sorted({situation for situation, _ in statuses})
    return tuple(
        StatusRow(
            situation,
            recommended.get(situation, "200"),
            tuple(sorted((status, count) for (name, status), count in statuses.items() if name == situation)),
        )
        for situation in situations
    )
