"""What is wrong with an installation, and what to do: decisions over facts that others have gathered."""

from collections.abc import Iterator, Sequence
from enum import Enum

from msgspec import Struct


class Grade(Enum):
    """How bad it is, in rising order: nothing to do, something to look at, something to do now."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        topic: what it is about.
        grade: how bad it is.
        text: what was found.
        advice: what to do; empty when there is nothing to do.
    """

    topic: str
    grade: Grade
    text: str
    advice: str = ""


class Table(Struct, frozen=True):
    """A table: rows that live and are dead, and bytes with its indexes."""

    name: str
    live: int
    dead: int
    bytes: int


class Session(Struct, frozen=True):
    """A session of PostgreSQL with an open transaction.

    Attributes:
        blocked_by: those that it waits for.
        commits: whether it waits for a standby to have what it has committed.
    """

    pid: int
    application: str
    state: str
    transaction_s: float
    waiting_s: float
    blocked_by: Sequence[int] = ()
    commits: bool = False


class Lag(Struct, frozen=True):
    """A consumer group that is behind."""

    queue: str
    group: str
    messages: int
    seconds: float


class ClockStep(Struct, frozen=True):
    """A step of PostgreSQL's clock that nobody has accepted.

    Attributes:
        at: when it was, by the clock itself, as text.
        seconds: by how much, negative: back.
        measured: whether it was seen; else nobody looked for so long.
        distrusted: by how much what was stored before is taken to be younger than the clock says.
    """

    at: str
    seconds: float
    measured: bool
    distrusted: float


class SchemaFacts(Struct, frozen=True):
    """What the tables of Queen say.

    Attributes:
        missing, unknown: migrations that this version has and the database lacks, and the other way round.
        lags: the groups that are furthest behind.
        statistics_age_s: age of these figures; ``None``: there are none.
        dead_letters: how many there are.
        steps: those of PostgreSQL's clock that matter still, newest first.
        repairing: whether times that it has left in the future are being repaired.
    """

    missing: Sequence[str]
    unknown: Sequence[str]
    lags: Sequence[Lag] = ()
    statistics_age_s: float | None = None
    dead_letters: int = 0
    steps: Sequence[ClockStep] = ()
    repairing: bool = False


