"""Datagrams between the workers of an instance: who gets them, and who needs none."""

import asyncio
from pathlib import Path

from queen.peers.siblings import SiblingsTransport


def test_notifications_of_messages_reach_only_siblings_with_long_polls(tmp_path: Path) -> None:
    async def live() -> None:
        got: dict[str, list[bytes]] = {name: [] for name in "abc"}
        workers = {name: SiblingsTransport(tmp_path / "folder", name) for name in got}
        for name, worker in workers.items():
            await worker.start(got[name].append, lambda: None)
        workers["b"].set_waiting(True)
        workers["a"].send([b"{1}"], waiting_only=True)
        workers["a"].send([b"{2}"])
        workers["b"].set_waiting(False)
        workers["c"].set_waiting(True)
        workers["a"].send([b"{3}"], waiting_only=True)
        while len(got["c"]) < 2:
            await asyncio.sleep(0)
        assert got == {"a": [], "b": [b"{1}", b"{2}"], "c": [b"{2}", b"{3}"]}
        for worker in workers.values():
            await worker.stop()
        assert not (tmp_path / "folder").exists()

    asyncio.run(live())


def test_a_sibling_that_does_not_say_whether_it_waits_gets_everything(tmp_path: Path) -> None:
    async def live() -> None:
        got: list[bytes] = []
        here, there = (SiblingsTransport(tmp_path / "folder", name) for name in "ab")
        await here.start(lambda _packet: None, lambda: None)
        await there.start(got.append, lambda: None)
        (tmp_path / "folder" / "b.waits").unlink()
        here.send([b"{1}"], waiting_only=True)
        while not got:
            await asyncio.sleep(0)
        await here.stop()
        await there.stop()

    asyncio.run(live())


def test_a_sibling_that_was_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    async def live() -> None:
        here, killed = (SiblingsTransport(tmp_path / "folder", name) for name in "ab")
        for worker in (here, killed):
            await worker.start(lambda _packet: None, lambda: None)
        killed._socket.close()  # type: ignore[union-attr]
        here.send([b"{1}"])
        assert {path.name for path in (tmp_path / "folder").iterdir()} == {"a.sock", "a.waits"}
        await here.stop()

    asyncio.run(live())
