"""Shapes of data, and requests that meet them, for a search: made, measured and removed again."""

from dataclasses import dataclass, replace
from enum import Enum

from hypothesis import strategies as st

from bench.meter import Cost
from queen.core.administration import MessageFilter, Seek
from tests.support.growth.cases import EVER, retention, seek
from tests.support.growth.world import GROUP, Stock, World

_MESSAGES_MAX, _PARTITIONS_MAX, _ITEMS_MAX, _GROUPS_MAX, _DELETED_MAX = 1_500, 300, 1_500, 10, 30
#: What every call costs, in items: a call of one item is no worse for it.
_CONSTANT = 10


class Hidden(Enum):
    """Why no pop gets the messages."""

    NO = {}  # noqa: RUF012 - options of a queue
    DELAY = {"delayed_processing": 7200}  # noqa: RUF012
    WINDOW = {"window_buffer": 3600}  # noqa: RUF012


class Before(Enum):
    """What the group has done before."""

    NOTHING = ""
    LEASED = "leased"
    GAPS = "c"
    FAILED = "f"
    DEAD = "d"


@dataclass(frozen=True)
class Shape:
    """What is stored.

    Attributes:
        each: messages of a partition, in so many segments.
        every: of the messages something was done with before, every second, third …
        deleted: messages of the first partition that were deleted.
    """

    partitions: int
    each: int
    segments: int
    chosen: bool
    groups: int
    hidden: Hidden
    before: Before
    every: int
    deleted: int


@dataclass(frozen=True)
class Push:
    """Items in turns to some partitions; of a hundred so many are stored already."""

    items: int
    partitions: int
    known: int
    transaction: bool


@dataclass(frozen=True)
class Pop:
    """So many pops in a call."""

    pops: int
    parts: int
    batch: int
    named: bool
    auto_ack: bool


@dataclass(frozen=True)
class Ack:
    """Leased messages of the first partitions, every second, third …, with kinds in turns."""

    kinds: str
    every: int
    by_id: bool
    backwards: bool


class Other(Enum):
    """What is not on the hot path."""

    LIST = "list"
    SEEK = "seek to the beginning"
    SUBSCRIBE = "first pop of a group"
    RETENTION = "retention"


Request = Push | Pop | Ack | Other


@dataclass(frozen=True)
class Scene:
    """A shape of data and a request."""

    shape: Shape
    request: Request


@dataclass(frozen=True)
class Found:
    """What a scene cost, in all and an item."""

    scene: Scene
    items: int
    cost: Cost

    @property
    def cpu_ms(self) -> float:
        """Milliseconds an item."""
        return 1e3 * self.cost.cpu_s / (self.items + _CONSTANT)

    @property
    def blocks(self) -> float:
        """Blocks an item."""
        return self.cost.blocks / (self.items + _CONSTANT)

    def __str__(self) -> str:
        return f"{self.cpu_ms:.3f} ms and {self.blocks:.1f} blocks an item, of {self.items}: {self.scene}"


