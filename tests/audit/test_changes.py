"""What operators did, as the log of a server tells it."""

import json

import pytest

from queen.core import administration
from spark_validation.journal.changes import keeps_dead_letters, read_changes
from spark_validation.journal.files import open_journal, write_lines
from tests.audit.faults import ordinary

TIME = "2026-11-26T05:13:12.127+00:00"
AT = 1_795_669_992_127_000


ID = "00000000-0008-8004-8000-000000000000"
LETTER = {"partitionId": "p1", "transactionId": "t", "consumerGroup": "g"}
REPLAYED = {"queue": "q", "partition": "p", "transactionId": "new", "messageId": "m", "duplicate": False}


def line(method: str, path: str, **fields: object) -> str:
    told = {"time": TIME, "level": "info", "logger": "queen.audit", "message": "administrative change", "pid": 1}
    asked = {"method": method, "path": f"/api/v1/{path}", "status": 200, "took_ms": 5.0}
    return json.dumps(told | asked | fields)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (line("DELETE", "consumer-groups/g"), [("change", "group deleted", None, None, "g")]),
        (line("DELETE", "consumer-groups/g/queues/a/b"), [("change", "group deleted", "a/b", None, "g")]),
        (
            line("POST", "consumer-groups/g/queues/q/partitions/p/seek"),
            [("change", "group moved", "q", "p", "g")],
        ),
        (
            line("DELETE", "dlq", query="queue=q&consumerGroup=g"),
            [("change", "dead letters deleted", "q", None, "g")],
        ),
        (
            line("DELETE", "dlq", query="queue=q&partition=p"),
            [("change", "dead letters deleted", "q", "p", "")],
        ),
        (line("DELETE", f"dlq/{ID}", dead_letter=LETTER), [("change", "dead letter deleted", None, None, "")]),
        (line("DELETE", "messages/p1/t/1"), [("change", "message deleted", None, None, "")]),
        (line("DELETE", "messages/p1/t", status=404), []),
        # It was not found, or could not be replayed.
        (line("DELETE", f"dlq/{ID}", status=None), []),
        (line("POST", "dlq/replay", dead_letter=LETTER), []),
        (
            line("POST", "configure", body='{"queue": "q"}'),
            [("change", name, "q", None, "") for name in ("queue configured", "retention configured")],
        ),
        (
            line("POST", "configure", body='{"queue": "q"}', answer='{"options": {"leaseTime": 60}}'),
            [
                ("change", name, "q", None, "")
                for name in ("queue configured", "retention configured", "lease time configured")
            ],
        ),
        # A client that disconnects may have asked for anything.
        (line("POST", "configure", body='{"queue": "q", "options": [1]}', status=None), []),
        (line("POST", "configure", body='{"queue": "q", "options": {"ttl": "x"}}', status=None), []),
        (line("POST", "configure", body='{"queue": 5}', status=None), []),
        (line("POST", "configure", body='{"queue": "q"'), []),
        (line("POST", "resources/queues/q/pause"), []),
        (line("DELETE", "consumer-groups/g").replace("queen.audit", "queen.http"), []),
        ("no JSON, but queen.audit", []),
        ('{"logger": "queen.audit"}', []),
    ],
)
def test_a_line_of_a_servers_log_is_what_an_operator_did(tmp_path, text, rows):
    path = tmp_path / "server.log"
    path.write_text(text + "\n")
    found = list(read_changes(path, "it"))
    assert [(each.kind, each.client, each.queue, each.partition, each.group) for each in found[:-1]] == rows
    assert [each.kind for each in found[-1:]] == (["end"] if rows else [])


@pytest.mark.parametrize(
    ("asked", "told", "silent", "keeps"),
    [
        ({}, {}, False, 0),
        ({"deadLetterQueue": False}, {}, True, 0),
        ({"deadLetterQueue": False, "dlqAfterMaxRetries": True}, {}, False, 0),
        ({"retentionSeconds": 5}, {}, False, 0),
        ({"retentionEnabled": True, "retentionSeconds": 5}, {"completedRetentionSeconds": 3}, False, 3),
        ({"ttl": 2, "retentionEnabled": True, "retentionSeconds": 5}, {}, False, 2),
    ],
)
def test_a_configuration_tells_what_a_queue_keeps(tmp_path, asked, told, silent, keeps):
    path = tmp_path / "server.log"
    body, answer = (json.dumps({"queue": "q", "options": each}) for each in (asked, told))
    path.write_text(line("POST", "configure", body=body, answer=answer) + "\n")
    queue, retention, _ = read_changes(path, "it")
    assert (queue.auto_ack, retention.lease_seconds) == (silent, keeps)


@pytest.mark.parametrize("letters", [None, False, True])
@pytest.mark.parametrize("after_retries", [None, False, True])
def test_what_keeps_dead_letters_is_what_the_server_says(letters, after_retries):
    """Audits may not import the server, so they have the rule a second time."""
    options = {"deadLetterQueue": letters, "dlqAfterMaxRetries": after_retries}
    assert keeps_dead_letters(options) == administration.keeps_dead_letters(letters, after_retries)


def test_a_change_lies_between_its_request_and_its_answer(tmp_path):
    path = tmp_path / "server.log"
    unknown = line("DELETE", "consumer-groups/h", status=None)
    path.write_text(f"{line('DELETE', 'consumer-groups/g')}\n{unknown}\n")
    one, two, _ = read_changes(path, "it")
    assert (one.sent, one.answered, one.outcome) == (AT - 6_000, AT + 1_000, "ok")
    assert (two.answered, two.outcome) == (None, "unknown")


@pytest.mark.parametrize("where", [f"dlq/{ID}/replay", "messages/p1/t/retry", "dlq/replay"])
def test_a_replayed_dead_letter_is_a_push(tmp_path, where):
    path = tmp_path / "server.log"
    path.write_text(line("POST", where, dead_letter=LETTER, replayed_as=REPLAYED))
    change, push, _ = read_changes(path, "it")
    assert [(each.partition, each.transaction_id, each.group) for each in change.acks] == [("p1", "t", "g")]
    [item] = push.pushes
    assert (item.queue, item.partition, item.transaction_id, item.outcome) == ("q", "p", "new", "ok")


def test_a_dead_letter_that_was_replayed_before_is_kept(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(line("POST", "dlq/replay", dead_letter=LETTER, replayed_as=REPLAYED | {"duplicate": True}))
    push, _ = read_changes(path, "it")
    assert [(each.outcome, each.duplicate) for each in push.pushes] == [("ok", True)]


def test_a_replay_whose_outcome_is_unknown_may_have_taken_its_dead_letter(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(line("POST", f"dlq/{ID}/replay", dead_letter=LETTER, status=503))
    change, _ = read_changes(path, "it")
    assert (change.outcome, [each.transaction_id for each in change.acks]) == ("unknown", ["t"])


def test_a_log_lies_beside_journals(tmp_path):
    write_lines(tmp_path / "a.jsonl", ordinary("q", 1)[1].calls)
    (tmp_path / "other.log").write_text("starting\n")
    (tmp_path / "server.log").write_text(line("DELETE", "consumer-groups/g") + "\n")
    work = tmp_path / "work"
    work.mkdir()
    found = open_journal(tmp_path, work)
    assert len(found.parquet) == 2
