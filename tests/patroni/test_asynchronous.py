"""Asynchronous standbys: a failover loses what was answered and is on none of them, and it is said before."""

import json
from pathlib import Path
from typing import Any

from tests.support.patroni import Node, cluster
from tests.support.processes import Server, run, wait_until
from tests.support.servers import serving_database

QUEUE, SAFE, AT_RISK = "async", 50, 30


def push(server: Server, number: int) -> None:
    status, [item] = server.request("POST", "/api/v1/push", {"items": [{"queue": QUEUE, "payload": number}]})
    assert (status, item["status"]) == (201, "queued")


def payloads(node: Node) -> list[int]:
    """What is stored, in order."""
    found = node.sql(f"SELECT payload::text::int FROM queen.messages WHERE queue = '{QUEUE}' ORDER BY off")
    return [int(line) for line in found.splitlines()]


def durability_of(dsn: str) -> dict[str, Any]:
    """What the doctor says of it."""
    findings = json.loads(run("doctor", "--json", "--dsn", dsn).stdout)["findings"]
    return next(each for each in findings if each["topic"] == "durability")


def test_answered_pushes_that_no_standby_has_are_lost_and_the_doctor_and_the_start_warn(folder: Path) -> None:
    with (
        cluster(folder / "cluster", synchronous_mode=False, synchronous_mode_strict=False) as nodes,
        serving_database(nodes.dsn, folder, "--workers", "1") as server,
    ):
        said = durability_of(nodes.dsn)
        assert said["grade"] == "warning"
        assert "2 standbys are connected" in said["text"]
        assert said["text"] in server.output.read_text(), "the start says it, too"

        old = nodes.wait_until_whole()
        for number in range(SAFE):
            push(server, number)
        end = old.sql("SELECT pg_current_wal_lsn()").strip()
        others = [node for node in nodes.nodes.values() if node is not old]
        arrived = f"SELECT pg_last_wal_receive_lsn() >= '{end}'"
        wait_until(lambda: all(node.sql(arrived).strip() == "t" for node in others), "all on the standbys")
        # Patroni needs seconds to notice.
        old.host.cut_off(*(node.host.address for node in others))
        for number in range(SAFE, SAFE + AT_RISK):
            push(server, number)
        assert payloads(old) == list(range(SAFE + AT_RISK))
        old.kill()
        new = nodes.new_primary(old)
        # Not before: the kernel of the old primary would still send what PostgreSQL had handed to it.
        old.host.connect()
        server.wait_until_healthy()
        kept = payloads(new)
        print(f"answered {SAFE + AT_RISK}, kept {len(kept)}, lost {SAFE + AT_RISK - len(kept)}")
        assert kept[:SAFE] == list(range(SAFE)), "what a standby had is not lost, and in order"
        assert kept == list(range(len(kept))), "a beginning of what was answered: the end is missing, nothing else"
        assert len(kept) == SAFE, "this is what synchronous_mode_strict is for"
        old.start_patroni()
        nodes.wait_until_whole()
        wait_until(server.is_settled, "an empty spool")
        push(server, 1000)
        assert payloads(new) == [*kept, 1000]
