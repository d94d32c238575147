"""``queen sqs`` and ``queen redrives``: queues of SQS from the command line."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.client_commands import Client
from tests.support.processes import Server, open_folder, wait_until
from tests.support.servers import serving_database
from tests.support.sqs_clients import KEY, SECRET


@pytest.fixture
def queen(server: Server) -> Client:
    return Client(server)


@pytest.fixture
def name(queen: Client) -> Iterator[str]:
    """A name for queues of a test; all that begin with it are deleted."""
    name = f"c-{uuid4().hex[:10]}"
    yield name
    for each in queen.json("sqs", "list", "--search", name):
        queen.text("sqs", "delete", each["QueueName"], "--yes")


def listed(queen: Client, name: str, *more: str) -> list[str]:
    return [each["QueueName"].removeprefix(name) for each in queen.json("sqs", "list", "--search", name, *more)]


def test_queues_are_created_shown_configured_and_deleted(queen: Client, name: str) -> None:
    dead = f"{name}-dead"
    assert queen.text("sqs", "create", dead).startswith(f"{dead} created")
    made = queen.json(
        "sqs", "create", name, "-a", "VisibilityTimeout=60", "--tag", "team=a=b", "--dead-letters", dead,
        "--max-receives", "3",
    )  # fmt: skip
    assert made["QueueUrl"].endswith(f"/{name}")
    found = queen.json("sqs", "show", name)
    assert (found["Attributes"]["VisibilityTimeout"], found["Tags"]) == ("60", {"team": "a=b"})
    policy = json.loads(found["Attributes"]["RedrivePolicy"])
    assert (policy["deadLetterTargetArn"].rpartition(":")[2], policy["maxReceiveCount"]) == (dead, 3)
    assert queen.json("sqs", "show", dead)["DeadLetterSourceQueues"][0].endswith(f"/{name}")
    text = queen.text("sqs", "show", dead)
    assert f"dead letters of                        {name}" in text
    assert "CreatedTimestamp                       20" in text
    given = ("-a", "VisibilityTimeout=5", "-a", "RedrivePolicy=", "--tag", "x=1", "--untag", "team")
    changed = queen.json("sqs", "configure", name, *given)
    assert changed["VisibilityTimeout"] == "5"
    assert "RedrivePolicy" not in changed
    assert queen.json("sqs", "show", name)["Tags"] == {"x": "1"}
    queen.text("sqs", "create", f"{name}.fifo", "-a", "ContentBasedDeduplication=true")
    assert queen.json("sqs", "show", f"{name}.fifo")["Attributes"]["FifoQueue"] == "true"
    assert "There is no terminal to ask" in queen.refusal(2, "sqs", "delete", name)
    assert queen.text("sqs", "delete", name, "--yes") == f"{name} deleted\n"
    assert listed(queen, name) == ["-dead", ".fifo"]


def test_messages_are_sent_looked_at_received_and_deleted(queen: Client, name: str) -> None:
    queen.text("sqs", "create", name)
    sent = queen.json("sqs", "send", name, "tea", "-a", "kind=green")
    queen.text("sqs", "send", name, "-", given="from\nstandard input")
    queen.text("sqs", "send", name, "late", "--delay", "900")
    found = queen.json("sqs", "peek", name)
    assert [(each["Body"], each["State"]) for each in found] == [
        ("tea", "visible"), ("from\nstandard input", "visible"), ("late", "delayed"),
    ]  # fmt: skip
    assert len(queen.json("sqs", "peek", name, "-n", "2")) == 2
    assert "late" in queen.text("sqs", "peek", name)
    [message] = queen.json("sqs", "receive", name)
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "tea")
    assert message["MessageAttributes"]["kind"]["StringValue"] == "green"
    [row] = queen.json("sqs", "list", "--search", name)
    assert (row["Visible"], row["InFlight"], row["Delayed"]) == (1, 1, 1)
    assert queen.text("sqs", "ack", name, message["ReceiptHandle"]) == "1 message deleted\n"
    done = queen.call("sqs", "receive", name, "--visibility", "0")
    # What it takes to delete it is a command that can be copied.
    assert done.stderr.startswith(f"queen sqs ack {name} ")
    assert "from\\nstandard input" in done.stdout
    assert len(queen.json("sqs", "receive", name, "-n", "10", "--auto-ack")) == 1
    assert queen.json("sqs", "receive", name) == []
    assert queen.call("sqs", "receive", name).stderr == "no messages\n"
    assert "0 of 1" not in queen.refusal(1, "sqs", "ack", name, "nonsense")
    assert queen.text("sqs", "purge", name, "--yes") == f"{name} purged\n"
    assert queen.json("sqs", "peek", name) == []
    assert "PurgeQueueInProgress" in queen.refusal(1, "sqs", "purge", name, "--yes")


def test_lists_are_sorted_searched_and_cut(queen: Client, name: str) -> None:
    for number in (2, 0, 1):
        queen.text("sqs", "create", f"{name}{number}")
        for _ in range(number):
            queen.text("sqs", "send", f"{name}{number}", "x", "--delay", "0" if number == 1 else "900")
    assert listed(queen, name) == ["0", "1", "2"]
    assert listed(queen, name, "--limit", "2") == ["0", "1"]
    assert listed(queen, name, "--sort", "delayed", "-n", "1") == ["2"]
    assert listed(queen, name, "--sort", "visible")[0] == "1"
    assert set(listed(queen, name, "--sort", "age")[:2]) == {"1", "2"}
    assert listed(queen, name[1:]) != []
    shown = queen.text("sqs", "list", "--search", name)
    assert shown.splitlines()[0].split()[:2] == ["queue", "visible"]
    assert queen.call("sqs", "list", "--search", f"{name}-none").stderr == "no queues\n"


def test_dead_letters_are_moved_back(queen: Client, name: str) -> None:
    dead = f"{name}-dead"
    queen.text("sqs", "create", dead)
    queen.text("sqs", "create", name, "-a", "VisibilityTimeout=0", "--dead-letters", dead, "--max-receives", "1")
    for number in range(3):
        queen.text("sqs", "send", name, str(number))
    for _ in range(2):
        queen.text("sqs", "receive", name, "-n", "10")
    assert len(queen.json("sqs", "peek", dead)) == 3
    assert queen.json("redrives", "list", dead) == []
    assert queen.call("redrives", "list", dead).stderr == "no moves\n"
    assert "no move of" in queen.refusal(1, "redrives", "cancel", dead)
    assert queen.json("redrive", "start", dead, "--per-second", "1")["TaskHandle"]
    assert "running" in queen.text("redrives", "list", dead)
    assert queen.text("redrives", "cancel", dead).startswith("cancelled after ")
    assert queen.text("redrives", "start", dead).startswith("started")
    wait_until(lambda: queen.json("redrives", "list", dead)[0]["Status"] == "COMPLETED", "the end of the move")
    assert len(queen.json("sqs", "peek", name)) == 3
    assert "where they came from" in queen.text("redrives", "list", dead)


def test_what_is_refused_is_said_in_a_line(queen: Client, name: str) -> None:
    queen.text("sqs", "create", name)
    for code, arguments, words in (
        (1, ("show", "{name}x"), "did you mean {name}?"),
        (1, ("send", "{name}x", "y"), "did you mean {name}?"),
        (1, ("receive", "nothing like it"), "`queen sqs list` lists those that exist"),
        (1, ("create", "{name}"), "there is a queue {name} already"),
        (1, ("create", "{name}-new", "-a", "Nothing=1"), "Unknown Attribute Nothing (InvalidAttributeName)"),
        (1, ("create", "{name}-new", "--dead-letters", "{name}x"), "did you mean {name}?"),
        (2, ("create", "{name}-new", "-a", "x"), "--attribute 'x' must be NAME=VALUE"),
        (2, ("create", "{name}-new", "--max-receives", "2"), "--max-receives needs --dead-letters"),
        (2, ("configure", "{name}"), "nothing to change"),
        (2, ("send", "{name}", "x", "--delay", "901"), "--delay"),
    ):
        given = [each.format(name=name) for each in arguments]
        assert words.format(name=name) in queen.refusal(code, "sqs", *given)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as place:
        yield place


def test_commands_are_signed_with_a_key_of_the_environment(server: Server, folder: Path) -> None:
    keys = f"{KEY}:{SECRET}:admin,reader:{SECRET}:read-only"

    def client(url: str, key: str) -> Client:
        found = Client(url)
        found.environment |= {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": SECRET}
        return found

    with serving_database(server.dsn, folder, "--workers", "1", QUEEN_SQS_KEYS=keys) as running:
        url, name = f"http://127.0.0.1:{running.port}", f"c-{uuid4().hex[:10]}"
        admin, reader = client(url, KEY), client(url, "reader")
        admin.text("sqs", "create", name)
        assert reader.json("sqs", "show", name)["QueueName"] == name
        assert "a higher access level" in reader.refusal(1, "sqs", "send", name, "x")
        assert "AWS_ACCESS_KEY_ID" in Client(url).refusal(1, "sqs", "list")
        assert "QUEEN_SQS_KEYS" in client(url, "unknown").refusal(1, "sqs", "list")
        admin.text("sqs", "delete", name, "--yes")
