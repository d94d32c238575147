"""The recording of the original against this server: every difference is intended, and every intended one is there."""

import json
from collections.abc import Iterator

import asyncpg
import pytest
from msgspec import structs

from tests.contract.intended import PAGE, Intended, judge, load, with_table
from tests.contract.transcript import Record, Replay, records
from tests.support.processes import Server, open_folder, serving, wait_until

#: Before these records so much time passed that leases and delays of the queue were over.
PASSES = {167: "ak", 238: "delay", 242: "window", 248: "maxwait"}
#: What was acked without a lease, which this server refuses, is acked before the first with the lease of the second.
FINISHED = {152: 150}
#: Before these there was time to store what had been buffered.
STORED = {373, 456}

_PASS_TIME = """
    WITH places AS (
        SELECT p.id AS part_id FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = $1
    ), cursors AS (
        UPDATE queen.partition_consumers SET ready_at = greatest(ready_at - interval '61 s', clock_timestamp())
        WHERE part_id IN (SELECT part_id FROM places) AND ready_at > clock_timestamp() AND ready_at < 'infinity'
    )
    UPDATE queen.segments SET created_at = created_at - interval '61 s'
    WHERE part_id IN (SELECT part_id FROM places)
"""


@pytest.fixture(scope="module")
def new_server() -> Iterator[Server]:
    """A new server."""
    with open_folder() as folder, serving(folder / "data", "--workers", "1") as running:
        yield running


async def pass_time(dsn: str, queue: str) -> None:
    """Makes everything in a queue a minute older."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_PASS_TIME.replace("$1", f"'{queue}'"))
    finally:
        await connection.close()


def finishing(popped: Record) -> Record:
    """The acks of a recorded pop, with its lease."""
    names = ("transactionId", "partitionId", "leaseId")
    acks = [{name: message[name] for name in names} for message in popped.answer.body["messages"]]
    content = json.dumps({"acknowledgments": acks}).encode()
    return structs.replace(popped, method="POST", path="/api/v1/ack/batch", content=content)


def is_stored(server: Server) -> bool:
    _status, buffers = server.request("GET", "/api/v1/status/buffers")
    return not buffers["spooling"]


async def test_every_difference_is_intended_and_every_intended_difference_is_there(new_server: Server) -> None:
    replay, observed = Replay(new_server.port), {}
    recorded = {record.number: record for record in records()}
    for record in recorded.values():
        if record.number in PASSES:
            await pass_time(new_server.dsn, PASSES[record.number])
        if record.number in STORED:
            wait_until(lambda: is_stored(new_server), "what was buffered is stored")
        if record.number in FINISHED:
            replay.play(finishing(recorded[FINISHED[record.number]]))
        observed[record.number] = replay.play(record)
    assert list(judge(observed, load())) == []
    assert len(observed) == 507
    assert new_server.workers(), "the worker lives"


def test_a_difference_that_is_not_listed_and_one_that_does_not_occur_are_complaints() -> None:
    entry = Intended("empty", "204", ["status 200 → 204", "type $: *"], frozenset({1, 2}))
    assert (
        list(judge({1: ["status 200 → 204", "type $: object → nothing"], 2: ["type $: text → nothing"]}, [entry])) == []
    )
    assert list(judge({1: ["status 200 → 204"], 3: ["value $.x"]}, [entry])) == [
        "record 3: `value $.x` is not intended",
        "empty: `type $: *` does not occur",
        "empty: does not occur in records [2]",
    ]


def test_the_page_shows_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), "run `python -m tests.contract`"
