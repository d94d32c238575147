"""What the doctor says of facts."""

from typing import Any

import pytest
from msgspec import structs

from queen.core.diagnosis import (
    ClockStep,
    DatabaseFacts,
    Grade,
    Lag,
    SchemaFacts,
    Session,
    SpoolFacts,
    Table,
    judge,
    judge_spool,
    worst,
)
from queen.core.statistics import OutboxState, TimersState

SOUND = DatabaseFacts(
    "18.1", 180001,
    {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "autovacuum": "on",
     "shared_buffers_kb": "262144"},
    20, 100, False, 0.001, 1_000_000,
    [Table("queen.segments", 5_000, 400, 1 << 30), Table("queen.partition_consumers", 10, 9_000, 1 << 20)],
    [Session(7, "psql", "idle in transaction", 3.0, 0.0)], [10.0], 1 << 20,
    SchemaFacts([], [], [Lag("q", "g", 5, 30.0)], 8.0, 0),
)  # fmt: skip
SPOOL = SpoolFacts("/spool", False, 0, 0, 1 << 30, 0.0, 0, 50 << 30)


def found(facts: DatabaseFacts, wanted: int = 40) -> list[tuple[str, Grade, str]]:
    """What is not well."""
    return [
        (each.topic, each.grade, f"{each.text} {each.advice}")
        for each in judge(facts, wanted)
        if each.grade is not Grade.OK
    ]


def test_a_sound_database_gives_nothing_to_do() -> None:
    findings = list(judge(SOUND, 40))
    assert worst(findings) is Grade.OK
    assert {each.topic for each in findings} >= {
        "version", "role", "schema", "durability", "connections", "clock", "transactions", "locks", "bloat", "lag",
    }  # fmt: skip
    assert not [each for each in findings if each.advice]


@pytest.mark.parametrize(
    ("change", "topic", "grade", "word"),
    [
        ({"version": "13.9", "version_number": 130009}, "version", Grade.PROBLEM, "too old"),
        ({"version": "14.2", "version_number": 140002}, "version", Grade.WARNING, "upgrade"),
        ({"standby": True}, "role", Grade.PROBLEM, "target_session_attrs"),
        ({"schema": None}, "schema", Grade.PROBLEM, "queen init"),
        ({"schema": SchemaFacts(["0009_x.sql"], [])}, "schema", Grade.PROBLEM, "0009_x.sql"),
        ({"schema": SchemaFacts([], ["0099_y.sql"])}, "schema", Grade.PROBLEM, "newer than this version"),
        ({"settings": {"fsync": "off"}}, "settings", Grade.PROBLEM, "ALTER SYSTEM SET fsync = on"),
        ({"settings": {"synchronous_commit": "off"}}, "settings", Grade.PROBLEM, "can be lost"),
        ({"standbys": 1}, "durability", Grade.WARNING, "1 standby is connected, and it is not synchronous"),
        ({"standbys": 2}, "durability", Grade.WARNING, "on one disk, and a failover loses the last ones"),
        ({"standbys": 2, "settings": {"synchronous_commit": "local", "synchronous_standby_names": "*"}}, "durability",
         Grade.WARNING, "on one disk"),
        ({"settings": {"synchronous_commit": "remote_write", "synchronous_standby_names": "*"}}, "durability",
         Grade.WARNING, "memory of a standby"),
        ({"settings": {"autovacuum": "off"}}, "settings", Grade.PROBLEM, "autovacuum = on"),
        ({"settings": {"shared_buffers_kb": "16384"}}, "settings", Grade.WARNING, "16 MB"),
        ({"connections_max": 40}, "connections", Grade.PROBLEM, "SIDECAR_POOL_SIZE"),
        ({"connections": 95}, "connections", Grade.WARNING, "pg_stat_activity"),
        ({"clock_ahead_s": -3.0}, "clock", Grade.WARNING, "-3.000 s"),
        ({"sessions": [Session(9, "etl", "active", 901.0, 0.0)]}, "transactions", Grade.WARNING, "backend(9)"),
        ({"sessions": [Session(9, "", "active", 9.0, 8.0, [4, 5])]}, "locks", Grade.WARNING, "backend(4)"),
        ({"prepared": [5.0, 4000.0]}, "transactions", Grade.WARNING, "1 prepared"),
        ({"retained_bytes": 20 << 30}, "replication", Grade.WARNING, "20 GiB"),
        ({"transaction_age": 1_500_000_000}, "vacuum", Grade.PROBLEM, "1,500,000,000"),
        ({"tables": [Table("queen.x", 10, 20_000, 1 << 30)]}, "bloat", Grade.WARNING, "VACUUM (ANALYZE) queen.x"),
        ({"schema": SchemaFacts([], [], [Lag("q", "g", 5, 700.0)], 1.0)}, "lag", Grade.WARNING, "has a lag of 5"),
        ({"schema": SchemaFacts([], [], [], 900.0)}, "statistics", Grade.WARNING, "900 s old"),
        ({"schema": SchemaFacts([], [], [], 1.0, 1234)}, "dead letters", Grade.WARNING, "1,234"),
        ({"schema": SchemaFacts([], [], [], 1.0, timers=TimersState(3, 700.0))}, "timers", Grade.WARNING, "3 timers"),
        ({"schema": SchemaFacts([], [], [], 1.0, outbox=OutboxState(3, 700.0))}, "outbox", Grade.WARNING, "3 messages"),
        ({"schema": SchemaFacts([], [], [], 1.0, outbox=OutboxState(3, 9.0, 2, 8.0), held_codes=["too_slow"])},
         "outbox", Grade.WARNING, "2 partitions are held back (too_slow)"),
    ],
)  # fmt: skip
def test_problems_are_reported_with_advice(change: dict[str, Any], topic: str, grade: Grade, word: str) -> None:
    [(its_topic, its_grade, text)] = found(structs.replace(SOUND, **change))
    assert (its_topic, its_grade) == (topic, grade)
    assert word in text


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("configuration file", "ALTER SYSTEM SET synchronous_commit = on"),
        ("user", 'ALTER ROLE "queen_server" RESET synchronous_commit'),
        ("database", 'ALTER DATABASE "a""b" RESET synchronous_commit'),
        ("database user", 'ALTER ROLE "queen_server" IN DATABASE "a""b" RESET synchronous_commit'),
        ("client", "options of the DSN"),
    ],
)
def test_a_setting_is_mended_where_it_comes_from(source: str, word: str) -> None:
    off = {
        "settings": {**SOUND.settings, "synchronous_commit": "off"}, "sources": {"synchronous_commit": source},
        "role": "queen_server", "database": 'a"b',
    }  # fmt: skip
    [(topic, _, text)] = found(structs.replace(SOUND, **off))
    assert topic == "settings"
    assert word in text
    assert ("ALTER SYSTEM" in text) == (source == "configuration file")


