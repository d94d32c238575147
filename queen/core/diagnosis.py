"""What is wrong with an installation, and what to do; ``queen.postgres.diagnosis`` gathers the facts."""

from collections.abc import Iterator, Sequence
from enum import Enum
from shlex import quote

from msgspec import UNSET, Struct, UnsetType

from queen.core.statistics import OutboxState, TimersState


class Grade(Enum):
    """Severity, in rising order: nothing to do, to be looked at, to be done now."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(Struct, frozen=True):
    """The result of one check.

    Attributes:
        topic: its subject.
        grade: its severity.
        text: the finding.
        advice: what to do; empty if nothing.
        database: the name of the one of several databases that it is about.
    """

    topic: str
    grade: Grade
    text: str
    advice: str = ""
    database: str | UnsetType = UNSET


class Table(Struct, frozen=True):
    """A table: live and dead rows, and bytes with its indexes."""

    name: str
    live: int
    dead: int
    bytes: int


class Session(Struct, frozen=True):
    """A session of PostgreSQL with an open transaction.

    Attributes:
        blocked_by: sessions whose locks it waits for.
        commits: whether it waits for a standby to confirm its commit.
    """

    pid: int
    application: str
    state: str
    transaction_s: float
    waiting_s: float
    blocked_by: Sequence[int] = ()
    commits: bool = False


class Lag(Struct, frozen=True):
    """A consumer group with a backlog."""

    queue: str
    group: str
    messages: int
    seconds: float


class ClockStep(Struct, frozen=True):
    """A step of PostgreSQL's clock that was not accepted.

    Attributes:
        at: when it happened, by the clock itself, as text.
        seconds: its size, negative for a step back.
        measured: whether it was measured; else the clock was not checked for so long.
        distrusted: seconds by which data stored before counts as younger than the clock says.
    """

    at: str
    seconds: float
    measured: bool
    distrusted: float


class SchemaFacts(Struct, frozen=True):
    """Facts from the tables of Queen.

    Attributes:
        missing, unknown: migrations that the database lacks, and that this version lacks.
        lags: the groups with the highest lag.
        statistics_age_s: age of the statistics; ``None``: there are none.
        dead_letters: their number.
        steps: recent or still distrusted steps of PostgreSQL's clock, newest first.
        repairing: whether times that are now in the future are being repaired.
        timers: those that are due.
        outbox: what waits in the outbox; ``held_codes`` says why some of it is held back.
    """

    missing: Sequence[str]
    unknown: Sequence[str]
    lags: Sequence[Lag] = ()
    statistics_age_s: float | None = None
    dead_letters: int = 0
    steps: Sequence[ClockStep] = ()
    repairing: bool = False
    outbox: OutboxState = OutboxState()
    held_codes: Sequence[str] = ()
    timers: TimersState = TimersState()


class DurabilityFacts(Struct, frozen=True):
    """Facts that decide what becomes of an answered push; those of ``DatabaseFacts`` with the same names."""

    settings: dict[str, str]
    sources: dict[str, str]
    database: str
    role: str
    standbys: int


class DatabaseFacts(Struct, frozen=True):
    """Facts about PostgreSQL.

    Attributes:
        version: as text; ``version_number`` is ``server_version_num``.
        settings: by name, as ``SHOW`` prints them.
        sources: where each setting comes from, as in ``pg_settings``.
        database, role: of the examined connection.
        sees_others: whether the role may see sessions of other roles.
        standbys: those that stream from it.
        connections: open connections, of ``connections_max``.
        standby: whether it is a standby.
        clock_ahead_s: seconds by which its clock is ahead of this machine's.
        transaction_age: age of the oldest transaction id that is not frozen, in transactions.
        prepared: prepared transactions, by age in seconds.
        retained_bytes: WAL that replication slots without a receiver retain.
        schema: ``None`` if Queen's schema does not exist.
    """

    version: str
    version_number: int
    settings: dict[str, str]
    connections: int
    connections_max: int
    standby: bool
    clock_ahead_s: float
    transaction_age: int
    tables: Sequence[Table] = ()
    sessions: Sequence[Session] = ()
    prepared: Sequence[float] = ()
    retained_bytes: int = 0
    schema: SchemaFacts | None = None
    sources: dict[str, str] = {}
    database: str = ""
    role: str = ""
    sees_others: bool = True
    standbys: int = 0


class SpoolFacts(Struct, frozen=True):
    """The spool in a folder."""

    folder: str
    spooling: bool
    messages: int
    bytes: int
    bytes_max: int
    oldest_age_s: float
    failed: int
    disk_free_bytes: int | None
    failed_age_s: float = 0.0
    held_partitions: int = 0
    held_age_s: float = 0.0
    held_codes: Sequence[str] = ()


#: Older versions are refused at the start; versions that are only no longer supported are not.
_OLDEST, _SUPPORTED = 140000, 150000
_CLOCK_S, _LONG_S, _BLOCKED_S, _LAG_S = 1.0, 300.0, 5.0, 600.0
_DEAD_ROWS, _TRANSACTION_AGE, _RETAINED_BYTES = 10_000, 1_000_000_000, 10 << 30
_DISK_BYTES = 1 << 30
#: Maximum of reported steps of the clock; the newest ones.
_STEPS = 3
_SHARED_BUFFERS_KB = 128 << 10


def _ok(topic: str, text: str) -> Finding:
    return Finding(topic, Grade.OK, text)


def _warning(topic: str, text: str, advice: str) -> Finding:
    return Finding(topic, Grade.WARNING, text, advice)


def _problem(topic: str, text: str, advice: str) -> Finding:
    return Finding(topic, Grade.PROBLEM, text, advice)


def judge(facts: DatabaseFacts, connections_wanted: int) -> Iterator[Finding]:
    """The findings about a database.

    Args:
        facts: about the database.
        connections_wanted: maximum of connections that the servers of this configuration open.
    """
    yield _version(facts)
    yield _role(facts)
    yield from _schema(facts)
    yield from judge_durability(facts)
    if facts.settings.get("autovacuum") == "off":
        yield _problem(
            "settings", "autovacuum is off: tables grow, and pops become slow", _switch_on(facts, "autovacuum")
        )
    yield from _resources(facts, connections_wanted)
    yield _clock(facts)
    if facts.schema is not None:
        yield from _steps(facts.schema)
    yield from _sessions(facts)
    yield from _held_back(facts)
    yield from _bloat(facts.tables)
    if facts.schema is not None:
        yield from judge_log(facts.schema.statistics_age_s, facts.schema.lags, facts.schema.dead_letters)
        yield _outbox(facts.schema)
        yield _timers(facts.schema)


def _version(facts: DatabaseFacts) -> Finding:
    if facts.version_number < _OLDEST:
        return _problem("version", f"PostgreSQL {facts.version} is too old", "Upgrade it to 15 or newer.")
    if facts.version_number < _SUPPORTED:
        return _warning(
            "version",
            f"PostgreSQL {facts.version} is no longer supported by the PostgreSQL project",
            "Plan its upgrade to 15 or newer.",
        )
    return _ok("version", f"PostgreSQL {facts.version}")


def _role(facts: DatabaseFacts) -> Finding:
    if facts.standby:
        return _problem(
            "role",
            "This is a standby: it is read-only",
            "Name the primary, or all hosts with target_session_attrs=read-write, in DATABASE_URL.",
        )
    return _ok("role", "The server is the primary")


def _schema(facts: DatabaseFacts) -> Iterator[Finding]:
    schema = facts.schema
    if schema is None:
        yield _problem("schema", "The schema `queen` does not exist", "Run `queen init`, or start a server.")
    elif schema.unknown:
        yield _problem(
            "schema",
            f"The schema is newer than this version of Queen: {', '.join(schema.unknown)}",
            "Use the version of Queen that created it, or a newer one.",
        )
    elif schema.missing:
        yield _problem(
            "schema", f"Migrations are missing: {', '.join(schema.missing)}", "Run `queen init`, or start a server."
        )
    else:
        yield _ok("schema", "All migrations are applied")


def _switch_on(facts: DatabaseFacts | DurabilityFacts, name: str) -> str:
    """How to switch a setting on: each place where it can be set overrides the previous ones."""
    role, database = _quoted(facts.role), _quoted(facts.database)
    match source := facts.sources.get(name, ""):
        case "user":
            return f"The role sets it: ALTER ROLE {role} RESET {name}; then restart the servers."
        case "database":
            return f"The database sets it: ALTER DATABASE {database} RESET {name}; then restart the servers."
        case "database user":
            return (
                f"The role sets it in this database: ALTER ROLE {role} IN DATABASE {database} RESET {name}; "
                "then restart the servers."
            )
        case "client" | "environment variable" | "command line":
            return f"The {source} sets it: remove it there (options of the DSN, PGOPTIONS, -c of postgres)."
        case _:
            return f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def judge_durability(facts: DatabaseFacts | DurabilityFacts) -> Iterator[Finding]:
    """Findings about answered pushes: what a crash, or the loss of the primary with its disk, would cost."""
    found = [*_crash(facts), *_copies(facts)]
    yield from found
    if not found:
        standby = ", and the loss of the primary with its disk: a standby has it, too"
        yield _ok("durability", f"Committed data survives a crash{standby if facts.standbys else ''}")


def _crash(facts: DatabaseFacts | DurabilityFacts) -> Iterator[Finding]:
    for name in ("fsync", "full_page_writes"):
        if facts.settings.get(name) == "off":
            text = f"{name} is off: a crash of the machine can destroy the database"
            yield _problem("settings", text, _switch_on(facts, name))
    if facts.settings.get("synchronous_commit") == "off":
        text = "synchronous_commit is off: an answered push can be lost in a crash"
        yield _problem("settings", text, _switch_on(facts, "synchronous_commit"))


def _copies(facts: DatabaseFacts | DurabilityFacts) -> Iterator[Finding]:
    """Answered pushes that are on one disk although there are standbys; a single node has said what it is."""
    commit, waits = facts.settings.get("synchronous_commit"), facts.settings.get("synchronous_standby_names")
    if not waits and facts.standbys:
        plural = "s are connected, and none of them is" if facts.standbys > 1 else " is connected, and it is not"
        yield _warning(
            "durability",
            f"{facts.standbys} standby{plural} synchronous: an answered push is on one disk, and a failover loses the "
            "last ones",
            "Name the standbys in synchronous_standby_names, or set synchronous_mode and synchronous_mode_strict of "
            "Patroni (docs/high-availability.md).",
        )
    elif waits and commit in ("local", "remote_write"):
        where = "on one disk" if commit == "local" else "on one disk, and in the memory of a standby"
        yield _warning(
            "durability",
            f"synchronous_commit is {commit}: an answered push is {where}, and a failover can lose the last ones",
            _switch_on(facts, "synchronous_commit"),
        )


def _resources(facts: DatabaseFacts, wanted: int) -> Iterator[Finding]:
    use = (
        f"{facts.connections} of {facts.connections_max} connections are open, and this configuration can open {wanted}"
    )
    if wanted >= facts.connections_max:
        yield _problem(
            "connections", use, "Raise max_connections, or lower SIDECAR_POOL_SIZE, DB_POOL_SIZE or NUM_WORKERS."
        )
    elif facts.connections > facts.connections_max * 0.9:
        yield _warning(
            "connections", use, "Find out which sessions hold them (pg_stat_activity), or raise max_connections."
        )
    else:
        yield _ok("connections", use)
    buffers_kb = int(facts.settings.get("shared_buffers_kb", "0"))
    if 0 < buffers_kb < _SHARED_BUFFERS_KB:
        yield _warning(
            "settings",
            f"shared_buffers is {buffers_kb // 1024} MB",
            "Set it to an eighth to a quarter of the machine's memory: the recent part of the log should fit.",
        )


def _clock(facts: DatabaseFacts) -> Finding:
    text = f"PostgreSQL's clock differs from this machine's by {facts.clock_ahead_s:+.3f} s"
    if abs(facts.clock_ahead_s) > _CLOCK_S:
        return _warning("clock", text, "Run NTP (chrony) on both: lags, ages and tokens depend on these clocks.")
    return _ok("clock", text)


def _steps(schema: SchemaFacts) -> Iterator[Finding]:
    if schema.repairing:
        yield _warning(
            "clock",
            "PostgreSQL's clock stepped back; leases and times that are now in the future are being repaired",
            "The server that runs the background jobs repairs them within seconds. If this warning stays: "
            "is a server running?",
        )
    for step in schema.steps[:_STEPS]:
        if not step.measured:
            yield _ok(
                "clock",
                f"PostgreSQL's clock was not checked for {step.seconds:.0f} s before {step.at}: older data "
                "is kept that much longer",
            )
        elif step.distrusted > 0:
            yield _warning(
                "clock",
                f"PostgreSQL's clock stepped by {step.seconds:+.3f} s at {step.at}: data stored before is "
                f"kept {step.distrusted:.0f} s longer than configured",
                "Is the clock right now? Then run `queen doctor --accept-clock`. Otherwise set it back, and "
                "run NTP (chrony) there.",
            )
        else:
            yield _warning(
                "clock",
                f"PostgreSQL's clock stepped by {step.seconds:+.3f} s at {step.at}; the affected times were repaired",
                "Run NTP (chrony) there, slewing instead of stepping; `queen doctor --accept-clock` clears "
                "this warning.",
            )


def _sessions(facts: DatabaseFacts) -> Iterator[Finding]:
    yield from _commits(facts.sessions)
    excused = _behind_commits(facts.sessions)
    sessions = [each for each in facts.sessions if each.pid not in excused]
    long = [_long(each) for each in sessions if each.transaction_s > _LONG_S]
    blocked = [_blocked(each) for each in sessions if each.blocked_by and each.waiting_s > _BLOCKED_S]
    yield from (*long, *blocked)
    if not facts.sees_others:
        yield _warning(
            "sessions",
            f"Role {facts.role} cannot see sessions of other roles: their transactions and locks were not checked",
            f"GRANT pg_read_all_stats TO {_quoted(facts.role)}; or run `queen doctor` as a role that has it.",
        )
        return
    if not long:
        yield _ok("transactions", f"No transaction has been open for more than {_LONG_S:.0f} s")
    if not blocked and not excused:
        yield _ok("locks", f"No session has waited for a lock for more than {_BLOCKED_S:.0f} s")


def _long(session: Session) -> Finding:
    return _warning(
        "transactions",
        f"Session {session.pid} ({session.application or 'no name'}, {session.state}) has had a transaction open "
        f"for {session.transaction_s:.0f} s",
        f"It blocks vacuum. End it: SELECT pg_terminate_backend({session.pid}); and set "
        "idle_in_transaction_session_timeout.",
    )


def _blocked(session: Session) -> Finding:
    return _warning(
        "locks",
        f"Session {session.pid} ({session.application or 'no name'}) has waited {session.waiting_s:.0f} s for "
        f"locks of {', '.join(map(str, session.blocked_by))}",
        f"Check these sessions (pg_stat_activity), or end them: SELECT pg_terminate_backend({session.blocked_by[0]});",
    )


def _commits(sessions: Sequence[Session]) -> Iterator[Finding]:
    waiting = [each for each in sessions if each.commits and each.waiting_s > _BLOCKED_S]
    if waiting:
        yield _problem(
            "replication",
            f"{len(waiting)} sessions wait for a synchronous standby (SyncRep), the longest for "
            f"{max(each.waiting_s for each in waiting):.0f} s: commits block, and pushes go to the spool",
            "Bring a standby of synchronous_standby_names back, or continue with one copy: ALTER SYSTEM SET "
            "synchronous_standby_names = ''; SELECT pg_reload_conf(); (docs/high-availability.md). Do not "
            "end these sessions: PostgreSQL would then report their transactions as committed, although "
            "they exist on one machine only.",
        )


def _behind_commits(sessions: Sequence[Session]) -> set[int]:
    """Sessions that wait for a standby, and those that wait for them: no advice may be to end one of these."""
    excused = {each.pid for each in sessions if each.commits}
    while more := {each.pid for each in sessions if each.pid not in excused and excused & set(each.blocked_by)}:
        excused |= more
    return excused


def _held_back(facts: DatabaseFacts) -> Iterator[Finding]:
    old = [age for age in facts.prepared if age > _LONG_S]
    if old:
        yield _warning(
            "transactions",
            f"{len(old)} prepared transactions were left open, the oldest {max(old):.0f} s ago",
            "SELECT * FROM pg_prepared_xacts; then COMMIT or ROLLBACK PREPARED: they block vacuum.",
        )
    if facts.retained_bytes > _RETAINED_BYTES:
        yield _warning(
            "replication",
            f"Inactive replication slots retain {_size(facts.retained_bytes)} of WAL",
            "Reconnect the receiver, or drop the slot (pg_drop_replication_slot): otherwise the disk fills up.",
        )
    if facts.transaction_age > _TRANSACTION_AGE:
        yield _problem(
            "vacuum",
            f"The oldest transaction id is {facts.transaction_age:,} transactions old; at 2,000,000,000 "
            "PostgreSQL stops accepting writes",
            "Find what prevents autovacuum from freezing (long transactions, slots), then VACUUM (FREEZE).",
        )


def _bloat(tables: Sequence[Table]) -> Iterator[Finding]:
    bloated = [each for each in tables if each.dead > max(_DEAD_ROWS, each.live)]
    for each in bloated:
        yield _warning(
            "bloat",
            f"{each.name} has {each.dead:,} dead rows and {each.live:,} live rows ({_size(each.bytes)})",
            f"VACUUM (ANALYZE) {each.name}; and lower its autovacuum_vacuum_scale_factor if it happens again.",
        )
    if tables and not bloated:
        yield _ok(
            "bloat", f"No table has more dead rows than live rows; total size {_size(sum(t.bytes for t in tables))}"
        )


def judge_log(age: float | None, lags: Sequence[Lag], dead_letters: int) -> Iterator[Finding]:
    """The findings about statistics of this age in seconds, lags, and a number of dead letters."""
    if age is not None and age > _LAG_S:
        yield _warning(
            "statistics",
            f"The statistics are {age:.0f} s old",
            "No server refreshes them: is one running? The lag shown here is equally old.",
        )
    behind = [lag for lag in lags if lag.seconds > _LAG_S]
    for lag in behind:
        yield _warning(
            "lag",
            f"Group {lag.group} has a lag of {lag.messages:,} messages and {lag.seconds:.0f} s on queue {lag.queue}",
            f"Add consumers or fix them; `queen groups show {quote(lag.group)}` shows the partitions. If the group is "
            f"no longer used: `queen groups delete {quote(lag.group)} --queue {quote(lag.queue)}`.",
        )
    if not behind:
        yield _ok("lag", f"No group has a lag of more than {_LAG_S:.0f} s")
    if dead_letters:
        yield _warning(
            "dead letters",
            f"There are {dead_letters:,} dead letters",
            "`queen dlq list QUEUE` shows their errors. `queen dlq replay` those that can succeed now, and `queen dlq "
            "purge` the rest.",
        )


def _outbox(schema: SchemaFacts) -> Finding:
    state = schema.outbox
    if state.held_partitions:
        return _warning(
            "outbox",
            f"{state.held_partitions} partitions are held back ({', '.join(schema.held_codes)}), the longest for "
            f"{state.held_s:.0f} s",
            "Messages that were pushed with SQL wait. queen.outbox_held_partitions says which and why. The server "
            "retries by itself; look for locks or a missing key.",
        )
    if state.oldest_s > _LAG_S:
        return _warning(
            "outbox",
            f"{state.messages:,} messages that were pushed with SQL wait, the oldest for {state.oldest_s:.0f} s",
            "Start a server: it moves them into the log. If one is running, its log says what prevents it.",
        )
    return _ok("outbox", f"{state.messages:,} messages wait" if state.messages else "No messages wait")


def _timers(schema: SchemaFacts) -> Finding:
    state = schema.timers
    if state.oldest_s > _LAG_S:
        return _warning(
            "timers",
            f"{state.overdue:,} timers are due and not in the log, the oldest for {state.oldest_s:.0f} s",
            "Start a server: it moves them into the log. If one is running, its log says what prevents it.",
        )
    return _ok("timers", f"{state.overdue:,} are due" if state.overdue else "None is late")


def judge_spool(spool: SpoolFacts, *, database_up: bool) -> Iterator[Finding]:
    """The findings about a spool."""
    if spool.failed:
        yield _warning(
            "spool",
            f"{spool.failed} files of {spool.folder} could not be replayed and were set aside, the oldest "
            f"{spool.failed_age_s:.0f} s ago",
            "Their messages are safe but not in PostgreSQL. `queen spool list` shows why; then retry or discard them.",
        )
    if spool.held_partitions:
        yield _warning(
            "spool",
            f"{spool.held_partitions} partitions of {spool.folder} are held back ({', '.join(spool.held_codes)}), the "
            f"longest for {spool.held_age_s:.0f} s",
            "Pushes to them are accepted and wait in the spool. `queen spool list` shows which and why. The "
            "server retries by itself; look for locks, slow statements or a missing key.",
        )
    if spool.bytes > 0.8 * spool.bytes_max:
        yield _problem(
            "spool",
            f"{spool.folder} is {100 * spool.bytes // spool.bytes_max} % full",
            "When it is full, pushes are refused: bring PostgreSQL back, or raise FILE_BUFFER_MAX_BYTES.",
        )
    if spool.disk_free_bytes is not None and spool.disk_free_bytes < _DISK_BYTES:
        yield _problem(
            "spool",
            f"The disk of the spool has {_size(spool.disk_free_bytes)} free",
            "Free some space: while PostgreSQL is unavailable, pushes are stored there.",
        )
    if spool.messages and database_up and spool.oldest_age_s > _LAG_S:
        yield _warning(
            "spool",
            f"{spool.messages:,} messages wait in {spool.folder}, the oldest for {spool.oldest_age_s:.0f} s",
            "Start a server with this folder: it stores them in PostgreSQL. If one is running, its log says "
            "what prevents it.",
        )
    else:
        waits = f"{spool.messages:,} messages wait" if spool.messages else "No messages wait"
        yield _ok("spool", f"{waits} in {spool.folder}")


def worst(findings: Sequence[Finding]) -> Grade:
    """The severity of all findings together."""
    rising = list(Grade)
    return max((finding.grade for finding in findings), key=rising.index, default=Grade.OK)


def _size(number: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
