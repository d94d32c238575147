"""The image: built from deploy/compose/Dockerfile by buildah, on a base that debootstrap makes, and started.

Nothing comes from a registry of images: the base is Debian's, which has Python 3.11, and pip gets the wheels that the
image needs from a folder, as in a place without a network.
"""

import asyncio
import http.client
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

from tests.support.chaos.proxy import Proxy, Streams
from tests.support.processes import PATIENCE_S, ROOT, free_port, open_folder, wait_until

_MISSING = [name for name in ("buildah", "debootstrap") if not shutil.which(name)]
pytestmark = [
    pytest.mark.skipif(bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)} (Debian has them)"),
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap needs root"),
    pytest.mark.timeout(3600),
]

_MIRROR = os.environ.get("QUEEN_TEST_MIRROR", "http://deb.debian.org/debian")
_IMAGE = "localhost/queen-for-python"
_DEBIAN = "FROM scratch\nADD base.tar /\nENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"


class Buildah:
    """buildah with a store of its own, which needs no privileges of a container engine."""

    def __init__(self, store: Path) -> None:
        self.store = store

    def command(self, *arguments: str | Path) -> list[str]:
        storage = ("--root", f"{self.store}/root", "--runroot", f"{self.store}/run", "--storage-driver", "vfs")
        return ["buildah", *storage, *map(str, arguments)]

    def run(self, *arguments: str | Path) -> str:
        return run(*self.command(*arguments))


def run(*command: str) -> str:
    """What a command prints; fails with all of it."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-5000:]}"
    return done.stdout


def wheels(folder: Path) -> None:
    """Everything that the image installs, and what builds our wheel, for Debian's Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["otel"],
    ]
    versions = ("--python-version", "3.11", "--only-binary", ":all:")
    run(sys.executable, "-m", "pip", "download", "--quiet", *versions, "--dest", str(folder), *needed)


def base(folder: Path) -> None:
    """A context of buildah with Debian and its Python in ``base.tar``."""
    debian = folder / "debian"
    included = "python3,python3-venv"
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={included}", "bookworm", str(debian), _MIRROR],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if "Unable to" in done.stdout or "Couldn't download" in done.stdout or "Failed getting" in done.stdout:
        pytest.skip(f"debootstrap does not reach {_MIRROR}: set QUEEN_TEST_MIRROR. {done.stdout[-300:]}")
    assert done.returncode == 0, done.stdout[-5000:]
    (debian / "etc" / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    context = folder / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(_DEBIAN)
    left_out = ("./proc/", "./sys/", "./dev/", "./var/cache/apt/archives/")
    with tarfile.open(context / "base.tar", "w") as tar:
        tar.add(debian, ".", filter=lambda entry: None if entry.name.startswith(left_out) else entry)


@pytest.fixture(scope="module")
def built() -> Iterator[Buildah]:
    with open_folder() as folder:
        for name in ("wheels", "base", "store"):
            (folder / name).mkdir()
        buildah = Buildah(folder / "store")
        wheels(folder / "wheels")
        base(folder / "base")
        buildah.run("bud", "--isolation", "chroot", "--tag", "localhost/debian", folder / "base" / "context")
        buildah.run(
            "bud", "--isolation", "chroot", "--network", "host", "--format", "docker",
            "--volume", f"{folder}/wheels:/wheels:ro", "--build-arg", "BASE=localhost/debian",
            "--ignorefile", "deploy/compose/Dockerfile.dockerignore", "--file", "deploy/compose/Dockerfile",
            "--tag", _IMAGE, ".",
        )  # fmt: skip
        yield buildah
        buildah.run("rm", "--all")


def configuration(buildah: Buildah) -> Mapping[str, Any]:
    """What the image says of itself."""
    found: Mapping[str, Any] = json.loads(buildah.run("inspect", "--type", "image", _IMAGE))["Docker"]["config"]
    return found


def test_the_image_says_how_it_is_run(built: Buildah) -> None:
    image = configuration(built)
    assert image["User"] == "10001:10001"
    assert image["Cmd"] == ["gunicorn", "-c", "python:queen.server.config", "queen.app:app"]
    assert list(image["Volumes"]) == ["/var/lib/queen/spool"]
    assert image["Healthcheck"]["Test"][:3] == ["CMD", "python", "-c"]


async def test_the_image_starts_and_serves(built: Buildah, postgres: str) -> None:
    """With the command and the user of the image: it answers, is healthy by its own check, and stops when told."""
    (socket_folder,) = parse_qs(urlsplit(postgres).query).get("host", [""])

    async def open_far() -> Streams:
        return await asyncio.open_unix_connection(f"{socket_folder}/.s.PGSQL.5432")

    # The user of the image may not enter the folder of the test's PostgreSQL.
    proxy = Proxy(open_far, 1)
    await proxy.start()
    dsn = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres" if socket_folder else postgres
    try:
        await asyncio.to_thread(serve_and_stop, built, dsn)
    finally:
        await proxy.stop()


def serve_and_stop(built: Buildah, dsn: str) -> None:
    image, port = configuration(built), free_port()
    container = built.run("from", _IMAGE).split()[-1]
    of_run = ("run", "--isolation", "chroot", "--network", "host")
    settings = [f"DATABASE_URL={dsn}", f"PORT={port}", "QUEEN_INSECURE=true", "NUM_WORKERS=1"]
    variables = [word for each in settings for word in ("--env", each)]
    assert built.run(*of_run, container, "--", "id", "-u").strip() == "10001"
    output = built.store / "server.log"
    with output.open("w") as file:
        process = subprocess.Popen(
            built.command(*of_run, *variables, container, "--", *image["Cmd"]), stdout=file, stderr=subprocess.STDOUT
        )
    try:
        wait_until(lambda: process.poll() is not None or status(port) == 200, "the server is healthy")
        assert process.poll() is None, output.read_text()[-5000:]
        assert request(port, "POST", "/api/v1/push", {"items": [{"queue": "image", "payload": 7}]})[0] == 201
        popped, answer = request(port, "GET", "/api/v1/pop/queue/image?autoAck=true")
        assert (popped, [message["data"] for message in answer["messages"]]) == (200, [7])
        built.run(*of_run, *variables, container, "--", *image["Healthcheck"]["Test"][1:])
        server_of(process).terminate()
        assert process.wait(PATIENCE_S) == 0, output.read_text()[-5000:]
    finally:
        if process.poll() is None:
            server_of(process).kill()
            process.wait(PATIENCE_S)


def server_of(process: "subprocess.Popen[bytes]") -> psutil.Process:
    """gunicorn's master, under buildah."""
    below = psutil.Process(process.pid).children(recursive=True)
    return next(each for each in below if Path(each.name()).name.startswith("gunicorn"))


def status(port: int) -> int:
    try:
        return request(port, "GET", "/health")[0]
    except (OSError, http.client.HTTPException):
        return 0


def request(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None
    finally:
        connection.close()
