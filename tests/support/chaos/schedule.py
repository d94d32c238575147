"""Schedules: which faults happen when, to one database or several. Pure: the same seed gives the same schedule."""

from random import Random
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

#: ``database``: between the workers and PostgreSQL; ``clients``: between clients and the server.
Link: TypeAlias = Literal["database", "clients"]
#: ``there``: what is asked; ``back``: what is answered.
Direction: TypeAlias = Literal["there", "back", "both"]


class KillPostmaster(Struct, frozen=True, tag=True):
    """kill -9 of PostgreSQL's first process; it is started again after some seconds."""

    down_s: float


class StopPostgres(Struct, frozen=True, tag=True):
    """A shutdown, and a start after some seconds."""

    mode: Literal["fast", "immediate"]
    down_s: float


class KillBackEnd(Struct, frozen=True, tag=True):
    """kill -9 of one process of PostgreSQL, which ends all sessions, or the orderly end of the workers' sessions."""

    how: Literal["kill", "terminate"]
    pick: int


class FreezePostgres(Struct, frozen=True, tag=True):
    """SIGSTOP of all its processes: connections just hang."""

    seconds: float


class FailOver(Struct, frozen=True, tag=True):
    """kill -9 of the primary and promotion of its synchronous standby; the old primary stays down."""


class FillPostgresDisk(Struct, frozen=True, tag=True):
    """No room under PostgreSQL for some seconds."""

    seconds: float


class Reset(Struct, frozen=True, tag=True):
    """All connections of a link are reset."""

    link: Link


class BlackHole(Struct, frozen=True, tag=True):
    """A link swallows what is sent; at the end it delivers all of that, or resets its connections."""

    link: Link
    direction: Direction
    seconds: float
    then: Literal["deliver", "reset"]


class Delay(Struct, frozen=True, tag=True):
    """A link takes up to so long for each piece, in order."""

    link: Link
    most_ms: int
    seconds: float


class KillWorker(Struct, frozen=True, tag=True):
    """kill -9 of a worker."""

    pick: int


class KillMaster(Struct, frozen=True, tag=True):
    """kill -9 of gunicorn's master; the whole server is started again."""


class KillEverything(Struct, frozen=True, tag=True):
    """kill -9 of the server with all workers and of every PostgreSQL, as when the machine goes; all start again."""

    down_s: float


class StopServer(Struct, frozen=True, tag=True):
    """SIGTERM, and a new start."""


class Reload(Struct, frozen=True, tag=True):
    """SIGHUP: new workers take over."""


class FillSpoolDisk(Struct, frozen=True, tag=True):
    """No room under the spool for some seconds: a write writes a part, then fails."""

    seconds: float


class BreakSync(Struct, frozen=True, tag=True):
    """fsync in the spool's folder fails for some seconds."""

    seconds: float


class JumpClock(Struct, frozen=True, tag=True):
    """The clock of the server's processes stands so many seconds beside the true time, from now on."""

    offset_s: float


class AddDatabase(Struct, frozen=True, tag=True):
    """The server is started again with one more database, and `queen shards add` is repeated until it is done."""


class DrainDatabase(Struct, frozen=True, tag=True):
    """`queen shards drain` is repeated until it is done."""


Fault: TypeAlias = (
    KillPostmaster
    | StopPostgres
    | KillBackEnd
    | FreezePostgres
    | FailOver
    | FillPostgresDisk
    | Reset
    | BlackHole
    | Delay
    | KillWorker
    | KillMaster
    | KillEverything
    | StopServer
    | Reload
    | FillSpoolDisk
    | BreakSync
    | JumpClock
    | AddDatabase
    | DrainDatabase
)


class Event(Struct, frozen=True):
    """A fault that begins so many seconds after the start.

    Attributes:
        database: the one of several that it is done to, if it is about a database.
    """

    at: float
    fault: Fault
    database: int = 0

    @property
    def text(self) -> str:
        """For people."""
        fields = " ".join(f"{name}={value}" for name, value in msgspec.structs.asdict(self.fault).items())
        return f"{self.at:5.1f} s  {kind_of(self.fault)} {fields}".rstrip()


