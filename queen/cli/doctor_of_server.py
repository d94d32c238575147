"""What ``queen doctor --url`` finds out about a server, over HTTP."""

from collections.abc import Iterator

from msgspec import Struct

from queen.cli.client.connection import RefusedError, Server
from queen.cli.client.groups import on_queues
from queen.core.diagnosis import Finding, Grade, Lag, SpoolFacts, judge_log, judge_spool
from queen.spool.state import SpoolState

_UNAVAILABLE = 503
_CONNECTED = "connected"
_ADVICE_OF_MODE = "Is this still wanted? `queen maintenance stop {}` ends it."


class Modes(Struct):
    """The maintenance modes."""

    maintenance_mode: bool
    pop_maintenance_mode: bool


class Clock(Struct):
    """Steps of PostgreSQL's clock that nobody has accepted, and by how much longer data is kept."""

    steps: int
    distrusted_s: float


class Health(Struct):
    """The health of a server."""

    server: str
    version: str
    database: str
    shared_state: Modes
    spool: SpoolState | None
    clock: Clock
    databases: dict[str, str] = {}


class DeadLetters(Struct, rename="camel"):
    """The dead letters of all queues."""

    total_messages: int


class Worker(Struct):
    """A worker that has reported in the last minutes."""

    hostname: str


class Status(Struct, rename="camel"):
    """The activity of all servers, with the fields that are judged."""

    dead_letter_queue: DeadLetters
    workers: list[Worker]
    stats_age: int


def examine_server(server: Server) -> Iterator[Finding]:
    """The findings about a server; what its token may not see is said."""
    health = server.decoded(Health, server.send("GET", "/health", also=(_UNAVAILABLE,)))
    up = health.database == _CONNECTED
    yield Finding("server", Grade.OK, f"{health.server} {health.version} at {server.url}")
    whole = all(state == _CONNECTED for state in health.databases.values())
    for name, state in health.databases.items():
        if up and state != _CONNECTED:
            yield Finding(
                "database", Grade.PROBLEM, "The server does not reach it: its partitions only take pushes (spool)",
                "Is it running? On the machine of the server, `queen doctor` says more.", name,
            )  # fmt: skip
    if not up:
        yield Finding(
            "database",
            Grade.PROBLEM,
            "The server does not reach PostgreSQL",
            "Is it running? On the machine of the server, `queen doctor` says more.",
        )
    yield from _modes(health.shared_state)
    yield from _clock(health.clock)
    if health.spool is not None:
        yield from judge_spool(_facts(health.spool), database_up=up)
    if up and whole:
        yield from _activity(server)


def _modes(modes: Modes) -> Iterator[Finding]:
    if modes.maintenance_mode:
        text = "Push maintenance is on: pushes go to the spool"
        yield Finding("maintenance", Grade.WARNING, text, _ADVICE_OF_MODE.format("push"))
    if modes.pop_maintenance_mode:
        text = "Pop maintenance is on: pops get no messages"
        yield Finding("maintenance", Grade.WARNING, text, _ADVICE_OF_MODE.format("pop"))


def _clock(clock: Clock) -> Iterator[Finding]:
    if clock.steps:
        yield Finding(
            "clock",
            Grade.WARNING,
            f"PostgreSQL's clock stepped; data is kept {clock.distrusted_s:.0f} s longer than configured",
            "Is the clock right now? Then run `queen doctor --accept-clock` on the machine of the server.",
        )


def _facts(spool: SpoolState) -> SpoolFacts:
    return SpoolFacts(
        "the spool of this server",
        spool.spooling,
        spool.messages,
        spool.bytes,
        spool.bytes_max,
        spool.oldest_age_s,
        spool.failed,
        None,
        spool.failed_age_s,
        spool.held_partitions,
        spool.held_age_s,
        spool.held_codes,
    )


def _activity(server: Server) -> Iterator[Finding]:
    try:
        status = server.get(Status, "/api/v1/status", {"limit": 1})
        groups = [group for _, group in on_queues(server, []) if not group.paused]
    except RefusedError as problem:
        yield Finding("access", Grade.WARNING, f"Only its health could be seen: {problem}")
        return
    hosts = {worker.hostname for worker in status.workers}
    place = "one machine" if len(hosts) == 1 else f"{len(hosts)} machines"
    yield Finding("workers", Grade.OK, f"Workers that have reported: {len(status.workers)}, on {place}")
    lags = [Lag(each.queue_name, each.name, each.total_lag, each.max_time_lag) for each in groups]
    age = None if status.stats_age < 0 else status.stats_age
    yield from judge_log(age, sorted(lags, key=lambda lag: -lag.seconds)[:10], status.dead_letter_queue.total_messages)
