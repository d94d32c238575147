"""Runs the mutants: each in a copy of the tree, against the checks of the guarantee that it breaks."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from queen.server.embedded import EmbeddedPostgres
from queen_spec.conformance import Report
from queen_spec.conformance import run as verify_queen
from queen_spec.conformance.simple_mq import run as verify_simple_mq
from queen_spec.guarantees import GUARANTEES
from tests.mutants.mutant import Mutant
from tests.support.processes import ROOT, open_folder
from tests.support.servers import create_database, drop_database, serving_database

#: What a mutant may change or needs in order to run.
_PARTS = ("queen", "queen_bench", "queen_spec", "bench", "spec", "sql", "tests", "queen_command.py", "pyproject.toml")
_AT_ONCE = 2
#: A fault may make a check wait for what does not come any more.
_TEST_LIMIT_S, _TESTS_LIMIT_S = 120, 300
#: How often the checks may look: a fault that depends on chance need not show at the first time.
_LOOKS = 3


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
    """A verdict for each, in their order; each is told as soon as it is there."""

    def judge(mutant: Mutant) -> Verdict:
        with _mutated(mutant) as tree:
            verdict = _tested(mutant, tree) if mutant.tests else _verified(mutant, tree, dsn)
        told(verdict)
        return verdict

    with open_folder() as folder, EmbeddedPostgres(folder / "data") as postgres:
        dsn = postgres.dsn
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return list(threads.map(judge, mutants))


@contextmanager
def _mutated(mutant: Mutant) -> Iterator[Path]:
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
            for seed in range(_LOOKS):
                address = f"http://127.0.0.1:{server.port}"
                report = _verify(address, seed, mutant.guarantee)
                for row in report.rows:
                    if row.id == mutant.guarantee and row.result == "invalid":
                        return Verdict(mutant, row.check, row.text)
    finally:
        asyncio.run(drop_database(dsn, url))
    return Verdict(mutant, "", "; ".join(f"{row.check}: {row.result} {row.text}" for row in report.rows))


def _verify(address: str, seed: int, guarantee: str) -> Report:
    if GUARANTEES[guarantee].family == "SMQ":
        return verify_simple_mq(address, seed=seed, profile="quick", only=[guarantee])
    return verify_queen(address, seed=seed, profile="quick", only=[guarantee], fail_fast=True)


def _tested(mutant: Mutant, tree: Path) -> Verdict:
    """The tests of the copy, which start servers from it."""
    command = [sys.executable, "-m", "pytest", mutant.tests, "--guarantee", mutant.guarantee, "-x", "-q", "--tb=line"]
    environment = {
        name: value for name, value in os.environ.items() if name not in {"PYTHONSAFEPATH", "QUEEN_TEST_DSN"}
    }
    try:
        done = subprocess.run(
            [*command, f"--timeout={_TEST_LIMIT_S}", "-p", "no:cacheprovider"], cwd=tree, env=environment,
            capture_output=True, text=True, timeout=_TESTS_LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as problem:
        return Verdict(mutant, "", str(problem))
    failed = re.search(r"^FAILED [^:]+::(\w+)", done.stdout, re.MULTILINE)
    if done.returncode == 1 and failed:
        error = re.search(r"^(?:E  |.*: )\s*(\w*(?:Error|Exception)\b.*)$", done.stdout, re.MULTILINE)
        return Verdict(mutant, failed.group(1), error.group(1) if error else "")
    return Verdict(mutant, "", done.stdout[-2000:] + done.stderr[-1000:])
