"""docs/how-to/major-upgrade.md, step by step, under load: from Debian's PostgreSQL to that of the wheel."""

import asyncio
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queen.embedded import binaries
from spec.guarantees import Level, checks
from tests.patroni.test_failover import Stalls
from tests.support.outage import wait_until_drained
from tests.support.patroni import programs
from tests.support.processes import ROOT, Server, wait_until
from tests.support.servers import start_on_database
from tests.support.standby import Pair
from tests.support.traffic import Traffic

GUIDE = (ROOT / "docs" / "how-to" / "major-upgrade.md").read_text()
#: The statements of the guide, in its order.
(PUBLISH, KEEP_AWAY, SUBSCRIBE, LEFT, STOP, ARRIVED, SEQUENCES, ITSELF, LET_IN) = re.findall(
    r"```sql\n(.*?)```", GUIDE, re.DOTALL
)
QUEUE = "upgrade"


def lines(block: str) -> list[str]:
    """The statements of a block."""
    return [" ".join(each.split()) for each in re.split(r";\s*\n", block) if each.strip()]


class Upgrade:
    """The two clusters."""

    def __init__(self, old: Pair, new: Pair) -> None:
        self.old, self.new = old, new

    @property
    def dsn(self) -> str:
        """Both, as the servers' role."""
        sockets = ",".join(str(pair.socket_of("one").parent) for pair in (self.old, self.new))
        return f"postgresql://queen_server@/postgres?host={sockets}&port=5432,5432"

    def prepare(self) -> None:
        """The first part of the guide, without the dump, which needs both."""
        for statement in lines(PUBLISH):
            self.old.sql("one", statement)
        self._feed((ROOT / "deploy" / "postgresql" / "roles.sql").read_text())
        self.new.sql("one", "ALTER ROLE queen_server SUPERUSER")
        # The wheel's PostgreSQL has no lz4.
        options = ("--schema-only", "--schema=queen", "--schema=simple_mq", "--no-toast-compression")
        dump = self.new._run("pg_dump", *options, self.old.dsn_of("one"))
        self._feed(dump)
        for statement in lines(KEEP_AWAY):
            self.new.sql("one", statement)
        [subscribe] = lines(SUBSCRIBE)
        place = f"host={self.old.socket_of('one').parent} port=5432 dbname=postgres user=postgres"
        self.new.sql("one", re.sub("CONNECTION '[^']*'", f"CONNECTION '{place}'", subscribe))
        wait_until(lambda: self.new.sql("one", LEFT).strip() == "0", "the copy")

    def switch(self) -> None:
        """The second part."""
        for statement in lines(STOP):
            self.old.sql("one", statement)
        wait_until(lambda: self.old.sql("one", ARRIVED).strip() == "t", "the end of the log on the new side")
        self._feed(self.old.sql("one", SEQUENCES))
        for statement in (*lines(ITSELF), *lines(LET_IN)):
            self.new.sql("one", statement)

    def _feed(self, script: str) -> None:
        command = [binaries.folder() / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.new.dsn_of("one")]
        done = subprocess.run(command, input=script, text=True, check=False, capture_output=True)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def upgrade(folder: Path) -> Iterator[Upgrade]:
    pairs = []
    try:
        for name, where, configuration in (("old", programs(), "wal_level = logical\n"), ("new", None, "")):
            (folder / name).mkdir()
            pairs.append(Pair(folder / name, f"max_wal_senders = 5\n{configuration}", where))
            pairs[-1].start(with_standby=False)
        yield Upgrade(*pairs)
    finally:
        for pair in pairs:
            pair.stop()


async def run(upgrade: Upgrade, server: Server, seed: int) -> None:
    traffic = Traffic(f"http://127.0.0.1:{server.port}", QUEUE, seed, rest_s=0.05)

    async def disturb() -> None:
        await asyncio.to_thread(upgrade.prepare)
        await traffic.progress(150)
        stalls = Stalls(traffic.journal)
        await asyncio.to_thread(upgrade.switch)
        await traffic.progress(150)
        await stalls.stop()
        print(f"pops stood {stalls.pops:.1f} s, pushes {stalls.pushes:.1f} s; {traffic.journal.buffered} spooled")

    await traffic.run(disturb)
    await asyncio.to_thread(wait_until_drained, server)
    await traffic.judge(upgrade.new.dsn_of("one"))


@checks("G-DUR-1", "G-DUR-2", "G-IDEM-1", "G-ORD-2", "G-ORD-3", "G-ACK-2", level=Level.FAULTS)
def test_a_major_upgrade_under_load_costs_no_message(folder: Path, upgrade: Upgrade) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    upgrade.old.sql("one", "CREATE ROLE queen_server SUPERUSER LOGIN")
    server = start_on_database(upgrade.dsn, folder, "--workers", "2")
    try:
        server.wait_until_healthy()
        for name in (QUEUE, "sql"):
            options = {"queue": name, "options": {"leaseTime": 1}}
            assert server.request("POST", "/api/v1/configure", options)[0] == 200
        # The outbox has moved something: its position is in the old numbers of transactions.
        upgrade.old.sql("one", "SELECT queen.push('sql', '1'::jsonb)")
        wait_until(lambda: stored_with_sql(upgrade.old) == ["1"], "a push with SQL")
        asyncio.run(run(upgrade, server, seed))
        assert "18" in upgrade.new.sql("one", "SHOW server_version")
        upgrade.new.sql("one", "SELECT queen.push('sql', '2'::jsonb)")
        wait_until(lambda: stored_with_sql(upgrade.new) == ["1", "2"], "a push with SQL on the new side")
        # A new queue gets an id that no other has.
        status, _ = server.request("POST", "/api/v1/push", {"items": [{"queue": "new", "payload": 1}]})
        assert status == 201
    finally:
        if server.process.poll() is None:
            server.stop()


def stored_with_sql(pair: Pair) -> list[str]:
    return pair.sql("one", "SELECT payload FROM queen.messages WHERE queue = 'sql' ORDER BY off").split()
