"""Malformed requests from a seed: no 5xx, no worker lost. 20,000 of them: `python -m tests.contract.fuzz`."""

import itertools
import os

from spec.guarantees import Level, checks
from tests.contract.fuzz import fuzz, generate
from tests.support.api import Api
from tests.support.processes import Server

SEED = int(os.environ.get("QUEEN_TEST_SEED", "1"))
REQUESTS = 600


@checks("G-ISO-3", level=Level.LIVE)
async def test_malformed_requests_are_no_errors_of_the_server_and_cost_no_worker(server: Server, api: Api) -> None:
    print(f"seed {SEED}")
    server.wait_until_all_are_healthy(2)
    before = server.workers()
    findings = fuzz(server.port, REQUESTS, SEED)
    assert findings.errors == []
    assert findings.statuses[400] > REQUESTS / 10
    assert server.workers() == before
    assert (await api.http.get("/health")).status_code == 200


def test_the_same_seed_makes_the_same_requests() -> None:
    first, again, other = (list(itertools.islice(generate(seed), 200)) for seed in (SEED, SEED, SEED + 1))
    assert first == again
    assert first != other
