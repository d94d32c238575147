"""Several instances on one PostgreSQL, killed and added under load: every guarantee holds across them."""

import asyncio
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from spec.guarantees import Level, checks
from tests.support.processes import Server, free_port, open_folder
from tests.support.servers import create_database, drop_database, serving_database
from tests.support.traffic import Traffic


def settings(number: int, ports: list[int]) -> dict[str, str]:
    """One of the instances, which all tell each other."""
    peers = ",".join(f"127.0.0.1:{port}" for port in ports)
    return {"QUEEN_SYNC_SECRET": "chaos", "QUEEN_UDP_PEERS": peers, "QUEEN_UDP_NOTIFY_PORT": str(ports[number])}


@pytest.mark.nightly
@checks("G-DUR-1", "G-DUR-2", "G-IDEM-1", "G-ORD-2", "G-ORD-3", "G-ACK-2", "G-ACK-3", level=Level.FAULTS)
@pytest.mark.parametrize(
    "peers", [pytest.param(True, id="udp"), pytest.param(False, id="notify", marks=pytest.mark.nightly)]
)
def test_instances_killed_and_added_under_load_no_loss_no_duplicates_in_order(postgres: str, peers: bool) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    dsn = asyncio.run(create_database(postgres))
    ports = [free_port() for _ in range(3)]
    with open_folder() as folder, ExitStack() as stack:

        def start(number: int) -> Server:
            own = settings(number, ports) if peers else {}
            return stack.enter_context(serving_database(dsn, Path(folder), "--workers", "2", **own))

        servers = [start(0), start(1)]
        traffic = Traffic(url(servers[0]), f"instances-{seed}", seed)
        traffic.urls.append(url(servers[1]))
        body = {"queue": traffic.queue, "options": {"leaseTime": 2}}
        assert servers[0].request("POST", "/api/v1/configure", body)[0] == 200

        async def disturb() -> None:
            servers[0].kill()
            await traffic.progress(100)
            servers.append(await asyncio.to_thread(start, 2))
            traffic.urls[0] = url(servers[2])
            await traffic.progress(100)
            servers[1].kill()
            traffic.urls.pop()

        asyncio.run(traffic.run(disturb))
        asyncio.run(traffic.judge(dsn))
    asyncio.run(drop_database(postgres, dsn))


def url(server: Server) -> str:
    """Where an instance is."""
    return f"http://127.0.0.1:{server.port}"
