"""``queen push | pop | ack | tail | queues | dlq | groups | seek | top`` against a real server."""

import asyncio
import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from queen.cli.main import COMMANDS, app, load
from tests.support.api import Api
from tests.support.client_commands import Client
from tests.support.clock import eventually
from tests.support.processes import PATIENCE_S, PYTHON, ROOT, Server, clean_environment, free_port, run
from tests.support.sockets import open_socket


@pytest.fixture
def queen(server: Server) -> Client:
    return Client(server)


# ---------------------------------------------------------------- push, pop, ack


def test_a_message_goes_through_push_pop_and_ack(queen: Client, queue: str) -> None:
    pushed = queen.json("push", queue, '{"item": "tea"}', "--partition", "alice", "--transaction-id", "order 1")
    assert (pushed["status"], pushed["transaction_id"]) == ("queued", "order 1")
    assert queen.text("push", queue, '"again"', "-p", "alice", "--transaction-id", "order 1").startswith(
        "already stored"
    )
    result = queen.call("pop", queue)
    assert re.search(r"alice +0 .* 1 +order 1 +\{\"item\":\"tea\"\}", result.stdout)
    # What it takes to ack is a command that can be copied.
    (command,) = result.stderr.splitlines()
    assert subprocess.run(
        ["bash", "-c", command.replace("queen", '"$@"', 1), "bash", *PYTHON],
        cwd=ROOT, env=clean_environment(**queen.environment), capture_output=True, text=True, check=True,
    ).stdout == "1 message acked\n"  # fmt: skip
    assert queen.json("pop", queue) == []
    assert queen.call("pop", queue).stderr == "no messages\n"


def test_messages_of_pop_are_acked_from_standard_input(queen: Client, queue: str) -> None:
    queen.text("push", queue, "--file", "-", given="1\n2\n3\n4\n")
    first = queen.text("pop", queue, "-n", "2", "-g", "billing", "--json")
    assert queen.text("ack", given=first) == "2 messages acked\n"
    second = json.loads(queen.text("pop", queue, "-n", "2", "-g", "billing", "--json"))
    assert [each["data"] for each in second] == [3, 4]
    results = queen.json(
        "ack", "--dlq", "--error", "no tea", given="\n".join(json.dumps(each, indent=1) for each in second)
    )
    assert [(each["success"], each["dlq"]) for each in results] == [(True, True)] * 2
    refused = queen.call("ack", "--failed", given=first)
    assert refused.code == 1
    assert "Message already completed" in refused.stderr
    assert refused.stdout == "0 messages acked\n"


def test_options_of_pop(queen: Client, queue: str) -> None:
    queen.text("push", queue, "1")
    assert queen.json("pop", queue, "-g", "late", "--from", "now", "--wait", "--timeout", "0.2") == []
    (message,) = queen.json("pop", queue, "-g", "early", "--from", "1h", "--auto-ack", "--partition", "Default")
    assert (message["data"], message["leaseId"]) == (1, "")
    assert queen.json("pop", queue, "-g", "early") == []


def test_a_file_is_pushed_in_batches_and_in_order(queen: Client, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(f"{number}\n\n" for number in range(2500)))
    assert queen.text("push", queue, "--file", str(file), "--batch", "700") == "2500 queued\n"
    assert [each["data"] for each in queen.json("pop", queue, "-n", "3000")] == list(range(2500))


def test_a_file_is_pushed_whole_when_the_answers_are_not_read(queen: Client, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(f"{number}\n" for number in range(300)))
    assert unread(queen, "push", queue, "--file", str(file), "--batch", "100", "--json") == 0
    assert len(queen.json("pop", queue, "-n", "1000")) == 300


def unread(queen: Client, *arguments: str) -> int:
    """How a command ends whose reader has left before it prints anything."""
    with queen.lasting(*arguments) as process:
        assert process.stdout is not None
        process.stdout.close()
        return process.wait(PATIENCE_S)


