"""A cluster of Patroni under load: no fault costs a message, and how long pops and pushes stand still is a figure."""

import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from spec.guarantees import Level, checks
from tests.support.hosts import HUB
from tests.support.patroni import Cluster, Node, cluster
from tests.support.processes import Server, open_folder, wait_until
from tests.support.servers import serving_database
from tests.support.traffic import Journal, Traffic


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    """One for all faults: each ends with three whole nodes."""
    with open_folder() as folder, cluster(folder / "cluster", wal_mb=512) as made:
        yield made


@dataclass(frozen=True)
class Scenario:
    """A fault, and what brings the old primary back when another one has taken over, if that is so."""

    fault: Callable[[Cluster, Node], None]
    recover: Callable[[Cluster, Node], None]
    takes_over: bool = True


def kill(_: Cluster, old: Node) -> None:
    """SIGKILL of Patroni and PostgreSQL: the key in etcd has to expire."""
    old.kill()


def kill_postgres(_: Cluster, old: Node) -> None:
    """SIGKILL of PostgreSQL alone: Patroni gives the key away."""
    old.kill(patroni=False)


def start(_: Cluster, old: Node) -> None:
    old.start_patroni()


def switch_over(nodes: Cluster, _: Node) -> None:
    nodes.switch_over()


def nothing(_: Cluster, old: Node) -> None:
    """Patroni does it."""


def pause(_: Cluster, old: Node) -> None:
    """SIGSTOP of Patroni and PostgreSQL: connections hang."""
    old.signal(signal.SIGSTOP)


def wake_up(_: Cluster, old: Node) -> None:
    old.signal(signal.SIGCONT)


def cut_off_from_peers(nodes: Cluster, old: Node) -> None:
    """Servers reach it, but neither its peers nor etcd do."""
    old.host.cut_off(*(node.host.address for node in nodes.nodes.values() if node is not old))


def cut_off_from_all(nodes: Cluster, old: Node) -> None:
    """No other host reaches it."""
    cut_off_from_peers(nodes, old)
    old.host.cut_off(HUB)


def connect(_: Cluster, old: Node) -> None:
    old.host.connect()


def fill(_: Cluster, old: Node) -> None:
    """No room for the log: PostgreSQL ends itself."""
    old.fill_wal_disk()


def make_room(_: Cluster, old: Node) -> None:
    old.empty_wal_disk()


def rebuild(nodes: Cluster, _: Node) -> None:
    """The standby that commits wait for is thrown away and made anew."""
    assert nodes.synchronous().ask("/reinitialize", {"force": True}, "POST") is not None


SCENARIOS = {
    "disk full": Scenario(fill, make_room),
    "standby rebuilt": Scenario(rebuild, nothing, takes_over=False),
    "killed": Scenario(kill, start),
    "postgres killed": Scenario(kill_postgres, nothing),
    "switchover": Scenario(switch_over, nothing),
    "paused": Scenario(pause, wake_up),
    "cut off from its peers": Scenario(cut_off_from_peers, connect),
    "cut off from all": Scenario(cut_off_from_all, connect),
}


class Stalls:
    """The longest times without a completed message and without an answered push, from now on."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.pops, self.pushes = 0.0, 0.0
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        counts, since = self._counts(), [time.monotonic()] * 2
        while True:
            await asyncio.sleep(0.02)
            new, now = self._counts(), time.monotonic()
            since = [at if same else now for at, same in zip(since, map(int.__eq__, counts, new), strict=True)]
            counts = new
            self.pops, self.pushes = max(self.pops, now - since[0]), max(self.pushes, now - since[1])

    def _counts(self) -> tuple[int, int]:
        return len(self._journal.completed), sum(map(len, self._journal.answered.values()))

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def play(nodes: Cluster, scenario: Scenario, traffic: Traffic) -> str:
    """The scenario under load, and the audit; its figures."""
    figures = ""

    async def disturb() -> None:
        nonlocal figures
        old = await asyncio.to_thread(nodes.wait_until_whole)
        stalls = Stalls(traffic.journal)
        await asyncio.to_thread(scenario.fault, nodes, old)
        new = await asyncio.to_thread(nodes.new_primary, old) if scenario.takes_over else old
        await traffic.progress(150)
        await asyncio.to_thread(scenario.recover, nodes, old)
        await asyncio.to_thread(nodes.wait_until_whole)
        await traffic.progress(150)
        await stalls.stop()
        figures = f"{old.name} to {new.name}: pops stood {stalls.pops:.1f} s, pushes {stalls.pushes:.1f} s"

    await traffic.run(disturb)
    await traffic.judge((await asyncio.to_thread(nodes.wait_until_whole)).dsn)
    return f"{figures}; {traffic.journal.buffered} spooled"


@pytest.mark.parametrize("name", SCENARIOS)
@checks("G-DUR-1", "G-DUR-2", "G-IDEM-1", "G-ORD-2", "G-ORD-3", "G-ACK-2", "G-ACK-3", level=Level.FAULTS)
def test_a_fault_of_the_primary_costs_no_message(nodes: Cluster, name: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    with open_folder() as folder, serving_database(nodes.dsn, folder, "--workers", "2") as server:
        traffic = Traffic(f"http://127.0.0.1:{server.port}", f"patroni-{seed}", seed, rest_s=0.2)
        options = {"queue": traffic.queue, "options": {"leaseTime": 1}}
        assert server.request("POST", "/api/v1/configure", options)[0] == 200
        print(f"{name}: {asyncio.run(play(nodes, SCENARIOS[name], traffic))}")


@checks("G-DUR-1", "G-SPOOL-1", level=Level.FAULTS)
def test_an_old_primary_that_wakes_up_answers_no_push_while_it_believes_to_be_one(nodes: Cluster) -> None:
    old = nodes.wait_until_whole()
    item = {"queue": f"fenced-{time.time_ns()}", "payload": 1}

    def push(server: Server) -> str:
        status, answer = server.request("POST", "/api/v1/push", {"items": [item]})
        assert status == 201
        return str(answer[0]["status"])

    # A server that knows this node only, and Patroni stays stopped: so nothing fences it.
    with (
        open_folder() as folder,
        serving_database(old.dsn, folder, "--workers", "1", DB_STATEMENT_TIMEOUT="2000") as server,
    ):
        assert push(server) == "queued"
        old.signal(signal.SIGSTOP)
        new = nodes.new_primary(old)
        for process in old.postgres():
            process.send_signal(signal.SIGCONT)
        wait_until(old.is_primary, "the old primary, awake")
        server.wait_until_healthy()
        assert push(server) == "buffered", "PostgreSQL answers, but its commit waits for a standby that has left"
        count = f"SELECT count(*) FROM queen.messages WHERE queue = '{item['queue']}'"
        assert old.is_primary()
        assert (old.sql(count).strip(), new.sql(count).strip()) == ("1", "1")
        for process in old.patroni():
            process.send_signal(signal.SIGCONT)
        assert nodes.wait_until_whole() is new
        assert not old.is_primary()
