"""``queen top``: throughput and lag by queue."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
import typer
from msgspec import Struct
from rich.console import Group as Lines
from rich.live import Live
from rich.text import Text

from queen.cli.client import showing
from queen.cli.client.connection import DEFAULT_URL, RefusedError, Server, UnreachableError, connected
from queen.cli.client.groups import GroupOfQueue, on_queue
from queen.cli.client.options import Json, Token, Url
from queen.cli.client.queues import Queue, every
from queen.cli.client.showing import counted, duration
from queen.cli.ending import interruptible
from queen.cli.output import out

_MINUTE_S = 60.0
#: Workers write down what they did every ten seconds: a rate is taken over three of those.
_RATE_S = 30.0
#: Lines that are not queues, on a terminal.
_AROUND = 4


class Work(Struct, rename="camel"):
    """What was done for a queue in a minute."""

    bucket: str
    queue_name: str
    push_messages: int
    pop_messages: int
    ack_success: int


class Span(Struct, rename={"end": "to"}):
    """The time that an answer is about; its end is the server's now."""

    end: str


class Worked(Struct, rename="camel"):
    """What was done over a time."""

    time_range: Span
    series: list[Work]


class Counts(Struct, frozen=True):
    """Messages pushed, popped and acked; or as many a second."""

    push: float = 0
    pop: float = 0
    ack: float = 0


class Look(Struct, frozen=True):
    """What was counted when: by queue and minute, of this minute and the one before."""

    at: datetime
    counts: Mapping[tuple[str, str], Counts]


class Row(Struct, frozen=True, rename="camel"):
    """A queue. Rates are messages a second; lag is that of the group that is furthest behind."""

    queue: str
    push_per_second: float
    pop_per_second: float
    ack_per_second: float
    messages: int
    pending: int
    leased: int
    groups: int
    lag: int
    lag_seconds: int
    slowest: str | None