def test_a_lost_standby_is_named_and_the_advice_is_not_to_end_what_waits_for_it() -> None:
    sessions = [
        Session(1, "queen", "active", 400.0, 400.0, commits=True),
        Session(2, "queen", "active", 399.0, 390.0, [1]),
        Session(3, "queen", "active", 9.0, 8.0, [2]),
    ]
    [(topic, grade, text)] = found(structs.replace(SOUND, sessions=sessions))
    assert (topic, grade) == ("replication", Grade.PROBLEM)
    assert "1 sessions wait for a synchronous standby (SyncRep), the longest for 400 s" in text
    assert "synchronous_standby_names" in text
    assert "pg_terminate_backend" not in text


@pytest.mark.parametrize(
    ("step", "repairing", "word"),
    [
        (ClockStep("then", 3600.0, True, 3600.0), False, "doctor --accept-clock"),
        (ClockStep("then", -3600.0, True, 0.0), False, "stepped by -3600.000 s at then"),
        (ClockStep("then", 60.0, False, 60.0), True, "being repaired"),
    ],
)
def test_a_clock_that_has_stepped_is_told(step: ClockStep, repairing: bool, word: str) -> None:
    assert SOUND.schema is not None
    schema = structs.replace(SOUND.schema, steps=[step], repairing=repairing)
    [(topic, grade, text)] = found(structs.replace(SOUND, schema=schema))
    assert (topic, grade) == ("clock", Grade.WARNING)
    assert word in text


def test_a_time_without_clock_checks_is_not_a_problem() -> None:
    assert SOUND.schema is not None
    schema = structs.replace(SOUND.schema, steps=[ClockStep("then", 60.0, False, 60.0)])
    facts = structs.replace(SOUND, schema=schema)
    assert found(facts) == []
    assert any("PostgreSQL's clock was not checked for 60 s" in each.text for each in judge(facts, 40))


def test_a_role_that_cannot_see_sessions_is_reported() -> None:
    findings = list(judge(structs.replace(SOUND, sees_others=False, role="queen_server"), 40))
    assert not {each.topic for each in findings} & {"transactions", "locks"}
    [finding] = [each for each in findings if each.topic == "sessions"]
    assert finding.grade is Grade.WARNING
    assert 'GRANT pg_read_all_stats TO "queen_server"' in finding.advice


@pytest.mark.parametrize(
    ("change", "up", "grade", "word"),
    [
        ({}, True, Grade.OK, f"No messages wait in {SPOOL.folder}"),
        ({"messages": 5, "oldest_age_s": 30.0}, True, Grade.OK, "5 messages wait"),
        ({"messages": 5, "oldest_age_s": 3000.0}, False, Grade.OK, "5 messages wait"),
        ({"messages": 5, "oldest_age_s": 3000.0}, True, Grade.WARNING, "Start a server"),
        ({"failed": 2}, True, Grade.WARNING, "queen spool list"),
        ({"held_partitions": 2, "held_codes": ["too_slow"]}, True, Grade.WARNING, "too_slow"),
        ({"bytes": 900 << 20}, False, Grade.PROBLEM, "87 % full"),
        ({"disk_free_bytes": 1 << 20}, True, Grade.PROBLEM, "1 MiB free"),
    ],
)
def test_a_spool_is_judged(change: dict[str, Any], up: bool, grade: Grade, word: str) -> None:
    findings = list(judge_spool(structs.replace(SPOOL, **change), database_up=up))
    assert worst(findings) is grade
    assert word in " ".join(f"{each.text} {each.advice}" for each in findings)


def test_nothing_found_is_fine() -> None:
    assert worst([]) is Grade.OK