def test_lines_may_be_items_with_ids_of_their_own(queen: Client, queue: str) -> None:
    lines = '{"payload": {"a": 1}, "transactionId": "x", "partition": "p"}\n{"transactionId": "x"}\n'
    results = queen.lines("push", queue, "--file", "-", "--items", "-p", "q", given=lines)
    assert [each["status"] for each in results] == ["queued", "queued"]
    assert queen.text("push", queue, "--file", "-", "--items", "-p", "q", given=lines) == "2 already stored\n"
    messages = queen.json("pop", queue, "-n", "9", "--partitions", "9")
    assert {(each["partition"], str(each["data"])) for each in messages} == {("p", "{'a': 1}"), ("q", "None")}


def test_text_and_payloads_that_look_like_markup(queen: Client, queue: str) -> None:
    queen.text("push", queue, "--text", "[bold]:heart: \x1b[31m")
    queen.text("push", queue, "-", given='{"a":\n "b"}')
    text = queen.text("pop", queue, "-n", "2")
    assert '"[bold]:heart: \\u001b[31m"' in text
    assert '{"a":"b"}' in text


def test_names_may_hold_anything(queen: Client, queue: str) -> None:
    name, group = f"{queue}/partition/a?b#c %2F", "g/queues/x"
    queen.text("push", name, "1", "-p", "..")
    assert [each["data"] for each in queen.json("pop", name, "-p", "..", "-g", group)] == [1]
    assert queen.json("queues", "show", name)["queue"]["name"] == name
    assert [each["queue"] for each in queen.lines("tail", name, "--no-follow")] == [name]
    assert queen.json("seek", name, group, "--to-end", "--yes")["partitionsUpdated"] == 1
    assert list(queen.json("groups", "show", group)) == [name]
    assert queen.json("groups", "delete", group, "--queue", name, "--yes")["existed"] is True


# ---------------------------------------------------------------- queues, groups, seek


def test_headers_are_pushed_and_shown(queen: Client, queue: str) -> None:
    queen.text("push", queue, "1", "-H", "type=order", "--header", "note=a=b")
    queen.text("push", queue, "--file", "-", "--items", given='{"payload": 2, "headers": {"n": "2"}}\n')
    assert [each.get("headers") for each in queen.json("pop", queue, "-n", "2")] == [
        {"type": "order", "note": "a=b"}, {"n": "2"},
    ]  # fmt: skip
    assert re.search(
        r" (type=order note=a=b|note=a=b type=order) 1$", queen.text("tail", queue, "--no-follow"), re.MULTILINE
    )
    for arguments, words in ((("1", "-H", "type"), "write name=value"), (("--file", "-", "-H", "a=b"), "use --items")):
        assert words in queen.refusal(2, "push", queue, *arguments)


def test_queues_are_listed_and_shown(queen: Client, queue: str) -> None:
    queen.text("push", queue, "1", "-p", "alice")
    assert re.search(rf"^{queue} .* 1 +1 +1 +0 *$", queen.text("queues", "list"), re.MULTILINE)
    assert queue in [each["name"] for each in queen.json("queues", "list", "--namespace", queue)]
    assert re.search(r"^alice +1 +1 +0 ", queen.text("queues", "show", queue), re.MULTILINE)
    # A name that is near is likely meant.
    assert (
        queen.refusal(1, "queues", "show", f"{queue}x") == f"error: there is no queue {queue}x: did you mean {queue}?"
    )


def test_queues_and_groups_are_paused_and_resumed(queen: Client, queue: str) -> None:
    queen.text("push", queue, "1")
    queen.text("pop", queue, "-g", "billing", "--auto-ack")
    assert queen.text("queues", "pause", queue) == f"{queue} is paused: its consumers get no messages\n"
    assert queen.text("groups", "pause", "billing", "-q", queue).startswith(f"billing on {queue} is paused")
    assert queen.json("pop", queue) == []
    assert re.search(rf"^{queue} .* yes *$", queen.text("queues", "list"), re.MULTILINE)
    assert re.search(r"^paused +yes *$", queen.text("queues", "show", queue), re.MULTILINE)
    assert re.search(rf"^{queue} +billing .* yes *$", queen.text("groups", "list", queue), re.MULTILINE)
    assert queen.json("groups", "resume", "billing", "--queue", queue)["paused"] is False
    assert queen.text("queues", "resume", queue) == f"{queue} is resumed\n"
    assert [each["data"] for each in queen.json("pop", queue)] == [1]
    assert "there is no queue" in queen.refusal(1, "queues", "pause", f"{queue}-not")
    assert "there is no consumer group other" in queen.refusal(1, "groups", "pause", "other", "-q", queue)
    for command in (["queues", "pause", ""], ["groups", "resume", "", "-q", queue]):
        assert "a name must have at least one character" in queen.refusal(2, *command)


