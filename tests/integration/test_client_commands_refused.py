"""The client commands where a server asks for tokens, and while PostgreSQL is down."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client_commands import Client
from tests.support.outage import FragilePostgres, fragile_postgres
from tests.support.processes import Server, open_folder, wait_until
from tests.support.servers import serving_database
from tests.support.tokens import SECRET, signed, token


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as place:
        yield place


@pytest.fixture(scope="module")
def postgres(folder: Path) -> Iterator[FragilePostgres]:
    with fragile_postgres(folder) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(postgres: FragilePostgres, folder: Path) -> Iterator[Server]:
    """A server that asks for tokens, on a PostgreSQL that the test can stop."""
    with serving_database(postgres.dsn, folder, "--workers", "1", JWT_ENABLED="true", JWT_SECRET=SECRET) as running:
        yield running


def test_tokens(guarded: Server, queue: str) -> None:
    nobody, reader = Client(guarded), Client(guarded, token("read-only"))
    writer, admin = Client(guarded, token("read-write")), Client(guarded, token("admin"))
    line = nobody.refusal(1, "push", queue, "1")
    assert "(401): give a token with --token or QUEEN_TOKEN" in line
    forged = signed({"sub": "mallory", "role": "admin"}, SECRET[::-1])
    line = Client(guarded, forged).refusal(1, "queues", "list")
    assert "(401)" in line
    assert forged not in line
    assert "(403): this needs a token with a higher access level" in reader.refusal(1, "push", queue, "1")
    writer.text("push", queue, "1")
    # To follow a queue takes no right to take from it.
    assert [each["data"] for each in reader.lines("tail", queue, "--no-follow")] == [1]
    assert queue in [each["queue"] for each in reader.json("top", "--once")]
    writer.text("pop", queue, "-g", "g", "--auto-ack")
    assert "(403)" in writer.refusal(1, "groups", "delete", "g", "-y")
    # What the command line says wins over the environment.
    assert "(401)" in writer.refusal(1, "queues", "list", "--token", "nonsense")
    assert writer.json("groups", "delete", "g", "-y", "--token", token("admin"))["existed"] is True
    assert admin.json("dlq", "purge", queue)["deleted"] == 0


@pytest.mark.nightly
def test_an_outage(guarded: Server, postgres: FragilePostgres, queue: str) -> None:
    admin = Client(guarded, token("admin"))
    admin.text("push", queue, "1")
    postgres.kill()
    try:
        wait_until(lambda: guarded.request("GET", "/health")[0] != 200, "an outage that is noticed")
        assert admin.text("push", queue, "2").startswith("buffered")
        assert admin.json("push", queue, "3")["status"] == "buffered"
        for arguments in (("pop", queue), ("queues", "list"), ("top", "--once"), ("dlq", "list", queue)):
            assert "(503; try again in 1 s)" in admin.refusal(1, *arguments)
    finally:
        postgres.start()
    wait_until(lambda: guarded.request("GET", "/health")[0] == 200, "the end of the outage")
    wait_until(lambda: len(admin.lines("tail", queue, "--no-follow")) == 3, "what was buffered")
    assert [each["data"] for each in admin.lines("tail", queue, "--no-follow")] == [1, 2, 3]


@pytest.mark.nightly
def test_tail_outlasts_an_outage(guarded: Server, postgres: FragilePostgres, queue: str) -> None:
    admin = Client(guarded, token("admin"))
    admin.text("push", queue, "1")
    with admin.lasting("tail", queue, "--interval", "0.1") as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert tail.stdout.readline().endswith(" 1\n")
        postgres.kill()
        try:
            assert tail.stderr.readline().startswith("waiting: ")
        finally:
            postgres.start()
        wait_until(lambda: guarded.request("GET", "/health")[0] == 200, "the end of the outage")
        admin.text("push", queue, "2")
        assert tail.stdout.readline().endswith(" 2\n")
