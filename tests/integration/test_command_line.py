"""What all commands of ``queen`` have in common: verbs, options, errors, exit codes; and those that administer."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from queen.cli.errors import ExitCode
from queen.cli.main import COMMANDS, app, load
from tests.support.client_commands import Client, Result
from tests.support.processes import PATIENCE_S, PYTHON, ROOT, Server, clean_environment, free_port, run, wait_until

VERBS = {
    "list", "show", "create", "configure", "delete", "pause", "resume", "replay", "purge", "retry", "discard", "cancel",
    "fire", "start", "stop", "use", "restore", "reset", "rotate", "build", "archive", "watch",
    "add", "drain", "move", "retire",  # a database
    "send", "receive", "peek", "ack",  # messages of SQS
    "consumers",  # of a group: those that are connected
}  # fmt: skip
#: Commands that print no facts: they run until they are ended, build, or change something on this machine.
WITHOUT_JSON = {
    "serve", "worker", "meinheld build", "contexts create", "contexts use", "contexts delete", "spool retry",
    "spool discard",
    "procedures restore", "procedures reset",
}  # fmt: skip


@pytest.fixture
def queen(server: Server) -> Client:
    return Client(server)


def leaves() -> Iterator[tuple[str, Any]]:
    """Every command with its words; those of ``queen bench`` are named after their scenarios."""
    for commands in COMMANDS.values():
        for command in commands:
            if command.name == "bench":
                continue
            found = load(command)
            for name, each in getattr(found, "commands", {}).items():
                yield f"{command.name} {name}", each
            if not getattr(found, "commands", None) or found.invoke_without_command:
                yield command.name, found


# ---------------------------------------------------------------- one way for all


def test_the_same_verbs_everywhere() -> None:
    assert {words.split()[1] for words, _ in leaves() if " " in words} <= VERBS


def test_json_is_a_flag_everywhere() -> None:
    flags = {words: {option: each for each in command.params for option in each.opts} for words, command in leaves()}
    assert {words for words, options in flags.items() if "--json" not in options} == WITHOUT_JSON
    assert all(options["--json"].is_flag for options in flags.values() if "--json" in options)


def test_every_client_command_takes_a_context() -> None:
    for words, command in leaves():
        options = {option for each in command.params for option in each.opts}
        if "--token" in options and not words.startswith("contexts"):
            assert "--context" in options, words


def test_exit_codes_are_those_of_the_table() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert set(map(int, re.findall(r"^\| (\d+) \|", page, re.MULTILINE))) == set(ExitCode)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fly",), "No such command 'fly'"),
        (("queues", "lst"), "No such command 'lst'"),
        (("pop",), "Missing argument 'QUEUE': see `queen pop --help`"),
        (("pop", "q", "--wat"), "No such option: --wat"),
        (("pop", "q", "--batch", "0"), "--batch"),
        (("serve", "--port", "99999"), "--port"),
        (("serve", "--workers", "0"), "--workers"),
        (("queues", "list", "--url", "http://127.0.0.1:99999"), "99999"),
        (("queues", "list", "--context", "nowhere"), "`queen contexts list` lists them"),
        (("queues", "list", "--url", "http://127.0.0.1:1", "--context", "a"), "give one of them"),
        (("queues", "configure", "q"), "nothing to change: give at least one option"),
        (("maintenance", "start", "everything"), "'everything' is not one of 'push', 'pop'"),
        (("doctor", "--url", "http://127.0.0.1:1", "--dsn", "postgresql://h/d"), "omit --dsn"),
        (("verify", "--only", "G-NO-1", "http://127.0.0.1:1"), "no check here is about G-NO-1"),
        (("audit", "--max-evidence", "-1"), "--max-evidence"),
    ],
)
def test_every_usage_error_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert words in line


def test_a_setting_of_the_environment_is_a_usage_error_too() -> None:
    done = run("serve", PORT="99999")
    assert (done.returncode, done.stderr) == (2, "error: PORT='99999' is not a whole number from 0 to 65535\n")


def test_one_of_a_kind_may_be_named_in_the_singular(queen: Client, queue: str) -> None:
    queen.text("queue", "create", queue)
    assert queen.json("queue", "show", queue)["queue"]["name"] == queue


# ---------------------------------------------------------------- Ctrl-C


def interrupted(environment: dict[str, str], seconds: float, *arguments: str) -> tuple[int, str]:
    """How a command ends that gets Ctrl-C this long after its start, while it is imported or at work."""
    with subprocess.Popen(
        [*PYTHON, *arguments], cwd=ROOT, env=clean_environment(**environment), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said


@pytest.mark.parametrize("arguments", [("--help",), ("queues", "--help"), ("bench", "--help"), ("settings",)])
def test_a_reader_that_leaves_is_no_error(arguments: tuple[str, ...]) -> None:
    with subprocess.Popen(
        [*PYTHON, *arguments],
        cwd=ROOT,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert (process.wait(PATIENCE_S), process.stderr.read()) == (0, "")


@pytest.mark.parametrize("arguments", [("top",), ("push", "q", "-")])
def test_ctrl_c_ends_with_one_code_at_any_moment(queen: Client, arguments: tuple[str, ...]) -> None:
    began = time.monotonic()
    run("--version")
    start = time.monotonic() - began
    for part in (0.4, 0.6, 0.8, 2.5):
        code, said = interrupted(queen.environment, part * start, *arguments)
        if "Could not import runpy" in said:
            continue  # Python itself was still starting
        # Before its first line Python ends by the signal, which a shell shows as the same number.
        assert code in (ExitCode.INTERRUPTED, -signal.SIGINT), (part, said)
        assert "Traceback" not in said or code == -signal.SIGINT, said


def test_ctrl_c_at_a_question_has_the_same_code(queen: Client, queue: str) -> None:
    queen.text("pop", queue, "-g", "g")
    with queen.on_a_terminal("groups", "delete", "g", "--queue", queue) as (command, terminal):
        terminal.read_until("[y/N]:")
        command.send_signal(signal.SIGINT)
        terminal.read_to_the_end()
        assert command.wait(PATIENCE_S) == ExitCode.INTERRUPTED


# ---------------------------------------------------------------- names


def test_a_mistyped_queue_is_said_to_be_unknown(queen: Client, queue: str) -> None:
    queen.text("push", queue, "1")
    queen.text("pop", queue, "-g", "billing", "--auto-ack")
    near = f"{queue[:-1]}_"
    for arguments in (
        ("queues", "show", near), ("queues", "configure", near, "--ttl", "1"), ("queues", "delete", near, "-y"),
        ("queues", "pause", near), ("dlq", "list", near), ("groups", "list", near), ("timers", "list", near),
        ("schedules", "list", near), ("tail", near, "--no-follow"), ("seek", near, "billing", "--to-end", "-y"),
        ("groups", "show", "billing", "-q", near), ("groups", "delete", "billing", "-q", near, "-y"),
    ):  # fmt: skip
        assert queen.refusal(1, *arguments) == f"error: there is no queue {near}: did you mean {queue}?", arguments
    popped = queen.call("pop", near)
    assert (popped.code, popped.stderr) == (0, f"no messages: there is no queue {near}: did you mean {queue}?\n")
    far = queen.refusal(1, "queues", "show", "§§§§")
    assert far == "error: there is no queue §§§§: `queen queues list` lists those that exist"
    assert "did you mean billing?" in queen.refusal(1, "seek", queue, "biling", "--to-end", "-y")
    assert "did you mean billing?" in queen.refusal(1, "groups", "show", "biling", "-q", queue)


def completed(environment: dict[str, str], words: str) -> set[str]:
    """What a shell offers for the last of the words."""
    given = {"_QUEEN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    return set(CliRunner(env=environment | given).invoke(app, prog_name="queen").stdout.split())


def test_a_shell_completes_names_of_queues_and_groups(queen: Client, queue: str) -> None:
    queen.text("push", queue, "1")
    queen.text("pop", queue, "-g", f"{queue}-group")
    assert completed(queen.environment, f"queen pop {queue[:-3]}") == {queue}
    assert completed(queen.environment, f"queen queues show {queue[:-3]}") == {queue}
    assert completed(queen.environment, f"queen groups show {queue[:-3]}") == {f"{queue}-group"}
    assert completed(queen.environment, f"queen seek {queue} {queue[:-3]}") == {f"{queue}-group"}
    assert completed({"QUEEN_URL": f"http://127.0.0.1:{free_port()}"}, f"queen pop {queue[:-3]}") == set()


# ---------------------------------------------------------------- contexts


def test_contexts_name_servers(queen: Client, queue: str, tmp_path: Path) -> None:
    url = queen.environment["QUEEN_URL"]

    def there(*arguments: str, given: str = "", **variables: str) -> Result:
        client = Client("")
        client.environment = {"XDG_CONFIG_HOME": str(tmp_path), **variables}
        return client.call(*arguments, given=given)

    assert "contexts.json" in there("contexts", "create", "here", "--url", url).stdout
    secret = there("contexts", "create", "away", "--url", "http://127.0.0.1:1", "--token", "-", given="hush\n")
    assert "hush" not in secret.stdout
    file = tmp_path / "queen" / "contexts.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(there("contexts", "list", "--json").stdout) == [
        {"name": "away", "url": "http://127.0.0.1:1", "token": True, "current": False},
        {"name": "here", "url": url, "token": False, "current": True},
    ]
    # The first one is in use; an option wins over a variable, and a variable over what is in use.
    assert there("push", queue, "1").code == 0
    assert there("push", queue, "1", "--context", "away").code == 2
    assert there("push", queue, "1", QUEEN_CONTEXT="away").code == 2
    assert there("push", queue, "1", QUEEN_URL="http://127.0.0.1:1").code == 2
    assert there("push", queue, "1", "--context", "here", QUEEN_URL="http://127.0.0.1:1").code == 0
    assert there("push", queue, "1", "--url", url, QUEEN_CONTEXT="away").code == 0
    assert there("contexts", "use", "away").code == 0
    assert there("push", queue, "1").code == 2
    assert "--yes" in there("contexts", "delete", "away").stderr
    assert there("contexts", "delete", "away", "--yes").code == 0
    assert "hush" not in file.read_text()
    assert "there is no context away" in there("contexts", "show", "away").stderr
    file.write_text("{")
    assert "Correct it, or remove it" in there("queues", "list").stderr


# ---------------------------------------------------------------- administration


def test_queues_are_created_configured_and_deleted(queen: Client, queue: str) -> None:
    create = ("queues", "create", queue, "--lease-time", "7", "--namespace", "n", "--no-dead-letter-queue")
    assert queen.json(*create)["options"]["leaseTime"] == 7
    assert "there is a queue" in queen.refusal(1, "queues", "create", queue)
    changed = queen.json("queues", "configure", queue, "--retry-limit", "9", "--dead-letter-queue")
    assert (changed["namespace"], changed["options"]["leaseTime"], changed["options"]["retryLimit"]) == ("n", 7, 9)
    assert changed["options"]["deadLetterQueue"] is True
    assert changed["options"]["dlqAfterMaxRetries"] is True
    assert "options.leaseTime" in queen.refusal(1, "queues", "configure", queue, "--lease-time", "-1")
    assert "--yes" in queen.refusal(2, "queues", "delete", queue)
    assert queen.text("queues", "delete", queue, "--yes") == f"{queue} deleted\n"
    assert "there is no queue" in queen.refusal(1, "queues", "delete", queue, "--yes")


def test_the_options_of_a_queue_are_those_of_the_interface(queen: Client) -> None:
    url = queen.environment["QUEEN_URL"]
    document = httpx.get(f"{url}/openapi.json").json()
    known = set(document["components"]["schemas"]["Options"]["properties"])
    command = dict(leaves())["queues configure"]
    offered = {
        re.sub(r"_(.)", lambda letter: letter.group(1).upper(), each.name)
        for each in command.params
        if each.name not in {"queue", "json", "url", "token", "context"}
    }
    # A second name of deadLetterQueue, of older clients.
    assert offered == known - {"dlqAfterMaxRetries"}


def test_a_message_and_its_traces_are_shown(queen: Client, queue: str) -> None:
    queen.text("push", queue, '{"item": "tea"}', "--transaction-id", "order 1", "-H", "type=order")
    [message] = queen.json("pop", queue)
    place = (message["partitionId"], "order 1")
    trace = {"transactionId": "order 1", "partitionId": place[0], "data": {"step": "boiled"}, "traceNames": [queue]}
    assert httpx.post(f"{queen.environment['QUEEN_URL']}/api/v1/traces", json=trace).status_code == 201
    text = queen.text("messages", "show", *place)
    assert re.search(r"^header type +order *$", text, re.MULTILINE)
    assert re.search(r'^payload +\{"item":"tea"\} *$', text, re.MULTILINE)
    assert re.search(r"^__QUEUE_MODE__ +processing ", text, re.MULTILINE)
    assert queen.json("message", "show", *place)["transactionId"] == "order 1"
    assert "boiled" in queen.text("traces", "show", queue)
    assert queen.json("trace", "show", *place)[0]["data"] == {"step": "boiled"}
    for search in (queue, queue[-6:].upper()):
        assert re.search(rf"^{queue} +1 +1 ", queen.text("traces", "list", "--search", search), re.MULTILINE)
    assert queen.json("traces", "list", "--search", f"{queue}?") == []
    assert "--yes" in queen.refusal(2, "messages", "delete", *place)
    assert queen.text("messages", "delete", *place, "-y") == "order 1 deleted\n"
    advice = "it is deleted, or `queen tail QUEUE --json` has its ids"
    for verb in (("show",), ("delete", "-y")):
        refusal = queen.refusal(1, "messages", *verb, *place)
        assert refusal == f"error: there is no message order 1 in the partition: {advice}", verb
    assert queen.call("traces", "show", *place).stderr == "no traces\n"


def test_a_message_says_which_group_gave_it_up_and_why(queen: Client, queue: str) -> None:
    queen.text("push", queue, "1", "--transaction-id", "t")
    queen.text("ack", given=queen.text("pop", queue, "-g", "fine", "--json"))
    message = queen.text("pop", queue, "-g", "broke", "--json")
    queen.text("ack", "--dlq", "--error", "no tea\nat all", given=message)
    text = queen.text("messages", "show", json.loads(message)[0]["partitionId"], "t")
    assert re.search(r"^fine +completed *$", text, re.MULTILINE)
    assert re.search(r"^broke +dead_letter +20\S+ \S+ +no tea\\nat all *$", text, re.MULTILINE)


def test_maintenance_is_started_shown_and_stopped(queen: Client, queue: str) -> None:
    assert re.search(r"^push maintenance +off", queen.text("maintenance", "show"), re.MULTILINE)
    assert "Pops get no messages" in queen.text("maintenance", "start", "pop")
    try:
        assert queen.json("maintenance", "show")["popMaintenanceMode"] is True
        found = run("doctor", "--url", queen.environment["QUEEN_URL"])
        assert found.returncode == 1
        assert "`queen maintenance stop pop` ends it" in found.stdout
    finally:
        assert "Pops get messages" in queen.text("maintenance", "stop", "pop")
    queen.text("push", queue, "1")
    wait_until(lambda: queen.json("pop", queue), "the end of the mode, also in the other worker")


# ---------------------------------------------------------------- doctor, settings


def test_doctor_examines_a_server_over_http(queen: Client, queue: str) -> None:
    queen.text("push", queue, "1")
    queen.text("ack", "--dlq", given=queen.text("pop", queue, "-g", "g", "--json"))
    url = queen.environment["QUEEN_URL"]
    done = run("doctor", "--url", url, "--json")
    found = {each["topic"]: each for each in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    assert {"server", "spool", "workers", "dead letters"} <= found.keys()
    # It advises commands, not routes.
    assert "`queen dlq list QUEUE`" in found["dead letters"]["advice"]
    assert "/api/" not in done.stdout
    nowhere = run("doctor", "--url", f"http://127.0.0.1:{free_port()}")
    assert nowhere.returncode == 2
    assert "is unreachable" in nowhere.stderr


def test_settings_in_effect_are_shown_with_their_source() -> None:
    given = {
        "QUEEN_MAX_BODY_BYTES": "2048",
        "QUEEN_PRESET": "low-latency",
        "JWT_SECRET": "hush" * 10,
        "LOG_LEVEL": "error",
    }
    done = run("settings", "--json", **given)
    found = {each["variable"]: each for each in json.loads(done.stdout)}
    assert found["MAX_BODY_SIZE"] == {"variable": "MAX_BODY_SIZE", "value": 2048, "source": "QUEEN_MAX_BODY_BYTES"}
    assert found["NUM_WORKERS"]["source"] == "preset"
    assert found["QUEEN_POP_MAX_CONCURRENT"]["source"] == "preset"
    assert found["HOST"] == {"variable": "HOST", "value": "127.0.0.1", "source": "default"}
    assert found["JWT_SECRET"]["source"] == "JWT_SECRET"
    text = run("settings", "--effective", **given)
    assert re.search(r"^LOG_LEVEL +error +LOG_LEVEL *$", text.stdout, re.MULTILINE)
    assert "hush" not in text.stdout + done.stdout
    assert run("settings", "--effective", PORT="x").returncode == 2


# ---------------------------------------------------------------- progress


def test_a_bar_knows_its_end_from_the_start(queen: Client, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text("1\n" * 2000)
    for arguments in (
        ("push", queue, "--file", str(file), "--batch", "10"),
        ("verify", queen.environment["QUEEN_URL"], "--only", "G-IDEM-4"),
    ):
        with queen.on_a_terminal(*arguments) as (command, terminal):
            terminal.read_to_the_end()
            assert command.wait(PATIENCE_S) == 0
            assert b"/?" not in terminal.shown


def test_no_is_an_answer_of_its_own(queen: Client, queue: str) -> None:
    queen.text("pop", queue, "-g", "g")
    with queen.on_a_terminal("groups", "delete", "g", "--queue", queue) as (command, terminal):
        terminal.read_until("[y/N]:")
        terminal.write("n\n")
        terminal.read_until("nothing was done")
        terminal.read_to_the_end()
        assert command.wait(PATIENCE_S) == ExitCode.FAILED