def test_groups_are_listed_shown_and_deleted(queen: Client, queue: str) -> None:
    queen.text("push", queue, "1")
    queen.text("pop", queue, "-g", "billing", "--auto-ack")
    (group,) = queen.json("groups", "list", queue)
    assert (group["name"], group["totalLag"]) == ("billing", 0)
    assert re.search(rf"^{queue} +billing +1 +0 +0 ", queen.text("groups", "list"), re.MULTILINE)
    assert re.search(rf"^{queue} +Default +1 +0 ", queen.text("groups", "show", "billing", "-q", queue), re.MULTILINE)
    assert "--yes" in queen.refusal(2, "groups", "delete", "billing", "-q", queue)
    assert queen.text("groups", "delete", "billing", "-q", queue, "-y") == "billing deleted, with 1 cursor\n"
    assert "there is no consumer group billing" in queen.refusal(1, "groups", "delete", "billing", "-q", queue, "-y")
    assert "there is no consumer group" in queen.refusal(1, "groups", "show", f"{queue}-group")
    assert "there is no queue" in queen.refusal(1, "groups", "list", f"{queue}-not")


def test_lists_are_sorted_searched_and_cut_by_the_server(queen: Client, queue: str) -> None:
    for partition, number in (("alice", 1), ("bob", 3), ("carol", 2), ("done", 1)):
        queen.text("push", queue, "--file", "-", "-p", partition, given="1\n" * number)
        queen.text("pop", queue, "-g", f"{queue}-slow", "-p", partition, "-n", "9")
    queen.text("push", f"{queue}-other", "--file", "-", given="1\n" * 9)
    for name in (queue, f"{queue}-other"):
        queen.text("pop", name, "-g", f"{queue}-fast", "--auto-ack")
    queen.text("seek", queue, f"{queue}-slow", "--to-end", "-p", "done", "-y")

    def shown(*options: str) -> list[str]:
        answer = queen.json("groups", "show", f"{queue}-slow", *options)
        return [each["partition"] for each in answer.get(queue, {"partitions": []})["partitions"]]

    assert shown() == ["alice", "bob", "carol", "done"]
    assert shown("--sort", "lag") == ["bob", "carol", "alice", "done"]
    assert shown("--sort", "age", "--limit", "1") == ["alice"]
    assert shown("--behind", "--search", "O") == ["bob", "carol"]
    cut = queen.call("groups", "show", f"{queue}-slow", "-q", queue, "--sort", "lag", "-n", "2")
    assert [line.split()[1] for line in cut.stdout.splitlines()] == ["partition", "bob", "carol"]
    assert cut.stderr == "the first 2 partitions of 4\n"
    assert queen.call("groups", "show", f"{queue}-slow", "--search", "nobody").stderr == "no partitions\n"
    assert "there is no consumer group" in queen.refusal(1, "groups", "show", f"{queue}-none", "--behind")

    groups = ("groups", "list", "--search", f"{queue}-")
    assert [each["queueName"] for each in queen.json(*groups, "--sort", "lag", "-n", "1")] == [f"{queue}-other"]
    assert [each["name"] for each in queen.json("groups", "list", queue, "--search", "slow", "--behind")] == [
        f"{queue}-slow"
    ]
    queues = ("queues", "list", "--search", queue)
    assert [each["name"] for each in queen.json(*queues, "--sort", "total")] == [f"{queue}-other", queue]
    assert [each["name"] for each in queen.json(*queues, "--sort", "name", "-n", "1")] == [queue]
    assert "'newest', 'name'" in queen.refusal(2, *queues, "--sort", "size")