class DatabaseFacts(Struct, frozen=True):
    """What PostgreSQL says.

    Attributes:
        version: as text; ``version_number`` is ``server_version_num``.
        settings: by name, as ``SHOW`` prints them.
        sources: where each of them comes from, as ``pg_settings`` says.
        database, role: what is examined, and as whom.
        sees_others: whether the role may see what sessions of other roles do.
        connections: that are open, of ``connections_max``.
        standby: whether it only follows another one.
        clock_ahead_s: by how much its clock is ahead of this machine's.
        transaction_age: oldest transaction id that is not frozen, counted back from now.
        prepared: prepared transactions, by age in seconds.
        retained_bytes: log that replication slots without a receiver hold back.
        schema: ``None`` when Queen's schema is not there.
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


class SpoolFacts(Struct, frozen=True):
    """The spool in a folder."""

    folder: str
    spooling: bool
    messages: int
    bytes: int
    bytes_max: int
    oldest_age_s: float
    failed: int
    disk_free_bytes: int
    failed_age_s: float = 0.0
    held_partitions: int = 0
    held_age_s: float = 0.0
    held_codes: Sequence[str] = ()


#: Older ones are refused at the start anyway; those that PostgreSQL no longer mends are not.
_OLDEST, _SUPPORTED = 140000, 150000
_CLOCK_S, _LONG_S, _BLOCKED_S, _LAG_S = 1.0, 300.0, 5.0, 600.0
_DEAD_ROWS, _TRANSACTION_AGE, _RETAINED_BYTES = 10_000, 1_000_000_000, 10 << 30
_DISK_BYTES = 1 << 30
#: Steps of a clock that are told, the newest.
_STEPS = 3
_SHARED_BUFFERS_KB = 128 << 10


def _ok(topic: str, text: str) -> Finding:
    return Finding(topic, Grade.OK, text)


def _warning(topic: str, text: str, advice: str) -> Finding:
    return Finding(topic, Grade.WARNING, text, advice)


def _problem(topic: str, text: str, advice: str) -> Finding:
    return Finding(topic, Grade.PROBLEM, text, advice)


def judge(facts: DatabaseFacts, connections_wanted: int) -> Iterator[Finding]:
    """What is to be said of a database.

    Args:
        facts: what was gathered.
        connections_wanted: those that the servers of this configuration open at most.
    """
    yield _version(facts)
    yield _role(facts)
    yield from _schema(facts)
    yield from _durability(facts)
    yield from _resources(facts, connections_wanted)
    yield _clock(facts)
    if facts.schema is not None:
        yield from _steps(facts.schema)
    yield from _sessions(facts)
    yield from _held_back(facts)
    yield from _bloat(facts.tables)
    if facts.schema is not None:
        yield from _log(facts.schema)


def _version(facts: DatabaseFacts) -> Finding:
    if facts.version_number < _OLDEST:
        return _problem("version", f"PostgreSQL {facts.version} is too old", "Upgrade it to 15 or newer.")
    if facts.version_number < _SUPPORTED:
        return _warning(
            "version", f"PostgreSQL {facts.version} gets no corrections any more", "Plan its upgrade to 15 or newer."
        )
    return _ok("version", f"PostgreSQL {facts.version}")


def _role(facts: DatabaseFacts) -> Finding:
    if facts.standby:
        return _problem(
            "role",
            "This is a standby: nothing can be written",
            "Name the primary, or all hosts with target_session_attrs=read-write, in DATABASE_URL.",
        )
    return _ok("role", "It is the primary")


def _schema(facts: DatabaseFacts) -> Iterator[Finding]:
    schema = facts.schema
    if schema is None:
        yield _problem("schema", "There is no schema `queen`", "Run `queen init`, or start a server.")
    elif schema.unknown:
        yield _problem(
            "schema",
            f"It is newer than this version: {', '.join(schema.unknown)}",
            "Use the version of Queen that made it, or a newer one.",
        )
    elif schema.missing:
        yield _problem("schema", f"It lacks {', '.join(schema.missing)}", "Run `queen init`, or start a server.")
    else:
        yield _ok("schema", "All migrations are applied")


def _switch_on(facts: DatabaseFacts, name: str) -> str:
    """How to switch a setting on: each place where it can be off hides those before it."""
    role, database = _quoted(facts.role), _quoted(facts.database)
    match source := facts.sources.get(name, ""):
        case "user":
            return f"It is a setting of the role: ALTER ROLE {role} RESET {name}; then restart the servers."
        case "database":
            return f"It is a setting of the database: ALTER DATABASE {database} RESET {name}; then restart the servers."
        case "database user":
            return (
                f"It is a setting of the role in this database: ALTER ROLE {role} IN DATABASE {database} RESET {name}; "
                "then restart the servers."
            )
        case "client" | "environment variable" | "command line":
            return f"Its source is the {source}: take it out there (options of the DSN, PGOPTIONS, -c of postgres)."
        case _:
            return f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _durability(facts: DatabaseFacts) -> Iterator[Finding]:
    settings = facts.settings
    lossy = [name for name in ("fsync", "full_page_writes") if settings.get(name) == "off"]
    for name in lossy:
        yield _problem(
            "settings",
            f"{name} is off: a crash of the machine can destroy the database",
            _switch_on(facts, name),
        )
    if settings.get("synchronous_commit") == "off":
        yield _problem(
            "settings",
            "synchronous_commit is off: an answered push can be lost in a crash",
            _switch_on(facts, "synchronous_commit"),
        )
    if settings.get("autovacuum") == "off":
        yield _problem(
            "settings",
            "autovacuum is off: tables grow, and pops become slow",
            _switch_on(facts, "autovacuum"),
        )
    if not lossy and settings.get("synchronous_commit") != "off":
        yield _ok("durability", "What is committed survives a crash")


def _resources(facts: DatabaseFacts, wanted: int) -> Iterator[Finding]:
    use = f"{facts.connections} of {facts.connections_max} connections are open, and this configuration opens {wanted}"
    if wanted >= facts.connections_max:
        yield _problem(
            "connections", use, "Raise max_connections, or lower SIDECAR_POOL_SIZE, DB_POOL_SIZE or NUM_WORKERS."
        )
    elif facts.connections > facts.connections_max * 0.9:
        yield _warning("connections", use, "Find out who holds them (pg_stat_activity), or raise max_connections.")
    else:
        yield _ok("connections", use)
    buffers_kb = int(facts.settings.get("shared_buffers_kb", "0"))
    if 0 < buffers_kb < _SHARED_BUFFERS_KB:
        yield _warning(
            "settings",
            f"shared_buffers is {buffers_kb // 1024} MB",
            "Give it an eighth to a quarter of the machine's memory: the recent part of the log should fit.",
        )


def _clock(facts: DatabaseFacts) -> Finding:
    text = f"PostgreSQL's clock is {facts.clock_ahead_s:+.3f} s from this machine's"
    if abs(facts.clock_ahead_s) > _CLOCK_S:
        return _warning("clock", text, "Run NTP (chrony) on both: lags, ages and tokens are judged by these clocks.")
    return _ok("clock", text)


def _steps(schema: SchemaFacts) -> Iterator[Finding]:
    if schema.repairing:
        yield _warning(
            "clock",
            "It has stepped back, and leases and times that it has left in the future are being repaired",
            "The server that leads the services does that within seconds. If this stays: does a server run?",
        )
    for step in schema.steps[:_STEPS]:
        if not step.measured:
            yield _ok(
                "clock",
                f"Nobody looked at PostgreSQL's clock for {step.seconds:.0f} s before {step.at}; what is older is "
                "kept for so much longer",
            )
        elif step.distrusted > 0:
            yield _warning(
                "clock",
                f"PostgreSQL's clock stepped by {step.seconds:+.3f} s at {step.at}: what was stored before is kept for "
                f"{step.distrusted:.0f} s longer than it says",
                "Is it right now? Then `queen doctor --accept-clock`. Else set it back, and run NTP (chrony) there.",
            )
        else:
            yield _warning(
                "clock",
                f"PostgreSQL's clock stepped by {step.seconds:+.3f} s at {step.at}, and what followed was repaired",
                "Run NTP (chrony) there, slewing instead of stepping; `queen doctor --accept-clock` ends this line.",
            )


def _sessions(facts: DatabaseFacts) -> Iterator[Finding]:
    yield from _commits(facts.sessions)
    excused = _behind_commits(facts.sessions)
    sessions = [each for each in facts.sessions if each.pid not in excused]
    long = [each for each in sessions if each.transaction_s > _LONG_S]
    for each in long:
        yield _warning(
            "transactions",
            f"Session {each.pid} ({each.application or 'no name'}, {each.state}) has a transaction that is open for "
            f"{each.transaction_s:.0f} s",
            f"It keeps vacuum from its work. End it: SELECT pg_terminate_backend({each.pid}); and set "
            "idle_in_transaction_session_timeout.",
        )
    blocked = [each for each in sessions if each.blocked_by and each.waiting_s > _BLOCKED_S]
    for each in blocked:
        others = ", ".join(map(str, each.blocked_by))
        yield _warning(
            "locks",
            f"Session {each.pid} ({each.application or 'no name'}) waits for {each.waiting_s:.0f} s for {others}",
            f"See what those do (pg_stat_activity), or end them: SELECT pg_terminate_backend({each.blocked_by[0]});",
        )
    if not facts.sees_others:
        yield _warning(
            "sessions",
            f"Role {facts.role} may not see what sessions of other roles do: nothing is said of their transactions and "
            "locks",
            f"GRANT pg_read_all_stats TO {_quoted(facts.role)}; or examine as a role that has it.",
        )
        return
    if not long:
        yield _ok("transactions", f"None is open for more than {_LONG_S:.0f} s")
    if not blocked and not excused:
        yield _ok("locks", f"Nobody waits for more than {_BLOCKED_S:.0f} s")


def _commits(sessions: Sequence[Session]) -> Iterator[Finding]:
    waiting = [each for each in sessions if each.commits and each.waiting_s > _BLOCKED_S]
    if waiting:
        yield _problem(
            "replication",
            f"{len(waiting)} sessions wait for a synchronous standby (SyncRep), the longest for "
            f"{max(each.waiting_s for each in waiting):.0f} s: nothing is committed, and pushes go to the spool",
            "Bring a standby of synchronous_standby_names back, or go on with one copy: ALTER SYSTEM SET "
            "synchronous_standby_names = ''; SELECT pg_reload_conf(); (docs/high-availability.md). Do not end these "
            "sessions: what they wrote counts as committed then, on one machine only.",
        )


def _behind_commits(sessions: Sequence[Session]) -> set[int]:
    """Sessions that wait for a standby, and those that wait for them: nobody must be told to end any of these."""
    excused = {each.pid for each in sessions if each.commits}
    while more := {each.pid for each in sessions if each.pid not in excused and excused & set(each.blocked_by)}:
        excused |= more
    return excused


def _held_back(facts: DatabaseFacts) -> Iterator[Finding]:
    old = [age for age in facts.prepared if age > _LONG_S]
    if old:
        yield _warning(
            "transactions",
            f"{len(old)} prepared transactions were left behind, the oldest {max(old):.0f} s ago",
            "SELECT * FROM pg_prepared_xacts; then COMMIT or ROLLBACK PREPARED: they keep vacuum from its work.",
        )
    if facts.retained_bytes > _RETAINED_BYTES:
        yield _warning(
            "replication",
            f"Replication slots without a receiver hold back {_size(facts.retained_bytes)} of log",
            "Bring the receiver back, or drop the slot (pg_drop_replication_slot): the disk fills up.",
        )
    if facts.transaction_age > _TRANSACTION_AGE:
        yield _problem(
            "vacuum",
            f"The oldest transaction id is {facts.transaction_age:,} back; at 2,000,000,000 PostgreSQL stops writing",
            "Find what keeps autovacuum from freezing (long transactions, slots), then VACUUM (FREEZE).",
        )


def _bloat(tables: Sequence[Table]) -> Iterator[Finding]:
    bloated = [each for each in tables if each.dead > max(_DEAD_ROWS, each.live)]
    for each in bloated:
        yield _warning(
            "bloat",
            f"{each.name} has {each.dead:,} dead rows for {each.live:,} that live ({_size(each.bytes)})",
            f"VACUUM (ANALYZE) {each.name}; and lower its autovacuum_vacuum_scale_factor if it comes back.",
        )
    if tables and not bloated:
        yield _ok("bloat", f"No table has more dead rows than rows; all take {_size(sum(t.bytes for t in tables))}")


def _log(schema: SchemaFacts) -> Iterator[Finding]:
    age = schema.statistics_age_s
    if age is not None and age > _LAG_S:
        yield _warning(
            "statistics",
            f"They are {age:.0f} s old",
            "No server refreshes them: is one running? What is said of lag here is as old.",
        )
    behind = [lag for lag in schema.lags if lag.seconds > _LAG_S]
    for lag in behind:
        yield _warning(
            "lag",
            f"Group {lag.group} is {lag.messages:,} messages and {lag.seconds:.0f} s behind on {lag.queue}",
            "Add consumers or mend them; GET /api/v1/consumer-groups/lagging shows the partitions. A group that nobody "
            "uses any more: DELETE /api/v1/consumer-groups/<group>.",
        )
    if not behind:
        yield _ok("lag", f"No group is more than {_LAG_S:.0f} s behind")
    if schema.dead_letters:
        yield _warning(
            "dead letters",
            f"{schema.dead_letters:,} messages were given up",
            "GET /api/v1/dlq shows their errors; replay what can be done now, purge the rest.",
        )


def judge_spool(spool: SpoolFacts, *, database_up: bool) -> Iterator[Finding]:
    """What is to be said of a spool."""
    if spool.failed:
        yield _warning(
            "spool",
            f"{spool.failed} files of {spool.folder} were set aside, the oldest {spool.failed_age_s:.0f} s ago",
            "Their messages are safe, and not stored: `queen spool ls` says why; then retry or discard them.",
        )
    if spool.held_partitions:
        yield _warning(
            "spool",
            f"{spool.held_partitions} partitions of {spool.folder} are held back ({', '.join(spool.held_codes)}), the "
            f"longest for {spool.held_age_s:.0f} s",
            "Pushes to them are answered and wait: `queen spool ls` says which and why. They are tried again by "
            "themselves; look for locks, slow statements or a missing key.",
        )
    if spool.bytes > 0.8 * spool.bytes_max:
        yield _problem(
            "spool",
            f"{spool.folder} is {100 * spool.bytes // spool.bytes_max} % full",
            "When it is full, pushes are refused: bring PostgreSQL back, or raise FILE_BUFFER_MAX_BYTES.",
        )
    if spool.disk_free_bytes < _DISK_BYTES:
        yield _problem(
            "spool",
            f"Its disk has {_size(spool.disk_free_bytes)} left",
            "Make room: while PostgreSQL is away, pushes are stored there.",
        )
    if spool.messages and database_up and spool.oldest_age_s > _LAG_S:
        yield _warning(
            "spool",
            f"{spool.messages:,} messages wait in {spool.folder}, the oldest for {spool.oldest_age_s:.0f} s",
            "Start a server with this folder: it stores them. If one runs, its log says what is in the way.",
        )
    else:
        waits = f"{spool.messages:,} messages wait" if spool.messages else "Nothing waits"
        yield _ok("spool", f"{waits} in {spool.folder}")


def worst(findings: Sequence[Finding]) -> Grade:
    """How bad it is altogether."""
    rising = list(Grade)
    return max((finding.grade for finding in findings), key=rising.index, default=Grade.OK)


def _size(number: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
