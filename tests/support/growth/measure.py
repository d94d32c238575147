"""What a call costs at three sizes, and whether that grows too fast."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import Enum

from bench.meter import Cost
from queen.core.errors import TooSlowError
from tests.support.growth.world import LIMIT_S, StuckError, World, world

#: A call is repeated until so much CPU was seen, but so often at least and at most; the least of all counts. A call
#: that takes much longer is not repeated.
_REPEATS_MIN, _REPEATS_MAX, _SEEN_S, _LONG_S = 3, 6, 0.03, 0.25
#: Differences below these are noise, whatever their ratio.
_CPU_NOISE_S, _BLOCKS_NOISE = 0.0003, 12
#: A red measurement is made again, so often; all must be red.
_LOOKS = 3


class Growth(Enum):
    """What a dimension is, and what 16 times as much of it may cost."""

    #: It is part of what is given or returned: 64 times as much as at the smallest size, the constant taken off.
    #: 16 is linear, 256 is quadratic, and this is as far from the one as from the other: the CPU of what does not fit
    #: into the processor's caches was seen to be 48 times as much beside other load.
    GIVEN = 64.0
    #: It is only stored, and the call has nothing to do with it: 4 times as much, the constant included.
    STORED = 4.0


@dataclass(frozen=True)
class Case:
    """A call on a world of some shape, made as large as the dimension says.

    Attributes:
        name: which call.
        call: carries it out once; what it changes is undone.
        growth: whether the dimension of the shape is given to the call, or only stored.
        kept: the call yields many calls, each a transaction that is kept; so the shape is built again each time.
    """

    name: str
    call: "Callable[[World, object], Awaitable[object]] | None" = None
    growth: Growth = Growth.GIVEN
    kept: "Callable[[World, object], AsyncIterator[Callable[[], Awaitable[object]]]] | None" = None


@dataclass(frozen=True)
class Shape:
    """A world, by its one dimension.

    Attributes:
        name: what there is n times.
        build: makes it of some size; returns what the calls have to know.
        n: the smallest of the three sizes.
        cases: the calls that are measured on it.
    """

    name: str
    build: Callable[[World, int], Awaitable[object]]
    n: int
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Figures:
    """The cost at each size: 1, for the constant, n, 4 n and 16 n; and what there was to say of it."""

    growth: Growth
    costs: Mapping[int, Cost]
    problem: str = ""

    @property
    def hopeless(self) -> bool:
        """So far beyond that measuring again would change nothing."""
        return bool(self.problem) or any(ratio > 2 * self.growth.value for _, ratio, _ in self._ratios())

    def problems(self) -> list[str]:
        """What grows too fast."""
        if self.problem:
            return [self.problem]
        allowed = self.growth.value
        return [
            f"{name}: {ratio:.0f} times, allowed {allowed:g} ({shown})"
            for name, ratio, shown in self._ratios()
            if ratio > allowed
        ]

    def _ratios(self) -> list[tuple[str, float, str]]:
        """Of each figure, what the largest costs compared with the smallest, and the largest."""
        one, small, _, large = self.costs.values()
        figures = (
            ("CPU", one.cpu_s, small.cpu_s, large.cpu_s, _CPU_NOISE_S, f"{1e3 * large.cpu_s:.2f} ms"),
            ("blocks", one.blocks, small.blocks, large.blocks, _BLOCKS_NOISE, str(large.blocks)),
        )
        taken = 1 if self.growth is Growth.GIVEN else 0
        return [
            (name, (high - taken * constant) / max(low - taken * constant, noise), shown)
            for name, constant, low, high, noise, shown in figures
        ]

    def __str__(self) -> str:
        shown = ", ".join(
            f"{size}: {1e3 * cost.cpu_s:.2f} ms {cost.blocks} blocks" for size, cost in self.costs.items()
        )
        return f"{shown} {self.problem}"


class Measurer:
    """Measures the calls of one shape. Each size has a world of its own: also what is looked at in all queues grows."""

    def __init__(self, shape: Shape, worlds: Mapping[int, World]) -> None:
        self._shape, self._worlds = shape, worlds
        self._built: dict[int, object] = {}

    @staticmethod
    def sizes(shape: Shape) -> tuple[int, int, int, int]:
        """One, for the constant, and the three that are compared."""
        return 1, shape.n, 4 * shape.n, 16 * shape.n

    async def build(self) -> None:
        """Makes all sizes."""
        for size, there in self._worlds.items():
            self._built[size] = await self._shape.build(there, size)

    async def figures(self, case: Case) -> Figures:
        """What a call costs; measured again where that is too much, in case others disturbed it."""
        found = await self._once(case)
        for again_before in range(_LOOKS - 1):
            if not found.problems() or (again_before and found.hopeless):
                break
            again = await self._once(case)
            if found.problem or again.problem:
                found = again
                continue
            found = Figures(case.growth, {size: cost.least(again.costs[size]) for size, cost in found.costs.items()})
        return found

    async def _once(self, case: Case) -> Figures:
        costs: dict[int, Cost] = {}
        for size, there in self._worlds.items():
            await there.settle()  # calls that were undone have left their rows behind
            try:
                costs[size] = await (self._kept(there, case, size) if case.kept else self._undone(there, case, size))
            except TooSlowError:
                return Figures(case.growth, costs, f"at {size}: more than {LIMIT_S:g} s")
            except StuckError:
                return Figures(case.growth, costs, f"at {size}: no progress any more")
        return Figures(case.growth, costs)

    async def _undone(self, there: World, case: Case, size: int) -> Cost:
        """The least of several times: the first one also makes plans and fills caches."""
        assert case.call is not None
        call, stock, least, seen_s = case.call, self._built[size], None, 0.0
        for repeat in range(1, 1 + _REPEATS_MAX):
            cost = await there.meter.measure(lambda: call(there, stock), keep=False)
            least = cost if least is None else least.least(cost)
            seen_s += cost.cpu_s
            if seen_s > _LONG_S or (repeat >= _REPEATS_MIN and seen_s > _SEEN_S):
                break
        assert least is not None
        return least

    async def _kept(self, there: World, case: Case, size: int) -> Cost:
        assert case.kept is not None
        stock = await self._shape.build(there, size)
        await there.settle()
        cost = Cost()
        async for call in case.kept(there, stock):
            cost += await there.meter.measure(call, keep=True)
        return cost


@asynccontextmanager
async def measurer(dsn: str, template: str, shape: Shape, instead: str = "") -> AsyncIterator[Measurer]:
    """A measurer whose worlds are made; ``instead`` is SQL that puts other procedures in place of the product's."""
    async with AsyncExitStack() as stack:
        worlds = {size: await stack.enter_async_context(world(dsn, template)) for size in Measurer.sizes(shape)}
        made = Measurer(shape, worlds)
        await made.build()
        for each in worlds.values() if instead else ():
            await each.replace(instead)
        yield made
