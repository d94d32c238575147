"""The spool on a simulated disk that crashes at every boundary: nothing answered is lost, doubled or reordered."""

import asyncio
import os
from typing import Any

import pytest

from queen.core.limits import REPLAY_LANES
from queen.engine import replay
from queen.engine.held_back import HeldLane
from queen.engine.lane_store import LaneStore
from queen.engine.replay_lanes import Batch
from queen.spool.spool import Spool
from spec.guarantees import Level, checks
from tests.support.nightly import mostly_at_night
from tests.support.simulated_folder import SimulatedFolder
from tests.support.spool_world import Postgres, crash_and_recover

#: Seeds that are tried with every crash point; QUEEN_SPOOL_SEEDS=200 for a night.
SEEDS = int(os.environ.get("QUEEN_SPOOL_SEEDS", "6"))
STEPS = 6
#: How probable it is that a partition is slow.
TROUBLE = 0.3


@checks("G-SPOOL-1", "G-SPOOL-2", "G-SPOOL-3", "G-SPOOL-7", "G-ORD-2", "G-DUR-1", "G-SQS-14", level=Level.MODEL)
@pytest.mark.parametrize("power", [False, True], ids=["process", "machine"])
@pytest.mark.parametrize("seed", mostly_at_night(range(SEEDS), range(3)))
def test_crash_at_every_boundary_no_loss_no_duplicates_in_order(seed: int, power: bool) -> None:
    with asyncio.Runner() as runner:
        world, boundaries = runner.run(crash_and_recover(seed, STEPS, 0, power))
        assert boundaries > 20, "a world in which too little happens"
        assert world.answered
        for crash_at in range(1, boundaries + 1):
            try:
                runner.run(crash_and_recover(seed, STEPS, crash_at, power))
            except AssertionError as problem:
                raise AssertionError(f"seed {seed}, crash at {crash_at}, power {power}: {problem}") from problem


@checks("G-SPOOL-9", "G-SPOOL-2", "G-SPOOL-7", "G-ORD-3", "G-SQS-14", level=Level.MODEL)
@pytest.mark.parametrize("power", [False, True], ids=["process", "machine"])
@pytest.mark.parametrize("seed", mostly_at_night(range(SEEDS), range(3)))
def test_crash_while_partitions_are_held_back_no_loss_no_duplicates_in_order(seed: int, power: bool) -> None:
    with asyncio.Runner() as runner:
        _, boundaries = runner.run(crash_and_recover(seed, STEPS, 0, power, TROUBLE))
        for crash_at in range(1, boundaries + 1):
            try:
                runner.run(crash_and_recover(seed, STEPS, crash_at, power, TROUBLE))
            except AssertionError as problem:
                raise AssertionError(f"seed {seed}, crash at {crash_at}, power {power}: {problem}") from problem


def _without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedFolder, "sync", lambda self, _name: self.tick())


def _without_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker looks for itself whether PostgreSQL is there."""
    monkeypatch.setattr(Spool, "spooling", property(lambda self: False))
    monkeypatch.setattr(Spool, "append", lambda self, entries, *, insist: append(self, entries, insist=True))


append = Spool.append


def _without_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay repeats what a call stored whose answer was lost."""
    remembering = Postgres.replay

    async def forgetful(self: Postgres, lane: Any, first: int, *rest: Any) -> Any:
        self.positions[lane] = first
        return await remembering(self, lane, first, *rest)

    monkeypatch.setattr(Postgres, "replay", forgetful)


def _without_flush_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A push of unknown outcome is stored without asking whether it was."""
    monkeypatch.setattr(Postgres, "flushes", property(lambda _self: set(), lambda _self, _value: None), raising=False)


def _removed_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Spool.read

    def read_and_remove(self: Spool, name: str) -> Any:
        file = read(self, name)
        self._folder.remove(name)
        self._folder.append(name, b"")
        return file

    monkeypatch.setattr(Spool, "read", read_and_remove)


def _dealt_out_blindly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests of a partition go to all lanes."""
    monkeypatch.setattr(replay, "lanes_of", lambda units: [units[lane::REPLAY_LANES] for lane in range(REPLAY_LANES)])


def _without_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """All lanes of a file have one position."""
    monkeypatch.setattr(replay, "uuid5", lambda file, _name: file)


def _without_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is held back although it may have been stored, or may still be."""

    async def no_fence(*_: Any) -> None:
        return None

    monkeypatch.setattr(LaneStore, "fence", no_fence)
    monkeypatch.setattr(Batch, "position", property(lambda self: self.begin))


def _without_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers do not know which partitions are held back."""
    monkeypatch.setattr(Spool, "held_back", property(lambda self: {}))


def _tried_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held back is stored while the file that it comes from is still being replayed."""
    monkeypatch.setattr(Spool, "waits", lambda self, _name: False)


def _let_go_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition is let go when its first request is stored."""
    monkeypatch.setattr(HeldLane, "over", property(lambda self: self.done > 0))


@pytest.mark.parametrize("fault", [_without_fence, _without_the_list, _tried_too_early, _let_go_too_early])
def test_broken_holding_back_is_caught(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        asyncio.run(_try_many(TROUBLE))


@pytest.mark.parametrize(
    "fault",
    [
        _without_sync, _without_flag, _without_position, _without_flush_id, _removed_too_early, _dealt_out_blindly,
        _without_the_lane,
    ],
)  # fmt: skip
def test_broken_spool_is_caught(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        asyncio.run(_try_many())


async def _try_many(trouble: float = 0.0) -> None:
    for seed in range(40):
        _, boundaries = await crash_and_recover(seed, STEPS, 0, True, trouble)
        for crash_at in range(1, boundaries, 7):
            await crash_and_recover(seed, STEPS, crash_at, True, trouble)
