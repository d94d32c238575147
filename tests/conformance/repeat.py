"""``python -m tests.conformance.repeat``: `queen verify` again and again, each time with another seed or with one.

Prints a line a run, with the seed that repeats its choices, and what was not valid. Exit code 1 if anything was not; on
a server that is late (`--late`), if anything was invalid.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.late import LATE
from tests.support.processes import open_folder, serving
from tests.support.verifying import verify

_WHAT = "queen verify again and again, each time with another seed, or with one (--same-seed)."


def main() -> int:
    """0 when every run was valid."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.repeat", description=_WHAT)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1, help="the others follow it")
    parser.add_argument("--profile", default="default", choices=["quick", "default"])
    parser.add_argument("--same-seed", action="store_true", help="all runs have the first seed")
    parser.add_argument("--worker-class", nargs="+", default=["uvicorn"], metavar="CLASS", help="a server of each")
    parser.add_argument("--late", nargs="+", default=[], choices=LATE, help="servers that are late instead: each")
    arguments = parser.parse_args()
    kinds = arguments.late or arguments.worker_class
    failures = sum(_failures(kind, arguments) for kind in kinds)
    what = "accused a server that keeps its promises" if arguments.late else "were not valid"
    print(f"{failures} of {arguments.runs * len(kinds)} runs {what}")
    return 1 if failures else 0


def _failures(kind: str, arguments: argparse.Namespace) -> int:
    """How many runs on a server of this kind were not as they should be."""
    failures = 0
    with _server(kind) as (url, last_lines):
        for number in range(arguments.runs):
            seed = arguments.first_seed + (0 if arguments.same_seed else number)
            report = _report(url, seed, arguments.profile)
            invalid = any(row["result"] == "invalid" for row in report["rows"])
            failed = invalid if arguments.late else not report["passed"]
            failures += failed
            print(f"{kind} seed {seed}: {_summary(report)}", flush=True)
            for line in (*_complaints(report), *([last_lines()] if failed else [])):
                print(line, flush=True)
    return failures


@contextmanager
def _server(kind: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """Its URL, and its last lines when they are asked for."""
    if kind in LATE:
        with LATE[kind]() as url:
            yield url, lambda: ""
        return
    with open_folder() as place, serving(place / "data", "--workers", "2", "--worker-class", kind) as server:
        yield f"http://127.0.0.1:{server.port}", server.last_lines


def _report(url: str, seed: int, profile: str) -> dict[str, Any]:
    done = verify(url, f"--seed={seed}", f"--profile={profile}", "--json")
    if not done.stdout:
        raise SystemExit(f"seed {seed}: no report\n{done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)
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
