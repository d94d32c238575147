"""Hosts on this machine: each has processes, mounts and a network of its own, and can be powered off or cut off."""

import ctypes
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.support.processes import wait_until

_NEW_NETWORK = 0x40000000
_NETWORK = "10.29.0"
#: The first process: because it ignores the end of its children, the kernel buries them.
_INIT = ("env", "--ignore-signal=CHLD", "sleep", "infinity")
#: Where a host has what it covers.
_ASIDE = Path("/mnt")
PROGRAMS = ("ip", "iptables", "nsenter", "unshare", "setpriv", "mount")


class CommandError(Exception):
    """A command failed."""


def problem() -> str:
    """Why there can be no hosts here; empty if there can."""
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"needs {', '.join(missing)}"
    tried = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--mount-proc", "true"], check=False, capture_output=True
    )
    return "" if tried.returncode == 0 else f"no namespaces here: {tried.stderr.decode().strip()}"


def enter_a_network() -> None:
    """Gives this thread, and what it starts from now on, a network of its own, whose other hosts are on a bridge."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "no network of its own")
    # Local ports that tests choose are below those of outgoing connections.
    for command in (
        "ip link set lo up",
        "ip link add hub type bridge",
        f"ip address add {_NETWORK}.1/24 dev hub",
        "ip link set hub up",
    ):
        _run(command.split())


class Host:
    """A host of that network. It lasts as long as this process, or until it is powered off."""

    def __init__(self, number: int) -> None:
        self.number, self.address = number, f"{_NETWORK}.{10 + number}"
        self._holder: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[bytes]] = []

    def power_on(self) -> None:
        """Starts it, without a process of its own."""
        assert threading.current_thread() is threading.main_thread(), "it would end with the thread"
        self._holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--pid", "--mount", "--fork", "--kill-child",
             "--mount-proc", *_INIT],
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        holder = psutil.Process(self._holder.pid)
        wait_until(lambda: [each for each in holder.children() if each.name() == "sleep"], "a host")
        self._init = holder.children()[0].pid
        outer, inner = f"host{self.number}", "eth0"
        _run(["ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", str(self._init)])
        _run(["ip", "link", "set", outer, "master", "hub", "up"])
        for command in (
            "ip link set lo up",
            f"ip address add {self.address}/24 dev {inner}",
            f"ip link set {inner} up",
        ):
            self.run(*command.split())
        self.run("mount", "-t", "tmpfs", "tmpfs", _ASIDE)
        for path in (Path(sys.base_prefix), Path(sys.prefix)):
            self._let_reach(path)

    def _let_reach(self, path: Path) -> None:
        """Lets every user reach a folder below one that is closed, such as root's, on this host alone."""
        closed = next((each for each in reversed(path.parents) if not each.stat().st_mode & stat.S_IXOTH), None)
        if closed is None:
            return
        aside = _ASIDE / closed.name
        if f" {aside} " not in self.run("cat", "/proc/mounts"):
            self.run("mkdir", aside)
            self.run("mount", "--bind", closed, aside)
            self.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", closed)
        self.run("mkdir", "-p", path)
        self.run("mount", "--bind", aside / path.relative_to(closed), path)

    def power_off(self) -> None:
        """Kills all its processes at once; what they have not written is lost, what the kernel has is not."""
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
            for process in self._started:
                process.kill()  # nsenter stops itself when what it started is stopped
                process.wait()
            self._started.clear()
            with suppress(CommandError):  # it goes by itself, in a while
                _run(["ip", "link", "delete", f"host{self.number}"])
            self._holder = None

    @property
    def is_on(self) -> bool:
        """Whether it runs."""
        return self._holder is not None

    def inside(self, command: Sequence[str | Path], user: str = "") -> list[str]:
        """The command line that runs a command there."""
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return ["nsenter", f"--target={self._init}", "--net", "--pid", "--mount", *as_user, *map(str, command)]

    def run(self, *command: str | Path, user: str = "") -> str:
        """What a command prints there."""
        return _run(self.inside(command, user))

    def spawn(self, command: Sequence[str | Path], log: Path, user: str) -> None:
        """Starts a command there that goes on, by that user."""
        with log.open("ab") as file:
            self._started.append(
                subprocess.Popen(
                    self.inside(command, user), stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd="/",
                    env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
                )
            )  # fmt: skip

    def processes(self, wanted: Callable[[psutil.Process], Any]) -> list[psutil.Process]:
        """Its processes that are wanted."""
        namespace = _namespace(self._init)
        return [each for each in psutil.process_iter() if _namespace(each.pid) == namespace and _holds(wanted, each)]

    def cut_off(self, *others: str) -> None:
        """Loses every packet from and to these addresses."""
        for address in others:
            self.run("iptables", "-I", "INPUT", "-s", address, "-j", "DROP")
            self.run("iptables", "-I", "OUTPUT", "-d", address, "-j", "DROP")

    def connect(self) -> None:
        """Loses nothing any more."""
        self.run("iptables", "-F")


HUB = f"{_NETWORK}.1"


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def _holds(wanted: Callable[[psutil.Process], Any], process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and bool(wanted(process))
    except psutil.NoSuchProcess:
        return False


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise CommandError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout
