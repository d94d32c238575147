"""Runs audits over tables, and collects their violations."""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from .audits import Audit, all_audits
from .dialect import first_rows
from .inputs import Inputs
from .lives import MARK
from .tables import Tables
from .tables.columns import NEVER, is_empty
from .times import utc

_EVENTS = 50
Progress = Callable[[int, int, str], None]
"""Called with the number of finished audits, the total, and the name of the next one."""


class Result(StrEnum):
    """A verdict in one word."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


class Event(msgspec.Struct, frozen=True):
    """What a call said of a message; times are those of the server, as far as clocks are known."""

    since: str
    until: str
    call: str
    group: str
    lease: str
    said: str
    agent: str
    number: int


class Evidence(msgspec.Struct, frozen=True):
    """A violation: its subject and its location: in a journal by agent, number of the row, and position in the row.

    ``history`` is that of the message: who pushed it, who had it, under which lease, and what was answered.
    ``database`` is the one of several that has the partition.
    """

    text: str
    queue: str | None = None
    partition: str | None = None
    group: str | None = None
    offset: int | None = None
    transaction_id: str | None = None
    lease: str | None = None
    agent: str | None = None
    number: int | None = None
    position: int | None = None
    history: tuple[Event, ...] = ()
    database: str | None = None


class Verdict(msgspec.Struct, frozen=True):
    """The result of an audit; ``text`` has the reason of an unknown one. ``evidence`` may omit some violations."""

    audit: str
    ids: tuple[str, ...]
    result: Result
    violations: int = 0
    evidence: tuple[Evidence, ...] = ()
    text: str = ""
    seconds: float = 0.0


def choose(guarantees: Collection[str], interface: str = Tables.interface) -> list[Audit]:
    """The audits of these guarantees of an interface; all if none is named.

    Raises:
        ValueError: no audit checks a guarantee that was named.
    """
    audits = all_audits(interface)
    known = {id_ for audit in audits for id_ in audit.ids}
    if unknown := sorted(set(guarantees) - known):
        raise ValueError(f"no audit checks {', '.join(unknown)}; there are audits for {', '.join(sorted(known))}")
    return [audit for audit in audits if not guarantees or set(audit.ids) & set(guarantees)]


def run(
    inputs: Inputs, guarantees: Collection[str] = (), max_evidence: int = 20, progress: Progress | None = None
) -> list[Verdict]:
    """The verdicts of the audits of these guarantees; all if none is named."""
    tables = Tables(inputs)
    try:
        return judge_all(tables, guarantees, max_evidence, progress)
    finally:
        tables.close()


def judge_all(
    tables: Tables, guarantees: Collection[str], max_evidence: int, progress: Progress | None
) -> list[Verdict]:
    """The verdicts of the audits of these guarantees over tables that the caller closes."""
    audits = choose(guarantees, tables.interface)
    verdicts = []
    for number, audit in enumerate(audits):
        if progress:
            progress(number, len(audits), audit.name)
        verdicts.append(judge(audit, tables, max_evidence))
    if progress:
        progress(len(audits), len(audits), "charts of the run")
    return verdicts


def judge(audit: Audit, tables: Tables, max_evidence: int) -> Verdict:
    """The verdict of one audit; unknown if it has nothing to judge."""
    began = time.perf_counter()
    given = {name: tables.get(name) for name in (*audit.needs, *audit.uses)}
    if why := _nothing_to_judge(audit, given, tables):
        return Verdict(audit.name, audit.ids, Result.UNKNOWN, text=why, seconds=time.perf_counter() - began)
    found = audit.violations(given)
    # One query, unless there is more than is shown.
    rows = first_rows(found, max_evidence + 1).collect()
    count = len(rows) if len(rows) <= max_evidence else found.count()
    evidence = explain(found, rows[:max_evidence], tables) if count and max_evidence else ()
    result = Result.INVALID if count else Result.VALID
    return Verdict(audit.name, audit.ids, result, count, evidence, seconds=time.perf_counter() - began)


def _nothing_to_judge(audit: Audit, given: Mapping[str, DataFrame | None], tables: Tables) -> str:
    """Why an audit can judge nothing; empty if it can."""
    if missing := {name for name in audit.needs if given[name] is None}:
        return f"needs {'the log (--dsn)' if missing & tables.of_database else 'journals (--journal)'}"
    empty = (each for each in audit.bases if is_empty(each.rows(*(given[name] for name in each.tables))))
    return next((f"no {each.what} to check" for each in empty), "")


def explain(found: DataFrame, rows: list[Row], tables: Tables) -> tuple[Evidence, ...]:
    """Rows of what was found with the names behind lanes and hashes, and a row of a journal for each."""
    names = _names(tables, {row.lane for row in rows if row.lane is not None})
    wanted = sorted({(row.lane, row.hash) for row in rows if row.hash is not None})
    items: dict[tuple[int, int], Row] = {}
    if wanted and tables.get("named") is not None:
        keys = F.broadcast(found.sparkSession.createDataFrame(wanted, "lane bigint, hash bigint"))
        for item in tables.named.join(keys, ["lane", "hash"]).dropDuplicates(["lane", "hash"]).collect():
            items[item.lane, item.hash] = item
    told = histories(found.sparkSession, tables, wanted)
    return tuple(
        _evidence(row, names.get(row.lane), items.get((row.lane, row.hash)), told.get((row.lane, row.hash), []))
        for row in rows
    )


def _names(tables: Tables, lanes: set[int]) -> dict[int, Row]:
    """The queue and partition of each lane."""
    found: dict[int, Row] = {}
    for source in ("lanes", "heads") if lanes else ():
        table = tables.get(source)
        if table is not None:
            there = table.where(F.col("lane").isin(*lanes)).select("lane", "queue", "partition")
            found |= {row.lane: row for row in there.collect()}
    return found


def _evidence(row: Row, name: Row | None, item: Row | None, told: list[Event]) -> Evidence:
    # Evidence from a table of messages has no row of a journal; any row with the message serves.
    place = row if row.agent is not None else item
    return Evidence(
        text=row.text,
        queue=name.queue if name else row.queue,
        partition=name.partition if name else None,
        group=row.group,
        offset=row.offset,
        transaction_id=item.transaction_id if item else None,
        lease=row.lease,
        agent=place.agent if place else None,
        number=place.number if place else None,
        position=place.position if place else None,
        history=tuple(each for each in told if not row.group or not each.group or _same(each.group, row.group))[
            :_EVENTS
        ],
    )


def _same(group: str, other: str) -> bool:
    """Whether they are the same group, in this life or another one."""
    return re.sub(MARK, "", group) == re.sub(MARK, "", other)


def histories(
    spark: SparkSession, tables: Tables, messages: list[tuple[int, int]]
) -> dict[tuple[int, int], list[Event]]:
    """What the journals say of messages, known by lane and hash, in the order of time."""
    if not messages or tables.get("pushes") is None:
        return {}
    keys = F.broadcast(spark.createDataFrame(messages, "lane bigint, hash bigint"))
    found = defaultdict(list)
    for name, said in (("pushes", _pushed), ("deliveries", _delivered), ("acks", _acked)):
        for row in getattr(tables, name).join(keys, ["lane", "hash"]).collect():
            found[row.lane, row.hash].append((row.invoked, row.completed, _event(row, said(row))))
    ordered = {key: sorted(events, key=lambda each: each[:2]) for key, events in found.items()}
    return {key: [event for *_, event in events] for key, events in ordered.items()}


def _event(row: Row, said: str) -> Event:
    fields = row.asDict()
    until = "" if row.completed >= NEVER else utc(row.completed)
    return Event(
        utc(row.invoked),
        until,
        fields.get("kind") or "pop",
        fields.get("group") or "",
        fields.get("lease") or "",
        said,
        row.agent,
        row.number,
    )


def _pushed(row: Row) -> str:
    if row.outcome != "ok":
        return "refused" if row.outcome == "fail" else "no answer"
    word = "duplicate" if row.duplicate else "buffered" if row.spooled else "queued"
    return word if row.offset is None else f"{word}, offset {row.offset}"


def _delivered(row: Row) -> str:
    words = ["delivered"]
    words += [] if row.offset is None else [f"offset {row.offset}"]
    words += [] if row.attempt is None else [f"attempt {row.attempt}"]
    words += ["done at once (autoAck)"] if row.auto_ack else []
    words += [] if row.lease_seconds is None or row.auto_ack else [f"lease of {row.lease_seconds:g} s"]
    return ", ".join(words)


def _acked(row: Row) -> str:
    words = [row.status, {"ok": "accepted", "fail": "refused", "unknown": "no answer"}[row.outcome]]
    words += ["now a dead letter"] if row.dead else []
    words += ["changed nothing"] if row.noop else []
    return ", ".join(words)