async def test_connected_consumers_are_listed(queen: Client, server: Server, api: Api, queue: str) -> None:
    queen.text("push", queue, "1")
    async with open_socket(server.port) as socket:
        await socket.subscribe(queue, consumerGroup="g")
        await socket.expect("batch")

        async def shown() -> str:
            # Empty until the worker of the socket has answered once.
            return await asyncio.to_thread(queen.text, "groups", "consumers", "g", "-q", queue)

        text = await eventually(shown, "the socket is listed")
        assert re.search(r"^WebSocket +127.0.0.1:\d+ +\S+ \S+ +1 ", text, re.MULTILINE), text
        [socket_only] = await asyncio.to_thread(queen.json, "groups", "consumers", "g", "-q", queue, "-n", "1")
        assert (socket_only["kind"], socket_only["inFlight"]) == ("webSocket", 1)
    nobody = await asyncio.to_thread(queen.refusal, 1, "groups", "consumers", "nobody", "-q", queue)
    assert "there is no consumer group nobody" in nobody


def test_timers_are_listed_fired_and_cancelled(queen: Client, queue: str) -> None:
    name = f"{queue}/a b"
    items = [{"queue": name, "payload": n, "delaySeconds": 3600, "transactionId": f"t{n}"} for n in (1, 2)]
    assert httpx.post(f"{queen.environment['QUEEN_URL']}/api/v1/push", json={"items": items}).status_code == 201
    first, second = sorted(queen.json("timers", "list", name), key=lambda each: str(each["txn"]))
    assert re.search(rf"^{first['timerKey']} .* Default +t1 *$", queen.text("timers", "list", name), re.MULTILINE)
    assert len(queen.json("timers", "list", name, "-n", "1")) == 1
    assert queen.text("timers", "fire", name, first["timerKey"]) == f"fired {first['timerKey']}\n"
    assert queen.text("timers", "cancel", name, second["timerKey"]) == f"cancelled {second['timerKey']}\n"
    assert "there is no timer" in queen.refusal(1, "timers", "cancel", name, second["timerKey"])
    assert [each["data"] for each in queen.json("pop", name, "--wait")] == [1]
    assert queen.json("timers", "list", name) == []


def test_schedules_are_created_listed_and_deleted(queen: Client, queue: str) -> None:
    create = ("schedules", "create", queue, "daily/1")
    options = ("--time-zone", "Europe/Berlin", "--payload", '{"n": 1}', "--catch-up", "0")
    assert queen.text(*create, "0 7 * * *", *options).startswith("set daily/1; first at ")
    (schedule,) = queen.json("schedules", "list", queue)
    assert (schedule["name"], schedule["catchUp"], schedule["payload"]) == ("daily/1", 0, {"n": 1})
    listed = queen.text("schedules", "list")
    assert re.search(rf"^{queue} +daily/1 +0 7 \* \* \* +Europe/Berlin ", listed, re.MULTILINE)
    assert "five fields" in queen.refusal(1, *create, "daily")
    assert queen.text("schedules", "delete", queue, "daily/1") == "deleted daily/1\n"
    assert "Schedule not found" in queen.refusal(1, "schedules", "delete", queue, "daily/1")


def test_seek_moves_the_cursors_of_a_group(queen: Client, queue: str) -> None:
    queen.text("push", queue, "--file", "-", given="1\n2\n")
    queen.text("pop", queue, "-n", "2", "-g", "g", "--auto-ack")
    assert "--yes" in queen.refusal(2, "seek", queue, "g", "--to-beginning")
    assert queen.text("seek", queue, "g", "--to-beginning", "-y") == "1 cursor moved to the beginning\n"
    assert [each["data"] for each in queen.json("pop", queue, "-n", "9", "-g", "g")] == [1, 2]
    assert queen.json("seek", queue, "g", "--to-end", "-y")["seekToEnd"] is True
    assert queen.json("pop", queue, "-g", "g") == []
    assert queen.json("seek", queue, "g", "--to", "1h", "-y", "--partition", "Default")["updated"] is True
    assert len(queen.json("pop", queue, "-n", "9", "-g", "g")) == 2
    assert "there is no consumer group other" in queen.refusal(1, "seek", queue, "other", "--to-end", "-y")
    assert "Partition not found" in queen.refusal(1, "seek", queue, "g", "--to-end", "-y", "-p", "other")


# ---------------------------------------------------------------- dead letters


def bury(queen: Client, queue: str, *payloads: int) -> None:
    queen.text("push", queue, "--file", "-", given="".join(f"{each}\n" for each in payloads))
    for _ in payloads:
        queen.text("ack", "--dlq", "--error", "no\x1b[31m tea", given=queen.text("pop", queue, "--json"))


