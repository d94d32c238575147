"""No procedure costs more than in proportion to what it is given and returns: CPU of the backend, and blocks looked at.

Nothing here depends on how busy the machine is: no elapsed time is looked at, but for a limit of a call far beyond what
any of them takes. `ADR 43 <../../docs/adr/0043-growth-tests.md>`_ says how it is measured.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bench.meter import Cost
from spec.guarantees import Level, checks
from tests.support.growth.cases import SHAPES
from tests.support.growth.measure import Case, Figures, Growth, Measurer, Shape, measurer
from tests.support.growth.world import template
from tests.support.nightly import mostly_at_night

OLD = Path(__file__).parents[1] / "mutants" / "growth"


CASES = [(shape, case) for shape in SHAPES for case in shape.cases]


class Worlds:
    """The databases for the shape that is being measured; those of the one before are dropped."""

    def __init__(self, dsn: str, runner: asyncio.Runner) -> None:
        self._dsn, self._runner = dsn, runner
        self._all, self._of_shape = AsyncExitStack(), AsyncExitStack()
        self._template = runner.run(self._all.enter_async_context(template(dsn)))
        self._measured: tuple[Shape, Measurer] | None = None

    def figures(self, shape: Shape, case: Case, instead: str = "") -> Figures:
        """What a call costs; with other procedures in place of the product's, if they are given."""
        return self._runner.run(self._figures(shape, case, instead))

    async def _figures(self, shape: Shape, case: Case, instead: str) -> Figures:
        if instead:
            async with measurer(self._dsn, self._template, shape, instead) as made:
                return await made.figures(case)
        if self._measured is None or self._measured[0] is not shape:
            self._measured = None
            await self._of_shape.aclose()
            made = await self._of_shape.enter_async_context(measurer(self._dsn, self._template, shape))
            self._measured = shape, made
        return await self._measured[1].figures(case)

    def close(self) -> None:
        self._runner.run(self._of_shape.aclose())
        self._runner.run(self._all.aclose())


@pytest.fixture(scope="module")
def worlds(postgres: str) -> Iterator[Worlds]:
    with asyncio.Runner() as runner:
        made = Worlds(postgres, runner)
        try:
            yield made
        finally:
            made.close()


@checks("G-COST-1", level=Level.LIVE)
@pytest.mark.parametrize(
    ("shape", "case"),
    [
        # Eleven of twelve at night.
        pytest.param(shape, case, id=f"{shape.name}: {case.name}", marks=[pytest.mark.nightly] if number % 12 else [])
        for number, (shape, case) in enumerate(CASES)
    ],
)
def test_a_call_costs_in_proportion(worlds: Worlds, shape: Shape, case: Case) -> None:
    figures = worlds.figures(shape, case)
    print(figures)
    assert figures.problems() == [], str(figures)


#: A call that meets each old version.
MEETS = {
    "push": ("messages of one segment", "push of as many, half stored before"),
    "claim": ("partitions hidden by delayedProcessing", "pop of any"),
    "ack": ("leased messages of a partition", "ack all: every second failed"),
    "sqs": ("messages of a queue of SQS", "purge"),
    "size": ("idle partitions of a queue with a maximum size", "push to one"),
}


@checks("G-COST-1", level=Level.LIVE)
@pytest.mark.parametrize("name", mostly_at_night(MEETS, ["ack", "size"]))
def test_an_old_version_that_grows_too_fast_is_noticed(worlds: Worlds, name: str) -> None:
    """Each of these stopped an instance for everybody once."""
    [(shape, case)] = [(shape, case) for shape, case in CASES if (shape.name, case.name) == MEETS[name]]
    figures = worlds.figures(shape, case, (OLD / f"{name}.sql").read_text(encoding="utf-8"))
    assert figures.problems(), str(figures)


def test_linear_and_superlinear_growth_are_distinguished() -> None:
    def figures(growth: Growth, *cpu_ms: float, blocks: int = 50) -> Figures:
        sizes = (1, 100, 400, 1600)
        return Figures(growth, {size: Cost(ms / 1e3, blocks) for size, ms in zip(sizes, cpu_ms, strict=True)})

    linear, quadratic = (10.1, 20, 50, 170), (10.1, 20, 170, 2570)
    assert figures(Growth.GIVEN, *linear).problems() == []
    assert "256 times" in figures(Growth.GIVEN, *quadratic).problems()[0].replace("259", "256")
    assert figures(Growth.STORED, *linear).problems() != []
    assert figures(Growth.STORED, 1, 1.1, 1.2, 1.3).problems() == []
    assert figures(Growth.GIVEN, 1, 1, 1, 1).problems() == []
    assert Figures(Growth.GIVEN, {}, "at 400: more than 10 s").problems() == ["at 400: more than 10 s"]


def test_no_case_is_listed_twice() -> None:
    assert len({(shape.name, case.name) for shape, case in CASES}) == len(CASES)
