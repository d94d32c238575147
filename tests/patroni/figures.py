"""How long pops and pushes stand still when the primary is killed, by settings: python -m tests.patroni.figures."""

import asyncio

from tests.patroni.test_failover import SCENARIOS, play
from tests.support import hosts, patroni
from tests.support.processes import open_folder
from tests.support.servers import serving_database
from tests.support.traffic import Traffic

#: ttl, loop_wait, retry_timeout, and whether HAProxy leads to the primary.
SETTINGS = ((20, 1, 3, False), (20, 2, 5, False), (20, 2, 5, True), (30, 10, 10, False))


def measure(ttl: int, loop_wait: int, retry_timeout: int, *, haproxy: bool) -> str:
    """The figures of one cluster."""
    settings = {"ttl": ttl, "loop_wait": loop_wait, "retry_timeout": retry_timeout}
    with open_folder() as folder, patroni.cluster(folder / "cluster", **settings) as nodes:
        dsn = nodes.haproxy() if haproxy else nodes.dsn
        with serving_database(dsn, folder, "--workers", "2") as server:
            traffic = Traffic(f"http://127.0.0.1:{server.port}", "figures", 29, rest_s=0.2)
            options = {"queue": traffic.queue, "options": {"leaseTime": 1}}
            assert server.request("POST", "/api/v1/configure", options)[0] == 200
            return asyncio.run(play(nodes, SCENARIOS["killed"], traffic))


def main() -> None:
    """Prints a line for each."""
    if why := patroni.problem():
        raise SystemExit(why)
    hosts.enter_a_network()
    for *settings, haproxy in SETTINGS:
        print(*settings, "HAProxy" if haproxy else "list of hosts", measure(*settings, haproxy=haproxy), flush=True)


if __name__ == "__main__":
    main()
