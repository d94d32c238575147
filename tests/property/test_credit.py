"""Credit under random programs: what is held is what was given and neither settled nor ended."""

from datetime import UTC, datetime
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from queen.http.socket.credit import Credit
from queen.log.requests import Claim, Slice
from spec.guarantees import Level, checks

NOW = datetime(2030, 1, 1, tzinfo=UTC)
leases = st.integers(1, 3).map(lambda number: UUID(int=number))
parts = st.integers(1, 2)


def claim(part_id: int) -> Claim:
    return Claim(part_id, "q", "p", 0, frozenset(), 0, 1, [Slice(0, NOW, b"", 0, b"")])


class Program(RuleBasedStateMachine):
    """A consumer that is given only what there is room for."""

    def __init__(self) -> None:
        super().__init__()
        self.credit = Credit(5)
        self.held: dict[tuple[UUID, int, int], int] = {}
        self.batch = 0

    @rule(lease=leases, part_id=parts, count=st.integers(1, 8))
    def give(self, lease: UUID, part_id: int, count: int) -> None:
        if count > self.credit.room or self.credit.find(lease, part_id) is not None:
            return
        self.batch += 1
        self.credit.give(self.batch, lease, claim(part_id), range(count), {"x": 0})
        self.held.update({(lease, part_id, offset): self.batch for offset in range(count)})

    @rule(lease=leases, part_id=parts, offset=st.integers(0, 8))
    def settle(self, lease: UUID, part_id: int, offset: int) -> None:
        self.credit.settle(lease, part_id, offset)
        self.held.pop((lease, part_id, offset), None)

    @rule(lease=leases, part_id=st.none() | parts)
    def end(self, lease: UUID, part_id: int | None) -> None:
        self.credit.end(lease, part_id)
        self.held = {k: v for k, v in self.held.items() if k[0] != lease or part_id not in (None, k[1])}

    @rule(limit=st.integers(0, 12))
    def limit(self, limit: int) -> None:
        self.credit.limit = limit

    @invariant()
    def is_what_is_held(self) -> None:
        assert len(self.credit) == len(self.held)
        assert self.credit.room == max(0, self.credit.limit - len(self.held))
        assert {(h.lease, h.part_id, o): h.batch for h in self.credit.held for o in h.offsets} == self.held
        for batch in range(1, self.batch + 1):
            of_batch = [(held.lease, held.part_id, offset) for held, offset in self.credit.of_batch(batch)]
            assert of_batch == sorted(of_batch, key=lambda key: key[2])
            assert set(of_batch) == {key for key, value in self.held.items() if value == batch}
        for number in range(1, 4):
            lease = UUID(int=number)
            assert self.credit.holds(lease) == any(key[0] == lease for key in self.held)


@checks("G-STR-3", level=Level.MODEL)
def test_credit_counts_what_is_held() -> None:
    run_state_machine_as_test(Program)