class Schedule(Struct, frozen=True):
    """What goes wrong in one run.

    Attributes:
        seed: from which it was made.
        events: by time.
        databases: how many the server begins with.
    """

    seed: int
    events: tuple[Event, ...]
    databases: int = 1

    @property
    def text(self) -> str:
        """The timeline, one line an event, numbered as ``--faults`` takes them."""
        lines = [f"  [{number}] {event.text}{self._place(event)}" for number, event in enumerate(self.events)]
        return "\n".join([f"seed {self.seed}, databases: {self.databases}", *lines])

    def _place(self, event: Event) -> str:
        return f" (database {event.database})" if self.databases > 1 else ""

    def needs(self, kind: type[Struct], database: int | None = None) -> bool:
        """Whether such a fault is among them, if a database is named: one that is done to it."""
        return any(isinstance(e.fault, kind) and database in (None, e.database) for e in self.events)

    def only(self, numbers: frozenset[int]) -> "Schedule":
        """The same with fewer events: how a failure is made smaller."""
        return msgspec.structs.replace(
            self, events=tuple(event for number, event in enumerate(self.events) if number in numbers)
        )


def kind_of(fault: Fault) -> str:
    """The name of a fault's kind."""
    return type(fault).__name__


def schedule_of(seed: int, databases: int = 1, length_s: float = 6.0) -> Schedule:
    """Three to six faults within so many seconds; one that only an outage shows gets its outage.

    Over several databases each is done to one of them, and their list may change.
    """
    choice = Random(seed)
    kinds = choice.sample(_DECK, choice.randint(3, 6))
    events: list[Event] = []
    for kind in kinds:
        if kind is FailOver and any(isinstance(event.fault, FailOver) for event in events):
            continue
        at = round(choice.uniform(0.2, length_s), 1)
        events.append(Event(at, _fault(kind, choice)))
        if kind in _SEEN_IN_OUTAGES:
            events.append(Event(round(max(at - 1.5, 0.0), 1), _outage(choice)))
    if databases > 1:
        events = [msgspec.structs.replace(event, database=choice.randrange(databases)) for event in events]
        for kind in (AddDatabase, DrainDatabase):
            if choice.random() < _CHANGED:
                events.append(Event(round(choice.uniform(0.2, length_s), 1), kind(), choice.randrange(databases)))
    return Schedule(seed, tuple(sorted(events, key=lambda event: event.at)), databases)


#: The share of schedules over several databases in which one is added, and in which one is drained.
_CHANGED = 0.4
_SEEN_IN_OUTAGES = {FillSpoolDisk, BreakSync, JumpClock}

#: Each kind as often as it shall be drawn.
_DECK: list[type[Struct]] = [
    KillPostmaster, KillPostmaster, StopPostgres, StopPostgres, KillBackEnd, KillBackEnd, FreezePostgres,
    FreezePostgres, FailOver, FillPostgresDisk, Reset, Reset, BlackHole, BlackHole, BlackHole, Delay, Delay,
    KillWorker, KillWorker, KillMaster, KillEverything, KillEverything, StopServer, Reload, Reload, FillSpoolDisk,
    BreakSync, JumpClock,
]  # fmt: skip


def _fault(kind: type[Struct], choice: Random) -> Fault:
    seconds = round(choice.uniform(0.3, 4.0), 1)
    link: Link = choice.choice(("database", "database", "clients"))
    pick = choice.randrange(1000)
    simple: dict[type[Struct], Fault] = {
        KillPostmaster: KillPostmaster(seconds),
        StopPostgres: StopPostgres(choice.choice(("fast", "immediate")), seconds),
        KillBackEnd: KillBackEnd(choice.choice(("kill", "terminate")), pick),
        FreezePostgres: FreezePostgres(seconds),
        FailOver: FailOver(),
        FillPostgresDisk: FillPostgresDisk(round(choice.uniform(2.0, 8.0), 1)),
        Reset: Reset(link),
        BlackHole: BlackHole(
            link, choice.choice(("there", "back", "both")), seconds, choice.choice(("deliver", "reset"))
        ),
        Delay: Delay(link, choice.choice((20, 100, 500)), seconds),
        KillWorker: KillWorker(pick),
        KillMaster: KillMaster(),
        KillEverything: KillEverything(seconds),
        StopServer: StopServer(),
        Reload: Reload(),
        FillSpoolDisk: FillSpoolDisk(seconds),
        BreakSync: BreakSync(seconds),
        JumpClock: JumpClock(float(choice.choice((-86_400, -7200, -30, 30, 7200, 86_400)))),
    }
    return simple[kind]


def _outage(choice: Random) -> Fault:
    seconds = round(choice.uniform(3.0, 6.0), 1)
    outages: tuple[Fault, ...] = (
        KillPostmaster(seconds),
        StopPostgres("fast", seconds),
        FreezePostgres(seconds),
        BlackHole("database", "both", seconds, choice.choice(("deliver", "reset"))),
    )
    return choice.choice(outages)
