"""What is judged after a schedule: all that clients were told, and the log itself, read as one more consumer group."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import asyncpg
import msgspec

from queen.core.placement import slot_of
from spec.checkers import all_checkers, judge
from spec.history import Call, Delivery, Drained, History, Pop, Push, PushItem, Record

#: The consumer group that sees the whole log, each message once.
LOG = "the log"
_NS = 1_000_000_000
Key = tuple[str, str, str]


async def read_log(dsns: Sequence[str], queues: Sequence[str]) -> tuple[Delivery, ...]:
    """Every message of the queues, as the databases have it. A partition that two of them have has offsets twice."""
    found = [each for dsn in dsns for each in await _read_one(dsn, queues)]
    return tuple(sorted(found, key=lambda each: (each.lane, each.offset)))


async def _read_one(dsn: str, queues: Sequence[str]) -> tuple[Delivery, ...]:
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT queue, partition, part_id, off, id::text, transaction_id, payload::text, created_at"
            " FROM queen.messages WHERE queue = ANY($1)",
            list(queues),
        )
    finally:
        await connection.close()
    return tuple(_delivery(row) for row in rows)


def _delivery(row: Any) -> Delivery:
    payload = msgspec.json.decode(row["payload"])
    return Delivery(
        row["queue"], row["partition"], str(row["part_id"]), row["id"], row["transaction_id"], payload,
        offset=row["off"], attempt=1, created_at=row["created_at"].isoformat(),
    )  # fmt: skip


def whole_history(records: Sequence[Record], log: tuple[Delivery, ...], now: int) -> History:
    """What clients saw, and the log; messages whose ids the server made have their names."""
    names: dict[Key, str] = {}
    homes = {each.lane: slot_of(int(each.partition_id)) for each in log}
    for each in log:
        # If a message is there twice, `doubled` says so.
        names.setdefault(_key(each.queue, each.partition, each.payload), each.transaction_id)
    reading: list[Record] = []
    for queue in dict.fromkeys(each.queue for each in log):
        found = tuple(each for each in log if each.queue == queue)
        reading.append(
            Pop(
                invoked=now, completed=now + 1, client=LOG, queue=queue, group=LOG, batch=len(found),
                partitions=len(found), auto_ack=True, deliveries=found,
            )
        )  # fmt: skip
        reading.append(Drained(at=now + 2, queue=queue, group=LOG))
    divided = [part for record in records for part in _by_database(record, homes)]
    return History((*(_named(record, names) for record in divided), *reading))


def _by_database(record: Record, homes: Mapping[tuple[str, str], int]) -> Iterator[Record]:
    """A push that was not answered as stored was stored whole or not at all in each database."""
    if not isinstance(record, Push) or record.outcome == "ok":
        yield record
        return
    found: dict[int | None, list[PushItem]] = {}
    for item in record.items:
        found.setdefault(homes.get(item.lane), []).append(item)
    for items in found.values():
        yield replace(record, items=tuple(items))


def _key(queue: str, partition: str, payload: Any) -> Key:
    return queue, partition, payload["id"]


def _named(record: Record, names: dict[Key, str]) -> Record:
    if isinstance(record, Pop) and record.outcome == "ok" and not record.deliveries and not record.auto_ack:
        # A poll that ends empty gives back what a late look finds; when PostgreSQL is down it cannot.
        return replace(record, outcome="unknown", completed=None)
    if not isinstance(record, Push) or all(item.transaction_id for item in record.items):
        return record
    return replace(record, items=tuple(_named_item(item, names) for item in record.items))


def _named_item(item: PushItem, names: dict[Key, str]) -> PushItem:
    if item.transaction_id:
        return item
    key = _key(item.queue, item.partition, item.payload)
    return replace(item, transaction_id=names.get(key) or f"never stored: {key[2]}")


@dataclass(frozen=True)
class Verdict:
    """What came of a run.

    Attributes:
        messages: in the log.
        spooled: pushed messages that were answered as buffered.
        stall_s: the longest time in which no push was answered as a success.
        outcomes: how calls ended.
        faults: what must not be.
    """

    messages: int
    spooled: int
    stall_s: float
    outcomes: dict[str, int]
    faults: dict[str, list[str]]

    @property
    def figures(self) -> str:
        """In a line, for people."""
        return (
            f"{self.messages} messages, {self.spooled} through the spool, calls {self.outcomes}, "
            f"longest stall {self.stall_s:.1f} s, {len(self.faults)} guarantees broken"
        )


def judge_all(history: History, log: Sequence[Delivery]) -> Verdict:
    """Every checker over everything, and what only the log can show."""
    faults = {
        check.name: [f"{violation.subject} {violation.text}" for violation in violations]
        for check, checker in all_checkers()
        if (violations := judge(checker, history).violations)
    }
    faults |= {name: found for name, found in (("doubled", _doubled(log)), ("gaps", _gaps(log))) if found}
    spooled = sum(item.spooled for push in history.pushes for item in push.items)
    outcomes = Counter(record.outcome for record in history.records if isinstance(record, Call))
    return Verdict(len(log), spooled, _longest_stall(history), dict(outcomes), faults)


def _doubled(log: Sequence[Delivery]) -> list[str]:
    counts = Counter(_key(each.queue, each.partition, each.payload) for each in log)
    return [f"{key} is in the log {count} times" for key, count in counts.items() if count > 1]


def _gaps(log: Sequence[Delivery]) -> list[str]:
    """Offsets of a partition count from 0, each once."""
    found = [f"{each.lane} begins at {each.offset}" for each in log[:1] if each.offset]
    for one, other in pairwise(log):
        expected = (one.offset or 0) + 1 if one.lane == other.lane else 0
        if other.offset != expected:
            found.append(f"{other.lane} has offset {other.offset} instead of {expected}")
    return found


def _longest_stall(history: History) -> float:
    answered = sorted(push.end for push in history.pushes if push.outcome == "ok")
    return max((later - earlier for earlier, later in pairwise(answered)), default=0) / _NS
