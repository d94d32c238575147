"""Runs the mutants: each in a copy of the tree, against the checks of the guarantee that it breaks."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from queen.embedded.server import EmbeddedPostgres
from spec.conformance import Report
from spec.conformance import run as verify_queen
from spec.conformance.simple_mq import run as verify_simple_mq
from spec.guarantees import GUARANTEES
from tests.mutants.mutant import Mutant
from tests.support.processes import ROOT, Server, clean_environment, open_folder, serving
from tests.support.servers import create_database, drop_database, serving_database

#: What a mutant may change or needs in order to run.
_PARTS = (
    "queen",
    "pyspark_queen",
    "spark_validation",
    "bench",
    "spec",
    "sql",
    "tests",
    "queen_command.py",
    "pyproject.toml",
)
_AT_ONCE = 2
#: A fault may make a check wait for what does not come any more.
_TEST_LIMIT_S, _TESTS_LIMIT_S, _CLEAN_UP_LIMIT_S = 120, 900, 60
#: How often the checks may look: a fault that depends on chance need not show at the first time.
_LOOKS = 3
#: Nothing is changed, so nothing may be noticed: or every fault would seem to be.
_CONTROLS = (
    Mutant("G-DUR-3", "no fault", ()),
    Mutant("G-STR-5", "no fault", (), tests="tests/integration/test_socket.py"),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        killer: the check that failed, or nothing if the mutant survived.
        text: what the check said.
    """

    mutant: Mutant
    killer: str
    text: str


def run(mutants: Sequence[Mutant], told: Callable[[Verdict], None]) -> list[Verdict]:
    """A verdict for each, in their order; each is told as soon as it is there.

    Raises:
        RuntimeError: the checks fail without a fault, so that they could say nothing about one.
    """

    def judge(mutant: Mutant) -> Verdict:
        with mutated(mutant) as tree:
            return _tested(mutant, tree) if mutant.tests else _verified(mutant, tree, dsn)

    def tell(mutant: Mutant) -> Verdict:
        told(verdict := judge(mutant))
        return verdict

    with open_folder() as folder, EmbeddedPostgres(folder / "data") as postgres:
        dsn = postgres.dsn
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for control in threads.map(judge, _CONTROLS):
                if control.killer:
                    raise RuntimeError(f"Without a fault {control.killer} fails: {control.text}")
            return list(threads.map(tell, mutants))


@contextmanager
def serving_copy(tree: Path, data_dir: Path, *options: str) -> Iterator[Server]:
    """A server that runs from a copy of the tree, not from what is installed."""
    environment = clean_environment()
    environment.pop("PYTHONSAFEPATH", None)
    with serving(data_dir, *options, cwd=tree, env=environment) as server:
        yield server


@contextmanager
def mutated(mutant: Mutant) -> Iterator[Path]:
    """A copy of the tree with the fault in it."""
    with open_folder() as folder:
        for name in _PARTS:
            source = ROOT / name
            if source.is_dir() and not source.is_symlink():
                shutil.copytree(source, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / name, follow_symlinks=False)
        for edit in mutant.edits:
            edit.apply(folder)
        yield folder


def _verified(mutant: Mutant, tree: Path, dsn: str) -> Verdict:
    """`queen verify` against a server that runs from the copy."""
    url = asyncio.run(create_database(dsn))
    try:
        with (
            tempfile.TemporaryDirectory() as output,
            serving_database(url, Path(output), "--workers", "2", root=tree) as server,
        ):
            for seed in range(_LOOKS if mutant.edits else 1):
                address = f"http://127.0.0.1:{server.port}"
                report = _verify(address, seed, mutant.guarantee)
                for row in report.rows:
                    if row.id == mutant.guarantee and row.result == "invalid":
                        return Verdict(mutant, row.check, row.text)
    except AssertionError as problem:  # the server did not start, so nothing was checked
        return Verdict(mutant, "", str(problem))
    finally:
        asyncio.run(drop_database(dsn, url))
    return Verdict(mutant, "", "; ".join(f"{row.check}: {row.result} {row.text}" for row in report.rows))


def _verify(address: str, seed: int, guarantee: str) -> Report:
    if GUARANTEES[guarantee].family == "SMQ":
        return verify_simple_mq(address, seed=seed, profile="quick", only=[guarantee])
    return verify_queen(address, seed=seed, profile="quick", only=[guarantee], fail_fast=True)


def _tested(mutant: Mutant, tree: Path) -> Verdict:
    """The tests of the copy, which start servers from it."""
    # -m "": those of the night, too.
    which = [mutant.tests, "--guarantee", mutant.guarantee, "-m", ""]
    command = [sys.executable, "-m", "pytest", *which, "-x", "-q", "--tb=line"]
    environment = {
        name: value for name, value in os.environ.items() if name not in {"PYTHONSAFEPATH", "QUEEN_TEST_DSN"}
    }
    process = subprocess.Popen(
        [*command, f"--timeout={_TEST_LIMIT_S}", "-p", "no:cacheprovider"], cwd=tree, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=_TESTS_LIMIT_S)
    except subprocess.TimeoutExpired as problem:
        _interrupt(process)
        return Verdict(mutant, "", str(problem))
    failed = re.search(r"^FAILED [^:]+::(\w+)", output, re.MULTILINE)
    if process.returncode == 1 and failed:
        error = re.search(r"^(?:E  |.*: )\s*([\w.]*(?:Error|Exception)\b.*)$", output, re.MULTILINE)
        return Verdict(mutant, failed.group(1), error.group(1) if error else "")
    return Verdict(mutant, "", output[-2000:] + errors[-1000:])


def _interrupt(process: "subprocess.Popen[str]") -> None:
    """Ends tests in a way that lets them end their servers."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=_CLEAN_UP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
