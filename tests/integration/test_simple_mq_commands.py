"""``queen simple``: queues of simple-mq from the command line."""

from uuid import uuid4

import pytest

from tests.support.client_commands import Client
from tests.support.processes import Server


@pytest.fixture
def queen(server: Server) -> Client:
    return Client(server)


def made(server: Server, name: str, *data: str) -> str:
    settings = {"queueName": name, "queueSize": 500, "visibilityTimeout": 60, "maxDeliveries": 3}
    queue: str = server.request("POST", "/api/queues", settings)[1]["queue_id"]
    for start in range(0, len(data), 100):
        body = {"messages": [{"data": each} for each in data[start : start + 100]]}
        assert server.request("POST", f"/api/queues/{queue}/messages", body)[0] == 201
    return queue


def test_queues_are_listed_shown_and_purged(server: Server, queen: Client) -> None:
    name = f"c-{uuid4().hex[:10]}"
    queue = made(server, name, *map(str, range(250)))
    other = made(server, f"{name}-other", "stays")
    assert [each["queue_id"] for each in queen.json("simple", "list", "--search", name)] == [queue, other]
    assert len(queen.json("simple", "list", "--search", name, "-n", "1")) == 1
    assert f"{name}-other" in queen.text("simple", "list", "--search", name)
    assert queen.json("simple", "show", name) == queen.json("simple", "show", queue) | {"parent_id": None}
    assert "250 of 500" in queen.text("simple", "show", queue)
    assert server.request("GET", f"/api/queues/{queue}/messages?limit=20")[0] == 200
    assert "There is no terminal to ask" in queen.refusal(2, "simple", "purge", name)
    assert queen.json("simple", "purge", name, "--yes") == {"deleted": 250}
    assert queen.text("simple", "purge", name, "--yes") == f"0 messages of {name} deleted\n"
    counts = {
        each["queue_id"]: each["current_message_count"] for each in queen.json("simple", "list", "--search", name)
    }
    assert counts == {queue: 0, other: 1}


def test_a_queue_that_is_not_there_or_not_the_only_one_is_said_to_be_so(server: Server, queen: Client) -> None:
    name = f"c-{uuid4().hex[:10]}"
    assert "no queues" in queen.call("simple", "list", "--search", name).stderr
    ids = {made(server, name), made(server, name)}
    told = queen.refusal(1, "simple", "show", name)
    assert all(each in told for each in ids)
    assert f"did you mean {name}?" in queen.refusal(1, "simple", "purge", f"{name}x", "--yes")
    unknown = "00000000-0000-4000-8000-000000000000"
    assert f"there is no queue of simple-mq {unknown}" in queen.refusal(1, "simple", "show", unknown)
