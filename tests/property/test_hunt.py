"""A hunt for the shape of data and the request that cost PostgreSQL most, an item: CPU of the backend, and blocks.

A few scenes in each run, always the same; thousands of larger ones in `tox -e property-nightly`.
QUEEN_TEST_SEED=17 repeats one.
"""

import asyncio
import os
import random
from contextlib import AsyncExitStack

import pytest
from hypothesis import given, seed, settings, target

from spec.guarantees import Level, checks
from tests.support.growth.scenes import Found, Scene, measured, scenes
from tests.support.growth.world import template, world

#: Of the examples that other tests try, one of so many: a scene takes a part of a second, a nightly one seconds.
_SHARE = 4
_NIGHTLY_SCALE = 4
#: Several times what anything in proportion takes.
CPU_MS_MAX, BLOCKS_MAX = 1.0, 1_000.0
_SEED_OF_EACH_RUN = 21


class Hunt:
    """The worst so far."""

    def __init__(self) -> None:
        self.scenes = 0
        self.most_cpu: Found | None = None
        self.most_blocks: Found | None = None

    def saw(self, found: Found) -> None:
        self.scenes += 1
        if self.most_cpu is None or found.cpu_ms > self.most_cpu.cpu_ms:
            self.most_cpu = found
        if self.most_blocks is None or found.blocks > self.most_blocks.blocks:
            self.most_blocks = found

    def __str__(self) -> str:
        return f"{self.scenes} scenes\n  most CPU: {self.most_cpu}\n  most blocks: {self.most_blocks}"


@checks("G-COST-1", level=Level.LIVE)
def test_no_scene_costs_out_of_proportion(postgres: str, capsys: pytest.CaptureFixture[str]) -> None:
    profile = settings.default
    assert profile is not None
    chosen = _SEED_OF_EACH_RUN if profile.derandomize else random.SystemRandom().getrandbits(32)
    number = int(os.environ.get("QUEEN_TEST_SEED", chosen))
    hunt = Hunt()

    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        source = runner.run(stack.enter_async_context(template(postgres)))
        made = runner.run(stack.enter_async_context(world(postgres, source)))

        @seed(number)
        @settings(max_examples=max(profile.max_examples // _SHARE, 5), database=None, print_blob=False)
        @given(scenes(1 if profile.derandomize else _NIGHTLY_SCALE))
        def look(scene: Scene) -> None:
            found = runner.run(measured(made, scene))
            hunt.saw(found)
            target(found.cpu_ms, label="CPU an item, ms")
            target(found.blocks, label="blocks an item")
            assert found.cpu_ms <= CPU_MS_MAX, str(found)
            assert found.blocks <= BLOCKS_MAX, str(found)

        try:
            look()
        finally:
            runner.run(stack.aclose())
            with capsys.disabled():
                print(f"\nhunt with QUEEN_TEST_SEED={number}: {hunt}")
    assert hunt.scenes > 0
