"""Common parts of runs of all interfaces: the server, the selected checks, and the progress."""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeAlias, TypeVar

from ..guarantees import Check
from .http import Server
from .report import Report, Row, status_rows
from .results import place, words

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the number of steps done, that of all steps, and what was done last."""

S = TypeVar("S")
C = TypeVar("C")

_CONNECT_S = 10.0


class UnreachableError(Exception):
    """There is no server at the URL, or the URL is invalid."""


def server_at(url: str, token: str | None) -> Server:
    """The server at a URL, as ``http://127.0.0.1:6632``; the token is sent as `Authorization: Bearer`.

    Raises:
        UnreachableError: this is no such URL.
    """
    try:
        return Server.at(url, token)
    except ValueError as problem:
        raise UnreachableError(str(problem)) from problem


def seed_or_new(seed: int | None) -> int:
    """The seed of a workload's choices."""
    return secrets.randbelow(1_000_000_000) if seed is None else seed


@dataclass(kw_only=True)
class Session(ABC, Generic[S, C]):
    """A run: the scenarios, then the workload and its checkers, and in the end the cleaning up.

    Those that are not about one of the guarantees `only` are left out, if any are named; none left is a ValueError.
    """

    server: Server
    seed: int
    scenarios: list[tuple[Check, S]]
    checkers: list[tuple[Check, C]]
    only: frozenset[str]
    progress: Progress
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    done: int = 0
    #: What statuses this interface recommends where servers may differ.
    recommended: ClassVar[Mapping[str, str]]

    def __post_init__(self) -> None:
        if self.only:
            self.scenarios = [each for each in self.scenarios if not self.only.isdisjoint(each[0].ids)]
            self.checkers = [each for each in self.checkers if not self.only.isdisjoint(each[0].ids)]
        if not self.scenarios and not self.checkers:
            raise ValueError(f"no check here is about {', '.join(sorted(self.only))}")

    @abstractmethod
    async def judge(self) -> list[Row]:
        """All results; the server listens."""

    async def connect(self) -> None:
        """See whether the server listens.

        Raises:
            UnreachableError: it does not.
        """
        try:
            await self.server.connect(timeout_s=_CONNECT_S)
        except (OSError, TimeoutError) as problem:
            raise UnreachableError(str(problem) or f"no connection within {_CONNECT_S:g} s") from problem

    @property
    def _steps(self) -> int:
        return len(self.scenarios) + len(self.checkers)

    def step(self, check: Check) -> None:
        """One check more is done."""
        self.done += 1
        self.progress(self.done, self._steps, words(check))

    async def _rows(self) -> list[Row]:
        await self.connect()
        self.progress(0, self._steps, "")
        return sorted(await self.judge(), key=place)

    def report(self, url: str, profile: str) -> Report:
        """Carry it out.

        Raises:
            UnreachableError: no server listens there.
        """
        began = time.monotonic()
        rows = asyncio.run(self._rows())
        statuses = status_rows(self.statuses, self.recommended)
        return Report(url, self.seed, profile, time.monotonic() - began, tuple(rows), statuses)