def test_dead_letters_are_listed_replayed_and_purged(queen: Client, queue: str) -> None:
    bury(queen, queue, 1, 2, 3, 4)
    letters = queen.json("dlq", "list", queue)
    assert [each["data"] for each in letters] == [4, 3, 2, 1]
    assert "no\\x1b[31m tea" in queen.text("dlq", "list", queue)
    (replayed,) = queen.lines("dlq", "replay", queue, letters[0]["id"])
    assert replayed["result"] == "moved"
    gone = queen.call("dlq", "replay", queue, letters[0]["id"], "nonsense")
    assert gone.code == 1
    assert gone.stderr.count("Dead letter not found (404)") == 2
    assert "--yes" in queen.refusal(2, "dlq", "replay", queue, "--all")
    assert queen.text("dlq", "replay", queue, "--all", "-y", "--to-partition", "p") == "3 dead letters replayed\n"
    # Oldest first.
    assert [each["data"] for each in queen.json("pop", queue, "-p", "p", "-n", "9")] == [1, 2, 3]
    queen.text("ack", "--dlq", given=queen.text("pop", queue, "--json"))
    assert "--yes" in queen.refusal(2, "dlq", "purge", queue)
    assert queen.text("dlq", "purge", queue, "--group", "nobody") == "0 dead letters deleted\n"
    assert queen.json("dlq", "purge", queue, "-y")["deleted"] == 1
    assert queen.call("dlq", "list", queue).stderr == "no dead letters\n"


@pytest.mark.parametrize("arguments", [("list",), ("replay", "--all"), ("purge", "--yes")])
def test_dead_letters_of_a_queue_that_is_not_there(queen: Client, queue: str, arguments: tuple[str, ...]) -> None:
    assert f"there is no queue {queue}" in queen.refusal(1, "dlq", arguments[0], queue, *arguments[1:])


async def test_a_queue_is_shown_with_all_its_options(queen: Client, api: Api, queue: str) -> None:
    await api.configure(queue, delayedProcessing=11, windowBuffer=12, retentionEnabled=True, retentionSeconds=13,
                        completedRetentionSeconds=14, ttl=15, maxWaitTimeSeconds=16, maxSize=17)  # fmt: skip
    lines = [line.rstrip() for line in queen.text("queues", "show", queue).splitlines()]
    shown = dict(re.split(r"  +", line, maxsplit=1) for line in lines if "  " in line)
    numbers = {name: text for name, text in shown.items() if text.removesuffix(" s") in map(str, range(11, 18))}
    assert numbers == {
        "delay": "11 s", "window": "12 s", "retention": "13 s", "retention of acknowledged": "14 s",
        "message TTL": "15 s", "max age before eviction": "16 s", "max backlog": "17",
    }  # fmt: skip
    assert shown["encrypted"] == "no"


def test_errors_are_printed_when_standard_output_is_closed(queen: Client, queue: str) -> None:
    bury(queen, queue, 1, 2, 3)
    assert unread(queen, "dlq", "replay", queue, "nonsense", "--json") == 1
    assert unread(queen, "dlq", "replay", queue, "--all", "--yes", "--json") == 0
    assert queen.json("dlq", "list", queue) == []
    assert unread(queen, "ack", "00000000-0003-7000-8000-000000000000", "nonsense", "--json") == 1


