"""``python -m tests.conformance.repeat``: `queen verify` again and again, each time with another seed.

Prints a line a run, with the seed that repeats its choices, and what was not valid. Exit code 1 if anything was not.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.processes import Server, open_folder, serving
from tests.support.verifying import verify

_WHAT = "queen verify again and again, each time with another seed."


def main() -> int:
    """0 when every run was valid."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.repeat", description=_WHAT)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1, help="the others follow it")
    parser.add_argument("--profile", default="default", choices=["quick", "default"])
    parser.add_argument("--worker-class", nargs="+", default=["uvicorn"], metavar="CLASS", help="a server of each")
    arguments = parser.parse_args()
    failures = 0
    for worker_class in arguments.worker_class:
        with _server(worker_class) as server, open_folder() as folder:
            for seed in itertools.islice(itertools.count(arguments.first_seed), arguments.runs):
                report = _report(server, folder / "report.json", seed, arguments.profile)
                failures += not report["passed"]
                print(f"{worker_class} seed {seed}: {_summary(report)}", flush=True)
                for line in (*_complaints(report), *([] if report["passed"] else [server.last_lines()])):
                    print(line, flush=True)
    print(f"{failures} of {arguments.runs * len(arguments.worker_class)} runs were not valid")
    return 1 if failures else 0


@contextmanager
def _server(worker_class: str) -> Iterator[Server]:
    with open_folder() as place, serving(place / "data", "--workers", "2", "--worker-class", worker_class) as server:
        yield server


def _report(server: Server, file: Path, seed: int, profile: str) -> dict[str, Any]:
    file.unlink(missing_ok=True)
    done = verify(f"http://127.0.0.1:{server.port}", f"--seed={seed}", f"--profile={profile}", f"--json={file}")
    if not file.exists():
        raise SystemExit(f"seed {seed}: no report\n{done.stdout}{done.stderr}")
    report: dict[str, Any] = json.loads(file.read_text())
    return report


def _summary(report: dict[str, Any]) -> str:
    valid = sum(row["result"] == "valid" for row in report["rows"])
    return f"{valid} of {len(report['rows'])} valid, {report['seconds']:.0f} s"


def _complaints(report: dict[str, Any]) -> Iterator[str]:
    for row in report["rows"]:
        if row["result"] != "valid":
            yield f"    {row['id']}: {row['check']}: {row['result']}: {row['text']}"


if __name__ == "__main__":
    sys.exit(main())
