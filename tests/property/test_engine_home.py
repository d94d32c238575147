"""Where the engine lives."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from queen.engine.handle import Assemble, Assembled, EngineHandle


class _Homebody:
    """An engine that notes in which threads it is spoken to."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def assembly(self) -> Assemble:
        async def assemble(_answer: Any) -> Assembled:
            self.note()
            engine = SimpleNamespace(accept=self.note, release_waiters=self.note, stop=self.end)
            return Assembled(engine, SimpleNamespace(), self.note, self.end)

        return assemble

    def note(self, *_arguments: object) -> None:
        self.threads.append(threading.current_thread().name)

    async def end(self) -> None:
        self.note()


@pytest.mark.parametrize("own", [True, False], ids=["thread", "loop"])
async def test_all_that_an_engine_does_happens_where_it_lives(own: bool) -> None:
    homebody = _Homebody()
    engine = EngineHandle(homebody.assembly(), asyncio.new_event_loop if own else None)
    await engine.start()
    engine.receive_packet(b"")
    engine.begin_stop()
    await engine.beat()
    await engine.stop()
    expected = "queen-engine" if own else threading.current_thread().name
    assert homebody.threads == [expected] * 5
    assert "queen-engine" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("own", [True, False], ids=["thread", "loop"])
async def test_an_engine_that_was_never_started_can_be_stopped(own: bool) -> None:
    engine = EngineHandle(_Homebody().assembly(), asyncio.new_event_loop if own else None)
    await engine.stop()
    assert "queen-engine" not in {thread.name for thread in threading.enumerate()}
