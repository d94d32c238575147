"""The k6 scripts of simple-mq: they pass, clean up, and fail when the server is wrong."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import asyncpg
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bench.load.k6 import program
from bench.probes import PROBES, Probes
from tests.support.processes import ROOT, Server, clean_environment, free_port

SCRIPTS = ROOT / "bench" / "k6" / "simple-mq"
#: k6's exit code when a threshold was crossed.
CROSSED = 99
LIMIT_S = 240


def run(script: str, url: str, **variables: str) -> subprocess.CompletedProcess[str]:
    settings = {"BASE_URL": url, **variables}
    options = [part for name, value in settings.items() for part in ("-e", f"{name}={value}")]
    return subprocess.run(
        [program(), "run", "--no-usage-report", "--quiet", *options, script],
        cwd=SCRIPTS,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


async def queues(database: "asyncpg.Connection[Any]") -> int:
    return int(await database.fetchval("SELECT count(*) FROM simple_mq.queues"))


@pytest.mark.parametrize(
    ("script", "variables"),
    [
        ("happy-path.js", {}),
        ("happy-path.js", {"EVERY": "1s", "FOR": "3s"}),
        ("dlq.js", {}),
        ("dlq.js", {"EVERY": "2s", "FOR": "3s"}),
        # A smoke run on a busy machine: that it works, not how fast.
        ("load-test.js", {"DURATION": "3s", "P95_MS": "5000"}),
    ],
    ids=["happy-path", "happy-path on a schedule", "dlq", "dlq on a schedule", "load-test"],
)
async def test_a_script_passes_and_leaves_no_queue(
    server: Server, database: "asyncpg.Connection[Any]", script: str, variables: dict[str, str]
) -> None:
    before = await queues(database)
    done = run(script, f"http://127.0.0.1:{server.port}", **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert await queues(database) == before


@pytest.mark.parametrize("probe", PROBES)
def test_prometheus_gets_the_result_of_a_probe(server: Server, probe: str) -> None:
    for url, success in ((f"http://127.0.0.1:{server.port}", 1), (f"http://127.0.0.1:{free_port()}", 0)):
        with probes(url) as base:
            answer = httpx.get(f"{base}/probe/{probe}", timeout=LIMIT_S)
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            [sample] = [
                s for f in text_string_to_metric_families(answer.text) for s in f.samples if s[0] == "probe_success"
            ]
            assert sample.value == success
            assert httpx.get(f"{base}/probe/../secret").status_code == 404


@contextmanager
def probes(url: str) -> Iterator[str]:
    """The address of an exporter that probes a server."""
    with Probes(("127.0.0.1", 0), url) as server, ThreadPoolExecutor() as threads:
        threads.submit(server.serve_forever)
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("script", ["happy-path.js", "dlq.js"])
def test_a_probe_of_a_server_that_is_not_there_fails(script: str) -> None:
    assert run(script, f"http://127.0.0.1:{free_port()}").returncode == CROSSED
