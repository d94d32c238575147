"""Long polls that wait in a sibling: each ends once, and no lease is forgotten, whatever becomes of the datagrams."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest

from queen.engine.lending import LENT_S, Lending
from queen.log.requests import Claim, Pop, Popped
from spec.guarantees import Level, checks
from tests.support.virtual_time import run

POP = Pop("q", wait_ms=30_000)


class Sibling:
    """A worker that lends and borrows. What it borrows is served, ends unserved, or is never heard of again.

    Attributes:
        leased: leases that a push here has given.
        released: leases that it has released.
    """

    def __init__(self, origin: str, network: "Network") -> None:
        self.origin, self.network = origin, network
        self.lending = Lending(self, asyncio.get_running_loop().time, self.borrow, self.release)
        self.guests: dict[UUID, Callable[[Popped], bool]] = {}
        self.leased: list[UUID] = []
        self.released: Counter[UUID] = Counter()
        self.full = False

    def post(self, origin: str, datagram: bytes) -> bool:
        return self.network.post(self.origin, origin, datagram)

    def borrow(self, _pop: Pop, lease: UUID, answer: Callable[[Popped], bool]) -> Callable[[], None] | None:
        if self.full:
            return None
        self.guests[lease] = answer

        def end() -> None:
            if self.guests.pop(lease, None) is not None:
                answer(Popped())

        return end

    def release(self, _pop: Pop, lease: UUID) -> None:
        self.released[lease] += 1

    def serve(self) -> None:
        """A push here gives its messages to the guest that has waited longest."""
        lease = next(iter(self.guests))
        answer = self.guests.pop(lease)
        self.leased.append(lease)
        if not answer(Popped(lease, [Claim(1, "q", "p", 0, frozenset(), -1, 1, [])])):
            self.release(POP, lease)


class Network:
    """Datagrams between siblings.

    Attributes:
        loses: whether the next one is lost without a word.
        delay_s: how long it takes.
    """

    def __init__(self) -> None:
        self.siblings: dict[str, Sibling] = {}
        self.loses: Callable[[], bool] = lambda: False
        self.delay_s: Callable[[], float] = lambda: 0.0

    def join(self, origin: str) -> Sibling:
        self.siblings[origin] = Sibling(origin, self)
        return self.siblings[origin]

    def post(self, sender: str, receiver: str, datagram: bytes) -> bool:
        if receiver not in self.siblings:
            return False
        if not self.loses():
            loop = asyncio.get_running_loop()
            loop.call_later(self.delay_s(), self.siblings[receiver].lending.receive, sender, datagram)
        return True


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@checks("G-WAIT-1", level=Level.MODEL)
def test_a_long_poll_is_served_where_it_waits() -> None:
    async def scenario() -> None:
        network = Network()
        home, away = network.join("home"), network.join("away")
        lent = asyncio.ensure_future(home.lending.lend(POP, "away"))
        await turn()
        away.serve()
        popped, looks = await lent
        assert popped is not None
        assert (popped.lease, looks) == (away.leased[0], False)
        assert not home.released

    run(scenario())


@checks("G-WAIT-1", level=Level.MODEL)
def test_a_long_poll_that_is_recalled_returns_at_once_and_looks() -> None:
    async def scenario() -> None:
        network = Network()
        home, away = network.join("home"), network.join("away")
        lent = [asyncio.ensure_future(home.lending.lend(pop, "away")) for pop in (POP, POP, Pop("r"))]
        await turn()
        begun = asyncio.get_running_loop().time()
        home.lending.recall(POP.wait_key, 1)
        answers = [await lent[0]]
        home.lending.recall_all()
        answers += await asyncio.gather(*lent[1:])
        assert all(looks and popped is not None and not popped.claims for popped, looks in answers)
        assert asyncio.get_running_loop().time() == begun
        assert not away.guests

    run(scenario())


@pytest.mark.parametrize("reason", ["no such worker", "full"])
def test_a_long_poll_that_finds_no_room_waits_at_home(reason: str) -> None:
    async def scenario() -> None:
        network = Network()
        home, away = network.join("home"), network.join("away")
        away.full = True
        origin = "nobody" if reason == "no such worker" else "away"
        popped, looks = await home.lending.lend(POP, origin)
        assert not (popped and popped.claims)
        assert not looks

    run(scenario())


@checks("G-LEASE-5", level=Level.MODEL)
def test_the_lease_of_a_long_poll_without_an_answer_is_released_and_again_when_the_answer_comes_late() -> None:
    async def scenario() -> None:
        network = Network()
        home, away = network.join("home"), network.join("away")
        lent = asyncio.ensure_future(home.lending.lend(POP, "away"))
        await turn()
        (lease,) = away.guests
        assert await lent == (None, True)
        assert home.released == {lease: 1}
        away.serve()
        await turn()
        assert home.released == {lease: 2}

    run(scenario())


@checks("G-LEASE-5", "G-WAIT-1", level=Level.MODEL)
@pytest.mark.parametrize("attempt", range(20))
def test_no_lease_is_forgotten_when_datagrams_are_lost_or_late(attempt: int) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    random = Random(seed)

    async def scenario() -> None:
        network = Network()
        home, away = network.join("home"), network.join("away")
        network.loses = lambda: random.random() < 0.2
        network.delay_s = lambda: random.choice([0, 0.001, 0.15, 0.5])
        delivered: Counter[UUID] = Counter()

        async def consumer() -> None:
            for _ in range(20):
                popped, _ = await home.lending.lend(POP, "away")
                if popped is not None and popped.lease is not None:
                    delivered[popped.lease] += 1

        async def producer() -> None:
            while True:
                await asyncio.sleep(random.random() * LENT_S)
                if away.guests and random.random() < 0.8:
                    away.serve()
                if random.random() < 0.2:
                    home.lending.recall(POP.wait_key, 1)

        producing = asyncio.ensure_future(producer())
        async with asyncio.timeout(1000):
            await asyncio.gather(*[consumer() for _ in range(3)])
        producing.cancel()
        await asyncio.sleep(10)
        released = home.released.keys() | away.released.keys()
        assert set(delivered.values()) <= {1}
        assert set(away.leased) <= delivered.keys() | released
        assert not delivered.keys() & home.released.keys(), "a lease that is delivered is not released"

    run(scenario())


@pytest.mark.parametrize(
    ("said", "pop", "parked", "to"),
    [
        ([], POP, 1, None),
        ([("a", ())], POP, 0, "a"),
        ([("a", ())], Pop("r"), 1, None),
        ([("a", ())], Pop("q", partition="p"), 1, None),
        ([("a", ())], Pop("q", auto_ack=True), 1, None),
        ([("", ())], POP, 1, None),
        ([("a", ()), ("", ())], POP, 1, "a"),
        ([("a", ()), ("", ())], POP, 0, None),
        ([("a", (POP.group,))], POP, 1, None),
        ([("a", ()), ("a", (POP.group,))], POP, 1, "a"),
        ([("a", ("g",)), ("a", ("g", POP.group))], Pop("q", group="g"), 1, None),
    ],
)
def test_a_long_poll_is_lent_where_messages_are_stored_that_no_consumer_there_takes(
    said: list[tuple[str, tuple[str, ...]]], pop: Pop, parked: int, to: str | None
) -> None:
    async def scenario() -> None:
        lending = Network().join("home").lending
        for origin, served in said:
            lending.want("q", origin, 1, served)
        assert lending.wanted_by(pop, parked) == to
        await asyncio.sleep(2)
        assert lending.wanted_by(pop, parked) is None

    run(scenario())


@pytest.mark.parametrize(("messages", "lent"), [(1, 1), (3, 3), (100, 16)])
def test_as_many_long_polls_are_lent_as_a_sibling_stores_messages(messages: int, lent: int) -> None:
    async def scenario() -> None:
        network = Network()
        home, away = network.join("home"), network.join("away")
        home.lending.want("q", "away", messages)
        while (origin := home.lending.wanted_by(POP, 1000)) is not None:
            returning = asyncio.ensure_future(home.lending.lend(POP, origin))
            await turn()
        assert len(away.guests) == lent
        home.lending.recall_all()
        await returning

    run(scenario())


def test_siblings_that_store_messages_get_equal_numbers_of_long_polls() -> None:
    async def scenario() -> None:
        network = Network()
        home, siblings = network.join("home"), [network.join(name) for name in ("a", "b", "c")]
        for each in siblings:
            home.lending.want("q", each.origin, 100)
        for _ in range(9):
            origin = home.lending.wanted_by(POP, 1000)
            assert origin is not None
            returning = asyncio.ensure_future(home.lending.lend(POP, origin))
            await turn()
        assert [len(each.guests) for each in siblings] == [3, 3, 3]
        home.lending.recall_all()
        await returning

    run(scenario())


def test_datagrams_that_cannot_be_read_are_passed_over() -> None:
    async def scenario() -> None:
        home = Network().join("home")
        for datagram in (b"", b"\xff", b"\x93\x01\x02", b"[1,2]"):
            home.lending.receive("stranger", datagram)
        assert not home.guests

    run(scenario())
