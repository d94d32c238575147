"""What operators did, as the log of a server tells it."""

import json

import pytest

from spark_validation.journal.changes import read_changes
from spark_validation.journal.files import open_journal, write_lines
from tests.audit.faults import ordinary

TIME = "2026-11-26T05:13:12.127+00:00"
AT = 1_795_669_992_127_000


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
            line("DELETE", "dlq/00000000-0008-8004-8000-000000000000"),
            [("change", "dead letter deleted", None, None, "")],
        ),
        (line("POST", "configure", body='{"queue": "q"}'), [("change", "queue configured", "q", None, "")]),
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


def test_a_change_lies_between_its_request_and_its_answer(tmp_path):
    path = tmp_path / "server.log"
    unknown = line("DELETE", "consumer-groups/h", status=None)
    path.write_text(f"{line('DELETE', 'consumer-groups/g')}\n{unknown}\n")
    one, two, _ = read_changes(path, "it")
    assert (one.sent, one.answered, one.outcome) == (AT - 6_000, AT + 1_000, "ok")
    assert (two.answered, two.outcome) == (None, "unknown")


def test_a_replayed_dead_letter_is_a_push(tmp_path):
    path = tmp_path / "server.log"
    now = {"index": 0, "message_id": "m", "transaction_id": "new", "queueName": "q", "status": "queued", "offset": 3}
    answer = {"queue": "q", "partition": "p", "consumerGroup": "g", "originalTransactionId": "t", "replayedAs": now}
    path.write_text(line("POST", "dlq/00000000-0008-8004-8000-000000000000/replay", answer=json.dumps(answer)))
    change, push, _ = read_changes(path, "it")
    assert [(each.transaction_id, each.group) for each in change.acks] == [("t", "g")]
    [item] = push.pushes
    assert (item.queue, item.partition, item.transaction_id, item.outcome) == ("q", "p", "new", "ok")


def test_a_log_lies_beside_journals(tmp_path):
    write_lines(tmp_path / "a.jsonl", ordinary("q", 1)[1].calls)
    (tmp_path / "other.log").write_text("starting\n")
    (tmp_path / "server.log").write_text(line("DELETE", "consumer-groups/g") + "\n")
    work = tmp_path / "work"
    work.mkdir()
    found = open_journal(tmp_path, work)
    assert len(found.parquet) == 2