@pytest.mark.parametrize(
    "arguments", [("queues", "list", "--json"), ("--version",), ("push", "{queue}", "--file", "{file}", "--json")]
)
def test_a_disk_without_room_is_told_in_a_line(
    queen: Client, queue: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text("1\n2\n")
    words = [each.format(queue=queue, file=file) for each in arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PYTHON, *words], cwd=ROOT, env=clean_environment(**queen.environment), stdout=full,
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: the output cannot be written: No space left on device"
    assert "Traceback" not in done.stderr
    if arguments[0] == "push":
        assert "Lines up to 2 are stored" in done.stderr


# ---------------------------------------------------------------- tail, top


async def test_tail_of_a_large_queue_skips_nothing_that_was_asked_for(queen: Client, api: Api, queue: str) -> None:
    for _ in range(3):
        await api.push(queue, *range(7000))
    shown = queen.call("tail", queue, "-n", "2", "--json", "--no-follow")
    assert ([json.loads(line)["data"] for line in shown.stdout.splitlines()], shown.stderr) == ([6998, 6999], "")


async def test_tail_shows_existing_and_new_messages_without_affecting_consumers(
    queen: Client, api: Api, queue: str
) -> None:
    await api.push(queue, 1, 2, 3)
    with queen.lasting("tail", queue, "-n", "2", "--json", "--interval", "0.05") as tail:
        assert tail.stdout is not None
        assert [json.loads(tail.stdout.readline())["data"] for _ in range(2)] == [2, 3]
        await api.push(queue, 4, partition="other")
        assert json.loads(tail.stdout.readline())["data"] == 4
        await api.push(queue, 5)
        assert json.loads(tail.stdout.readline())["data"] == 5
        assert queen.json("groups", "list", queue) == []
        tail.send_signal(signal.SIGINT)
        assert tail.wait(PATIENCE_S) == 130
        assert tail.stderr is not None
        assert tail.stderr.read() == ""


async def test_tail_waits_for_a_queue_and_ends_when_its_pipe_is_closed(queen: Client, api: Api, queue: str) -> None:
    with queen.lasting("tail", queue, "--interval", "0.05") as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert "there is no queue" in tail.stderr.readline()
        await api.push(queue, "x" * 100_000)
        assert '"xxx' in tail.stdout.readline()
        tail.stdout.close()
        await api.push(queue, 2)
        assert tail.wait(PATIENCE_S) == 0
        assert tail.stderr.read() == ""


def test_tail_without_following(queen: Client, queue: str) -> None:
    queen.text("push", queue, "--file", "-", given="1\n2\n3\n")
    assert queen.text("tail", queue, "--no-follow", "-n", "1").endswith(" 3\n")
    assert queen.text("tail", queue, "--no-follow", "-n", "0") == ""
    assert "there is no queue" in queen.refusal(1, "tail", f"{queue}-not", "--no-follow")


def test_top_once(queen: Client, queue: str) -> None:
    queen.text("push", queue, "--file", "-", given="1\n2\n")
    queen.text("pop", queue, "-g", "slow")
    (row,) = [each for each in queen.json("top", "--once") if each["queue"] == queue]
    assert (row["messages"], row["groups"], row["lag"], row["slowest"]) == (2, 1, 2, "slow")
    assert re.search(rf"^{queue} ", queen.text("top", "--once"), re.MULTILINE)


def test_top_on_a_terminal_is_a_picture_until_ctrl_c(queen: Client) -> None:
    with queen.on_a_terminal("top", "--interval", "0.2") as (top, terminal):
        # The second picture shows that it goes on.
        terminal.read_until("Ctrl-C ends", times=2)
        top.send_signal(signal.SIGINT)
        terminal.read_to_the_end()
        assert top.wait(PATIENCE_S) == 130


# ---------------------------------------------------------------- questions


@pytest.mark.parametrize(("answer", "code", "groups"), [("n", 1, 1), ("", 1, 1), ("y", 0, 0)])
def test_irreversible_commands_ask_on_a_terminal(
    queen: Client, queue: str, answer: str, code: int, groups: int
) -> None:
    queen.text("pop", queue, "-g", "g")
    with queen.on_a_terminal("groups", "delete", "g", "--queue", queue) as (command, terminal):
        terminal.read_until("[y/N]:")
        terminal.write(f"{answer}\n")
        terminal.read_to_the_end()
        assert command.wait(PATIENCE_S) == code
    assert len(queen.json("groups", "list", queue)) == groups


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("arguments", "given", "words"),
    [
        (("push", "q", "tea"), "", "use --text to push it as text"),
        (("push", "q"), "", "give either PAYLOAD"),
        (("push", "q", "1", "--file", "-"), "", "give either PAYLOAD"),
        (("push", "q", "1", "--items"), "", "--items needs --file"),
        (("push", "q", "--file", "-", "--transaction-id", "x"), "", "--transaction-id is for a single message"),
        (("push", "q", "--file", "/nowhere"), "", "/nowhere cannot be read: No such file"),
        (("push", "q", "--file", "/"), "", "/ cannot be read: Is a directory"),
        (("push", "q", "--file", "-", "--items"), '{"payloat": 1}', "line 1 is not an item"),
        (("push", "q", b"a\xff".decode(errors="surrogateescape"), "--text"), "", "not UTF-8"),
        (("push", "q", "-"), "[" * 100_000, "nested too deeply"),
        (("pop", ""), "", "at least one character"),
        (("pop", b"a\xff".decode(errors="surrogateescape")), "", "is not UTF-8"),
        (("pop", "q", "--timeout", "5"), "", "--wait"),
        (("pop", "q", "--from", "yesterday"), "", "is not a valid time"),
        (("ack",), '[{"a": 1}]', "standard input does not have messages"),
        (("ack",), "[" * 100_000, "standard input does not have messages"),
        (("ack", "partition"), "", "give the transaction ids"),
        (("ack", "--failed", "--retry"), "", "only one of"),
        (("ack", "a", "b", "--error", "x"), "", "--error needs"),
        (("dlq", "replay", "q"), "", "give ids, or --all"),
        (("dlq", "replay", "q", "a", "--group", "g"), "", "cannot be combined with ids"),
        (("seek", "q", "g"), "", "one of --to-beginning"),
        (("timers", "cancel", "q", ""), "", "at least one character"),
        (("schedules", "create", "q", "n", "* * * * *", "--payload", "{"), "", "--payload is not JSON"),
        (("seek", "q", "g", "--to", "99999999999d"), "", "is not a valid time"),
        (("queues", "list", "--url", "localhost:6632"), "", "is not the URL of a server"),
        (("queues", "list", "--url", "http://[::"), "", "is not a URL"),
        (("queues", "list", "--token", "a b"), "", "the token has invalid characters"),
    ],
)  # fmt: skip
def test_usage_errors_are_one_line(arguments: tuple[str, ...], given: str, words: str) -> None:
    # Nothing of it gets as far as a server.
    assert words in Client(f"http://127.0.0.1:{free_port()}").refusal(2, *arguments, given=given)


