"""A cluster of three nodes that Patroni manages, each on a host of its own with etcd; and HAProxy before it."""

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import psutil
import yaml

from tests.support import hosts
from tests.support.hosts import CommandError, Host
from tests.support.processes import wait_until

NAMES = ("one", "two", "three")
_USER = "postgres"
_START_S = 120.0
#: Without base backups that are made.
_STANDBYS = f"SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND application_name IN {NAMES}"
#: Settings of the cluster as deploy/patroni/ has them.
DYNAMIC = Path(__file__).parents[2] / "deploy" / "patroni" / "cluster.yaml"


def programs() -> Path | None:
    """Debian's programs of PostgreSQL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def problem() -> str:
    """Why there can be no cluster here; empty if there can."""
    missing = [f"{name} ({package})" for name, package in _NEEDED.items() if _find(name) is None]
    if programs() is None:
        missing.append("PostgreSQL's programs (postgresql)")
    return f"needs {', '.join(missing)}" if missing else hosts.problem()


_NEEDED = {
    "etcd": "Debian's etcd-server",
    "haproxy": "Debian's haproxy",
    "patroni": "PyPI's patroni[etcd3,psycopg3]",
}


def _find(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin")


class Node:
    """One of them."""

    def __init__(self, name: str, host: Host, folder: Path) -> None:
        self.name, self.host, self.folder = name, host, folder
        self.data, self.wal, self.log = folder / "data", folder / "wal", folder / "node.log"
        folder.mkdir()
        shutil.chown(folder, _USER, _USER)

    @property
    def dsn(self) -> str:
        """This node alone, whatever it is."""
        return f"postgresql://postgres@{self.host.address}:5432/postgres"

    def start_etcd(self, members: str) -> None:
        """Its vote."""
        address, folder = self.host.address, self.folder / "etcd"
        command = [
            "etcd", "--name", self.name, "--data-dir", folder, "--initial-cluster", members,
            "--listen-client-urls", f"http://{address}:2379", "--advertise-client-urls", f"http://{address}:2379",
            "--listen-peer-urls", f"http://{address}:2380", "--initial-advertise-peer-urls", f"http://{address}:2380",
            # Three of them share two cores with all the rest.
            "--heartbeat-interval", "200", "--election-timeout", "2000", "--logger", "zap",
            "--initial-cluster-state", "existing" if folder.exists() else "new",
        ]  # fmt: skip
        self.host.spawn(command, self.folder / "etcd.log", _USER)

    def start_patroni(self) -> None:
        """Patroni, which starts PostgreSQL."""
        program = _find("patroni")
        assert program is not None
        self.host.spawn([program, self.folder / "patroni.yaml"], self.log, _USER)

    def patroni(self) -> list[psutil.Process]:
        """Its processes of Patroni."""
        return self.host.processes(lambda each: any(part.endswith("/patroni") for part in each.cmdline()[:2]))

    def postgres(self) -> list[psutil.Process]:
        """Its processes of PostgreSQL."""
        return self.host.processes(lambda each: each.name() == "postgres")

    def kill(self, *, patroni: bool = True) -> None:
        """Kills PostgreSQL, and Patroni before it; etcd goes on."""
        for process in (*(self.patroni() if patroni else ()), *self.postgres()):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to Patroni and all of PostgreSQL; etcd goes on."""
        for process in (*self.patroni(), *self.postgres()):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def give_wal_a_disk(self, megabytes: int) -> None:
        """Its log gets a disk of its own, before the node is started for the first time."""
        self.wal.mkdir()
        self.host.run(
            "mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700,uid={_USER},gid={_USER}", "tmpfs", self.wal
        )

    def fill_wal_disk(self) -> None:
        """Takes all its room, and lets PostgreSQL use what it has put aside."""
        with suppress(CommandError):
            self.host.run("dd", "if=/dev/zero", f"of={self.wal / 'ballast'}", "bs=64k")
        with suppress(CommandError):
            while True:
                self.sql("SELECT pg_logical_emit_message(false, 'queen', ''); SELECT pg_switch_wal()")

    def empty_wal_disk(self) -> None:
        """Gives the room back."""
        self.host.run("rm", self.wal / "ballast")

    def ask(self, path: str, body: Any = None, method: str = "GET") -> Any:
        """An answer of Patroni's REST interface; None if it does not answer."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://{self.host.address}:8008{path}", data, method=method)
        try:
            with urlopen(request, timeout=60 if data else 2) as response:
                text = response.read()
        except (URLError, OSError):
            return None
        try:
            return json.loads(text)
        except ValueError:
            return text.decode()

    def sql(self, statement: str) -> str:
        """What psql prints, on the node itself."""
        return self.host.run(
            _program("psql"), "-X", "-At", "-h", str(self.folder), "-U", "postgres", "-c", statement, user=_USER
        )

    def is_primary(self) -> bool:
        """Whether it takes writes, by its own word."""
        try:
            return self.sql("SELECT pg_is_in_recovery()").strip() == "f"
        except CommandError:
            return False


class Cluster:
    """All three."""

    def __init__(self, folder: Path, wal_mb: int = 0, **settings: Any) -> None:
        self.folder, self._wal_mb = folder, wal_mb
        self.settings = yaml.safe_load(DYNAMIC.read_text())
        self.settings |= settings
        made = [Host(number) for number in range(1, 4)]
        self.nodes = {name: Node(name, host, folder / name) for name, host in zip(NAMES, made, strict=True)}
        self._haproxy: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """Whichever is the primary, by a list of hosts."""
        hosts_ = ",".join(f"{node.host.address}:5432" for node in self.nodes.values())
        return f"postgresql://postgres@{hosts_}/postgres?target_session_attrs=read-write"

    def start(self) -> None:
        """Makes the cluster: returns when one is the primary and waits for another."""
        for node in self.nodes.values():
            node.host.power_on()
        members = ",".join(f"{name}=http://{node.host.address}:2380" for name, node in self.nodes.items())
        for node in self.nodes.values():
            if self._wal_mb:
                node.give_wal_a_disk(self._wal_mb)
            self._configure(node)
            node.start_etcd(members)
        first, *others = self.nodes.values()
        first.start_patroni()
        wait_until(first.is_primary, "a first primary", _START_S)
        for node in others:
            node.start_patroni()
        self.wait_until_whole()

    def stop(self) -> None:
        """Ends all of it."""
        if self._haproxy is not None:
            self._haproxy.kill()
            self._haproxy.wait()
        for node in self.nodes.values():
            node.host.power_off()

    def primary(self, *leaving_out: Node) -> Node | None:
        """The node that Patroni calls the primary and that takes writes."""
        for node in self.nodes.values():
            if node not in leaving_out and node.host.is_on:
                answer = node.ask("/patroni")
                if answer and answer.get("role") == "primary" and answer.get("state") == "running":
                    return node
        return None

    def new_primary(self, old: Node) -> Node:
        """Returns when another one is the primary."""
        return wait_until(lambda: self.primary(old), f"a primary after {old.name}")

    def wait_until_whole(self, *leaving_out: Node) -> Node:
        """Returns the primary when all others stream from it and it waits for as many as it shall."""

        def is_whole() -> Node | None:
            primary = self.primary(*leaving_out)
            if primary is None:
                return None
            try:
                standbys = int(primary.sql(_STANDBYS))
            except CommandError:  # it is one no more
                return None
            wanted = 2 - len(leaving_out)
            # PostgreSQL waits for a standby before etcd says that it may take over.
            members = (primary.ask("/cluster") or {}).get("members", [])
            in_sync = not self.settings["synchronous_mode"] or "sync_standby" in [each["role"] for each in members]
            return primary if standbys == wanted and in_sync else None

        return wait_until(is_whole, "all standbys", _START_S)

    def synchronous(self) -> Node:
        """The standby that commits wait for."""
        primary = self.wait_until_whole()
        name = primary.sql("SELECT application_name FROM pg_stat_replication WHERE sync_state = 'sync'").strip()
        return self.nodes[name]

    def switch_over(self) -> tuple[Node, Node]:
        """A planned one; the old and the new primary."""
        old = self.wait_until_whole()
        answer = old.ask("/switchover", {"leader": old.name}, "POST")
        assert answer is not None, "the switchover was refused"
        return old, self.new_primary(old)

    def haproxy(self) -> str:
        """Starts HAProxy as deploy/patroni/ has it, on this side of the bridge; the connection string."""
        path = self.folder / "haproxy.cfg"
        text = (DYNAMIC.parent / "haproxy.cfg").read_text()
        for name, node in self.nodes.items():
            text = text.replace(f"pg-{name}:", f"{node.host.address}:")
        path.write_text(text)
        program = _find("haproxy")
        assert program is not None
        self._haproxy = subprocess.Popen([program, "-db", "-q", "-f", path])
        return "postgresql://postgres@127.0.0.1:5432/postgres"

    def _configure(self, node: Node) -> None:
        address = node.host.address
        account = {"username": "postgres"}
        wanted: dict[str, Any] = {
            "scope": "queen",
            "name": node.name,
            "restapi": {"listen": f"{address}:8008", "connect_address": f"{address}:8008"},
            "etcd3": {"hosts": [f"{each.host.address}:2379" for each in self.nodes.values()]},
            "bootstrap": {
                "dcs": self.settings,
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"{address}:5432",
                "connect_address": f"{address}:5432",
                "data_dir": str(node.data),
                "bin_dir": str(programs()),
                "pgpass": str(node.folder / "pgpass"),
                "authentication": {"superuser": account, "replication": account, "rewind": account},
                "pg_hba": [
                    "local all all trust",
                    "host all all 10.29.0.0/24 trust",
                    "host replication all 10.29.0.0/24 trust",
                ],
                "parameters": {"unix_socket_directories": str(node.folder)},
            },
        }
        if self._wal_mb:
            # A folder below: initdb wants an empty one.
            waldir = str(node.wal / "wal")
            wanted["bootstrap"]["initdb"].append({"waldir": waldir})
            wanted["postgresql"]["basebackup"] = [{"waldir": waldir}]
            wanted["postgresql"]["parameters"] |= {
                "max_wal_size": "64MB",
                "min_wal_size": "32MB",
                "wal_keep_size": "64MB",
            }
        path = node.folder / "patroni.yaml"
        path.write_text(yaml.safe_dump(wanted))
        path.chmod(0o644)


def _program(name: str) -> Path:
    folder = programs()
    assert folder is not None
    return folder / name


@contextmanager
def cluster(folder: Path, wal_mb: int = 0, **settings: Any) -> Iterator[Cluster]:
    """All three running, for the length of the block; ``settings`` replace some of deploy/patroni/cluster.yaml.

    With ``wal_mb``, the log of each node has a disk of that size.
    """
    folder.mkdir()
    folder.chmod(0o755)
    made = Cluster(folder, wal_mb, **settings)
    try:
        made.start()
        yield made
    finally:
        made.stop()
