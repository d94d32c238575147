"""Runs audits over tables, and gathers what they found."""

import time
from collections.abc import Callable, Collection
from enum import StrEnum

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from .audits import Audit, all_audits
from .inputs import Inputs
from .tables import Tables

Progress = Callable[[int, int, str], None]
"""Called with how many audits are done, of how many, and the name of the next one."""


class Result(StrEnum):
    """A verdict in one word."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


class Evidence(msgspec.Struct, frozen=True):
    """A violation: what it is about, and where to look. Journal references are agent, row number and place in the row."""

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


class Verdict(msgspec.Struct, frozen=True):
    """What an audit says; ``text`` tells why nothing could be said. ``violations`` counts also those without evidence here."""

    audit: str
    ids: tuple[str, ...]
    result: Result
    violations: int = 0
    evidence: tuple[Evidence, ...] = ()
    text: str = ""
    seconds: float = 0.0


def choose(guarantees: Collection[str]) -> list[Audit]:
    """The audits of these guarantees; all when none is named.

    Raises:
        ValueError: no audit checks a guarantee that was named.
    """
    audits = all_audits()
    known = {id_ for audit in audits for id_ in audit.ids}
    if unknown := sorted(set(guarantees) - known):
        raise ValueError(f"no audit checks {', '.join(unknown)}; there are audits of {', '.join(sorted(known))}")
    return [audit for audit in audits if not guarantees or set(audit.ids) & set(guarantees)]


def run(
    inputs: Inputs, guarantees: Collection[str] = (), max_evidence: int = 20, progress: Progress | None = None
) -> list[Verdict]:
    """The verdicts of the audits of these guarantees."""
    audits = choose(guarantees)
    tables = Tables(inputs)
    verdicts = []
    try:
        for number, audit in enumerate(audits):
            if progress:
                progress(number, len(audits), audit.name)
            verdicts.append(judge(audit, tables, max_evidence))
    finally:
        tables.close()
    return verdicts


def judge(audit: Audit, tables: Tables, max_evidence: int) -> Verdict:
    """The verdict of one audit. It has something to judge when each table that is named first among its needs has rows."""
    given = {name: tables.get(name) for name in (*audit.needs, *audit.uses)}
    if missing := [name for name in audit.needs if given[name] is None]:
        source = (
            "the log (--dsn or --archive)"
            if set(missing) & {"log", "heads", "cursors", "dead_letters", "queues"}
            else "journals (--journal)"
        )
        return Verdict(audit.name, audit.ids, Result.UNKNOWN, text=f"needs {source}")
    first = given[audit.needs[0]]
    assert first is not None  # it would be missing
    began = time.perf_counter()
    if first.isEmpty():
        return Verdict(audit.name, audit.ids, Result.UNKNOWN, text=f"there are no {audit.needs[0]} to judge")
    found = audit.find(**given).persist(StorageLevel.DISK_ONLY)
    try:
        count = found.count()
        evidence = explain(found.limit(max_evidence), tables) if count and max_evidence else ()
    finally:
        found.unpersist()
    result = Result.INVALID if count else Result.VALID
    return Verdict(audit.name, audit.ids, result, count, evidence, seconds=time.perf_counter() - began)


def explain(found: DataFrame, tables: Tables) -> tuple[Evidence, ...]:
    """The rows with the names behind lanes and hashes, and a row of a journal for each."""
    rows = found.collect()
    spark = found.sparkSession
    lanes = {row.lane for row in rows if row.lane is not None}
    names = {}
    for source in ("lanes", "heads"):
        table = tables.get(source)
        if table is not None and lanes:
            names |= {
                row.lane: row
                for row in table.where(F.col("lane").isin(*lanes)).select("lane", "queue", "partition").collect()
            }
    wanted = {(row.lane, row.hash) for row in rows if row.hash is not None}
    items = {}
    if wanted and tables.get("pushes") is not None:
        keys = F.broadcast(spark.createDataFrame(sorted(wanted), "lane bigint, hash bigint"))
        for row in tables.named.join(keys, ["lane", "hash"]).dropDuplicates(["lane", "hash"]).collect():
            items[row.lane, row.hash] = row
    return tuple(_evidence(row.asDict(), names, items) for row in rows)


def _evidence(
    row: dict[str, object], names: dict[object, object], items: dict[tuple[object, object], object]
) -> Evidence:
    name, item = names.get(row["lane"]), items.get((row["lane"], row["hash"]))
    of_journal = row if row["agent"] is not None else {}
    return Evidence(
        text=str(row["text"]),
        queue=getattr(name, "queue", row["queue"]),
        partition=getattr(name, "partition", None),
        group=row["group"],  # type: ignore[arg-type]
        offset=row["offset"],  # type: ignore[arg-type]
        transaction_id=getattr(item, "transaction_id", None),
        lease=row["lease"],  # type: ignore[arg-type]
        agent=of_journal.get("agent", getattr(item, "agent", None)),  # type: ignore[arg-type]
        number=of_journal.get("number", getattr(item, "number", None)),  # type: ignore[arg-type]
        position=of_journal.get("position", getattr(item, "position", None)),  # type: ignore[arg-type]
    )