@pytest.mark.parametrize("arguments", [("push", "q", "1"), ("tail", "q"), ("top",), ("dlq", "purge", "q", "--yes")])
def test_a_server_that_is_not_there(arguments: tuple[str, ...]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    line = Client(url).refusal(2, *arguments)
    assert f"{url} is unreachable" in line
    assert "Connection refused" in line


class _Stranger(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404 if self.path == "/api/v1/status/queues/none" else 200)
        self.end_headers()
        self.wfile.write(b"<html>\xff")

    def log_message(self, *_arguments: object) -> None:
        """Says nothing."""


@contextmanager
def stranger() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Stranger) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{other.server_port}"
        finally:
            other.shutdown()
            thread.join()


def test_another_kind_of_server() -> None:
    with stranger() as url:
        assert "this is not a Queen server" in Client(url).refusal(2, "queues", "list")
        assert "this is not a Queen server" in Client(url).refusal(2, "queues", "show", "none")
        # A password in the URL is not shown.
        assert "secret" not in Client(url.replace("//", "//user:secret@")).refusal(2, "queues", "list")


async def test_a_full_queue_ends_a_file_and_says_how_far_it_came(queen: Client, api: Api, queue: str) -> None:
    await api.configure(queue, maxSize=25)
    lines = "".join(f"{number}\n" for number in range(100))
    line = queen.refusal(1, "push", queue, "--file", "-", "--batch", "10", given=lines)
    assert "(429; try again in 1 s). Lines up to 20 are stored" in line


def test_help_is_grouped_and_every_command_explains_itself() -> None:
    text = run("--help").stdout
    assert re.search(r"─ Server ─.*serve .*─ Client ─.*push .*top .*─ Checks ─.*doctor ", text, re.DOTALL)
    assert "--install-completion" in text
    for commands in COMMANDS.values():
        for command in commands:
            assert load(command).help, command


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("queen p", {"push", "pop", "procedures"}),
        ("queen dlq ", {"list", "replay", "purge"}),
        ("queen pop --a", {"--auto-ack"}),
        ("queen serve --wo", {"--workers", "--worker-class"}),
    ],
)
def test_a_shell_completes_commands_and_their_options(words: str, offered: set[str]) -> None:
    given = {"_QUEEN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    assert set(CliRunner(env=given).invoke(app, prog_name="queen").stdout.split()) == offered