@st.composite
def _shapes(draw: st.DrawFn, scale: int) -> Shape:
    """Not more messages in all than can be made in a moment."""
    partitions = draw(st.integers(1, scale * _PARTITIONS_MAX))
    each = draw(st.integers(1, max(scale * _MESSAGES_MAX // partitions, 1)))
    return Shape(
        partitions, each, draw(st.integers(1, min(each, 30))), draw(st.booleans()), draw(st.integers(1, _GROUPS_MAX)),
        draw(st.sampled_from(Hidden)), draw(st.sampled_from(Before)), draw(st.integers(1, 4)),
        draw(st.integers(0, min(each - 1, _DELETED_MAX))),
    )  # fmt: skip


def scenes(scale: int) -> st.SearchStrategy[Scene]:
    """Scenes of up to 1,500 messages in up to 300 partitions, and so many times as many."""
    partitions = st.integers(1, scale * _PARTITIONS_MAX)
    known = st.sampled_from((0, 1, 50, 99, 100))
    requests = st.one_of(
        st.builds(Push, st.integers(1, scale * _ITEMS_MAX), partitions, known, st.booleans()),
        st.builds(
            Pop, st.integers(1, 50), partitions, st.integers(1, scale * _MESSAGES_MAX), st.booleans(), st.booleans()
        ),
        st.builds(Ack, st.text("cfdr", min_size=1, max_size=3), st.integers(1, 4), st.booleans(), st.booleans()),
        st.sampled_from(Other),
    )
    return st.builds(Scene, _shapes(scale), requests)


async def measured(world: World, scene: Scene) -> Found:
    """Makes the shape, measures the request, and removes all again. Of three times the least counts."""
    if isinstance(scene.request, Ack):  # there is something to ack
        scene = replace(scene, shape=replace(scene.shape, hidden=Hidden.NO, before=Before.LEASED, deleted=0))
    stock = await _made(world, scene.shape)
    await world.settle()
    try:
        best: Found | None = None
        for _ in range(3):
            items = 0

            async def call() -> None:
                nonlocal items
                items = await _REQUEST[type(scene.request)](world, stock, scene)

            cost = await world.meter.measure(call, keep=False)
            best = Found(scene, items, cost if best is None else best.cost.least(cost))
    finally:
        await world.administration.delete_queue(stock.queue)
    assert best is not None
    return best


async def _made(world: World, shape: Shape) -> Stock:
    """The first group is the one that did something before, and that is asked."""
    hidden = shape.hidden is not Hidden.NO
    stock = await world.stock(shape.partitions, group=not hidden, **shape.hidden.value)
    stock.n = shape.each // shape.segments * shape.segments
    await world.fill(stock, shape.each // shape.segments, shape.segments, "t" if shape.chosen else None)
    if shape.hidden is Hidden.DELAY:
        await world.join(stock)
        await world.configure(stock, delayed_processing=3600)
    elif hidden:
        await world.join(stock)
    elif shape.before is not Before.NOTHING:
        await world.lease(stock)
        if shape.before is not Before.LEASED:
            places = [(part, offset) for part in stock.parts for offset in range(stock.n)[:: shape.every]]
            await world.ack(world.acks(stock, places, shape.before.value))
            if stock.lease is not None:
                await world.store.release_leases([stock.lease])
    for number in range(1, shape.groups):
        await world.join(stock, f"idle{number}", "new")
    for offset in range(1, min(shape.deleted + 1, stock.n)):
        await world.delete_at(stock, offset)
    return stock


async def _push(world: World, stock: Stock, scene: Scene) -> int:
    request = scene.request
    assert isinstance(request, Push)
    partitions = min(request.partitions, len(stock.parts))
    messages = []
    for item in range(request.items):
        known = item % 100 < request.known and scene.shape.chosen and not request.transaction
        place = item // partitions
        text = f"t{place}" if known and place < stock.n else f"new{place}"
        messages.append((item % partitions, text))
    columns = world.flush(stock, messages)
    await (world.execute(columns) if request.transaction else world.push(columns))
    return request.items


async def _pop(world: World, stock: Stock, scene: Scene) -> int:
    request = scene.request
    assert isinstance(request, Pop)
    named = stock.parts if request.named else (None,)
    delivered = await world.pop(
        stock.groups[:1], pops=request.pops, batch=request.batch, parts=request.parts, named=named,
        auto_ack=request.auto_ack,
    )  # fmt: skip
    # What is hidden has to be put off, and what is done ahead to be left out.
    hidden = scene.shape.partitions if scene.shape.hidden is not Hidden.NO else 0
    ahead = stock.n if scene.shape.before is not Before.NOTHING or scene.shape.deleted else 0
    return request.pops + world.count(delivered) + hidden + ahead


async def _ack(world: World, stock: Stock, scene: Scene) -> int:
    request = scene.request
    assert isinstance(request, Ack)
    places = [(part, offset) for part in stock.parts for offset in range(stock.n)[:: request.every]]
    by_id = request.by_id and scene.shape.chosen
    await world.ack(world.acks(stock, places[::-1] if request.backwards else places, request.kinds, by_id))
    return len(places)


async def _other(world: World, stock: Stock, scene: Scene) -> int:
    messages = len(stock.parts) * stock.n
    match scene.request:
        case Other.LIST:
            return len(await world.messages.page(MessageFilter(queue=stock.queue), EVER, 100, 0))
        case Other.SEEK:
            await seek(world, Seek(GROUP, stock.queue))
            return len(stock.parts)
        case Other.SUBSCRIBE:
            await world.join(Stock(stock.queue), "new")
            return len(stock.parts)
        case _:
            await retention(world, stock)
            return messages


_REQUEST = {Push: _push, Pop: _pop, Ack: _ack, Other: _other}