def top(
    interval: Annotated[
        float, typer.Option("--interval", "-i", help="Seconds between two looks.", min=0.2, max=3600)
    ] = 2.0,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", help="Queues to show.", min=1, show_default="those that fit")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
    json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Watch throughput and lag by queue, busiest first, until Ctrl-C.

    Rates are those of the last half minute; at first, and with --once, of the last one to two minutes.
    With --json a line for each look.
    """
    with suppress(KeyboardInterrupt), interruptible(), connected(url, token) as server:
        _watch(server, interval, limit, once=once, json=json)


def _watch(server: Server, interval: float, limit: int | None, *, once: bool, json: bool) -> None:
    looks = [_look(server, None)]
    rows = _rows(server, rates(None, looks[-1]))
    if once or json or not out.is_terminal:
        _print(rows[:limit], json=json)
        while not once:
            time.sleep(interval)
            _print(_rows(server, _next(server, looks))[:limit], json=json)
        return
    with Live(_screen(rows, limit), console=out, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            try:
                rows, problem = _rows(server, _next(server, looks)), ""
            except (UnreachableError, RefusedError) as failure:
                # The figures stay until there are new ones.
                problem = str(failure)
            live.update(_screen(rows, limit, problem), refresh=True)


def _next(server: Server, looks: list[Look]) -> dict[str, Counts]:
    """Messages a second since a look that lies back as far as it should, if there is one; forgets older ones."""
    looks.append(_look(server, looks[-1]))
    while (looks[-1].at - looks[1].at).total_seconds() >= _RATE_S:
        del looks[0]
    apart = (looks[-1].at - looks[0].at).total_seconds()
    return rates(looks[0] if _RATE_S <= apart < _MINUTE_S else None, looks[-1])


def rates(then: Look | None, now: Look) -> dict[str, Counts]:
    """Messages a second by queue between two looks less than a minute apart, or in all that the later one has."""
    known: Mapping[tuple[str, str], Counts] = then.counts if then else {}
    seconds = (now.at - then.at).total_seconds() if then else _MINUTE_S + now.at.second
    sums: dict[str, Counts] = {}
    for key, counts in now.counts.items():
        queue, before, total = key[0], known.get(key, Counts()), sums.get(key[0], Counts())
        sums[queue] = Counts(
            total.push + counts.push - before.push,
            total.pop + counts.pop - before.pop,
            total.ack + counts.ack - before.ack,
        )
    return {
        queue: Counts(total.push / seconds, total.pop / seconds, total.ack / seconds) for queue, total in sums.items()
    }


def _look(server: Server, last: Look | None) -> Look:
    """What was counted in this minute and the one before, by the server's clock."""
    since = None if last is None else (_minute(last.at) - timedelta(minutes=1)).isoformat()
    worked = server.get(Worked, "/api/v1/analytics/queue-ops", {"from": since})
    now = datetime.fromisoformat(worked.time_range.end)
    first = _minute(now) - timedelta(minutes=1)
    return Look(
        now,
        {
            (each.queue_name, each.bucket): Counts(each.push_messages, each.pop_messages, each.ack_success)
            for each in worked.series
            if datetime.fromisoformat(each.bucket) >= first
        },
    )


def _minute(time: datetime) -> datetime:
    return time.replace(second=0, microsecond=0)


def _rows(server: Server, by_queue: Mapping[str, Counts]) -> list[Row]:
    """All queues, busiest first; of those that are equally busy the one with more to do."""
    behind: dict[str, list[GroupOfQueue]] = {}
    for _, group in on_queue(server, None):
        behind.setdefault(group.queue_name, []).append(group)
    queues = [msgspec.json.decode(raw, type=Queue) for raw in every(server)]
    rows = [_row(each, by_queue.get(each.name, Counts()), behind.get(each.name, [])) for each in queues]
    return sorted(rows, key=lambda row: (-row.push_per_second - row.ack_per_second, -row.pending, row.queue))


def _row(queue: Queue, work: Counts, groups: Sequence[GroupOfQueue]) -> Row:
    slowest = max(groups, key=lambda group: (group.max_time_lag, group.total_lag), default=None)
    return Row(
        queue.name,
        round(work.push, 1),
        round(work.pop, 1),
        round(work.ack, 1),
        queue.messages.total,
        queue.messages.pending,
        queue.messages.processing,
        len(groups),
        slowest.total_lag if slowest else 0,
        slowest.max_time_lag if slowest else 0,
        slowest.name if slowest and slowest.total_lag else None,
    )


def _print(rows: Sequence[Row], *, json: bool) -> None:
    if json:
        showing.document(rows)
    else:
        _listing(rows).show()


def _screen(rows: Sequence[Row], limit: int | None, problem: str = "") -> Lines:
    shown = rows[: limit or max(out.height - _AROUND, 1)]
    of = "" if len(shown) == len(rows) else f" of {len(rows)}"
    sums = [
        sum(getattr(row, field) for row in rows) for field in ("push_per_second", "pop_per_second", "ack_per_second")
    ]
    rates = f"push {sums[0]:.1f}/s, pop {sums[1]:.1f}/s, ack {sums[2]:.1f}/s"
    head = Text(f"{counted(len(shown), 'queue')}{of}; {rates}; Ctrl-C ends")
    return Lines(head, Text(showing.clean(problem), "red"), _listing(shown).table())


def _listing(rows: Sequence[Row]) -> showing.Listing:
    titles = ("push/s", "pop/s", "ack/s", "pending", "leased", "lag", "oldest")
    made = showing.Listing("queue", *titles, "slowest group", right=titles)
    for row in rows:
        rates = [f"{rate:.1f}" for rate in (row.push_per_second, row.pop_per_second, row.ack_per_second)]
        made.add(row.queue, *rates, row.pending, row.leased, row.lag, duration(row.lag_seconds), row.slowest)
    return made
