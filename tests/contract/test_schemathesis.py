"""Generated requests, good and bad, against a live server: no 5xx, nothing that the contract does not say.

`QUEEN_TEST_SEED` chooses other requests; the output names the seed.
"""

import os
import subprocess
import sys

from spec.guarantees import Level, checks
from tests.support.processes import ROOT, Server

SEED = os.environ.get("QUEEN_TEST_SEED", "1")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
#: These switch what all others do; the tour calls them.
LEFT_OUT = ("setMaintenance", "setPopMaintenance")


@checks("G-ISO-3", level=Level.LIVE)
def test_generated_requests_find_no_contradiction_to_the_contract(server: Server) -> None:
    before = server.workers()
    arguments = [f"--exclude-operation-id={name}" for name in LEFT_OUT]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{server.port}/openapi.json"),
            *("--seed", SEED, "--max-examples", "5", "--no-shrink", "--no-color", "--suppress-health-check", "all"),
            *("--phases", "examples,coverage,fuzzing", "--checks", ",".join(CHECKS), "--generation-database", "none"),
            *("--request-timeout", "60", "--continue-on-failure", *arguments),
        ],
        cwd=ROOT,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.contract.hooks"},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.workers() == before
