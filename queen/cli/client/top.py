"""``queen top``: throughput and lag per queue."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
import typer
from msgspec import Struct
from rich.console import Group as Lines
from rich.live import Live
from rich.text import Text

from queen.cli.client import showing
from queen.cli.client.connection import RefusedError, Server, UnreachableError
from queen.cli.client.groups import GroupOfQueue, on_queues
from queen.cli.client.queues import Queue, Queues, in_few_requests
from queen.cli.client.server import on_server
from queen.cli.client.showing import counted, duration
from queen.cli.ending import interruptible
from queen.cli.output import Json, out

_ROUTE = "/api/v1/analytics/queue-ops"
_MINUTE_S = 60.0
#: Workers store their counts every ten seconds: a rate covers three of these intervals.
_RATE_S = 30.0
#: Lines of a terminal that are not for queues.
_AROUND = 4
#: Maximum of queues to show: each refresh requests all of them.
_MOST = 1000
#: Key of the totals; no queue has this name.
_ALL = ""


class Work(Struct, rename="camel"):
    """The activity of a queue in one minute."""

    bucket: str
    queue_name: str
    push_messages: int
    pop_messages: int
    ack_success: int


class Span(Struct, rename={"end": "to"}):
    """The time range of an answer; its end is the current time of the server."""

    end: str


class Total(Struct, rename="camel"):
    """The activity of all queues in one minute."""

    bucket: str
    push_messages: int
    pop_messages: int
    ack_success: int


class Worked(Struct, rename="camel"):
    """The activity in a time range: of the busiest queues, and in total."""

    time_range: Span
    series: list[Work]
    queues: list[str]
    queue_count: int
    totals: list[Total]


class Counts(Struct, frozen=True):
    """Messages pushed, popped and acknowledged, as counts or per second."""

    push: float = 0
    pop: float = 0
    ack: float = 0


class Sample(Struct, frozen=True):
    """Counts by queue and minute, of this minute and the previous one; `_ALL` stands for all queues.

    ``whole``: it has all active queues, not only the busiest.
    """

    at: datetime
    counts: Mapping[tuple[str, str], Counts]
    whole: bool = True


class Shown(Struct, frozen=True):
    """The busiest queues, the number of all queues, and their total rates."""

    rows: Sequence["Row"]
    queues: int
    total: Counts


class Row(Struct, frozen=True, rename="camel"):
    """A queue. Rates are messages per second; lag is that of the group with the highest lag."""

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


@on_server
def top(
    server: Server,
    interval: Annotated[
        float, typer.Option("--interval", "-i", help="Seconds between two refreshes.", min=0.2, max=3600)
    ] = 2.0,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", help="Maximum of queues to show.", min=1, max=_MOST, show_default="as many as fit"
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    json: Json = False,
) -> None:
    """Show live throughput and lag per queue, busiest first, until Ctrl-C.

    Rates are averages over the last half minute; at first, and with --once, over the last one to two minutes.
    --json prints one line per refresh.
    """
    with interruptible():
        _watch(server, interval, limit, once=once, json=json)


def _watch(server: Server, interval: float, limit: int | None, *, once: bool, json: bool) -> None:
    pictures = not (once or json) and out.is_terminal
    wanted = limit or (max(out.height - _AROUND, 1) if pictures else _MOST)
    looks = [_look(server, None, wanted)]
    shown = _shown(server, rates(None, looks[-1]), wanted)
    if not pictures:
        _print(shown.rows, json=json)
        while not once:
            time.sleep(interval)
            _print(_shown(server, _next(server, looks, wanted), wanted).rows, json=json)
        return
    with Live(_screen(shown), console=out, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            wanted = limit or max(out.height - _AROUND, 1)
            try:
                shown, problem = _shown(server, _next(server, looks, wanted), wanted), ""
            except (UnreachableError, RefusedError) as failure:
                # The values stay until there are new ones.
                problem = str(failure)
            live.update(_screen(shown, problem), refresh=True)


def _next(server: Server, looks: list[Sample], wanted: int) -> dict[str, Counts]:
    """Messages per second since a sample of the right age, if there is one; deletes older samples."""
    looks.append(_look(server, looks[-1], wanted))
    while (looks[-1].at - looks[1].at).total_seconds() >= _RATE_S:
        del looks[0]
    apart = (looks[-1].at - looks[0].at).total_seconds()
    return rates(looks[0] if _RATE_S <= apart < _MINUTE_S else None, looks[-1])


def rates(then: Sample | None, now: Sample) -> dict[str, Counts]:
    """Messages per second and queue between two samples less than a minute apart, or over the whole later sample.

    The latter also for a queue that was not among the busiest in the earlier sample.
    """
    known: Mapping[tuple[str, str], Counts] = then.counts if then else {}
    named = {queue for queue, _ in known}
    since_minute = _MINUTE_S + now.at.second
    sums: dict[str, Counts] = {}
    for key, counts in now.counts.items():
        queue, before, total = key[0], known.get(key, Counts()), sums.get(key[0], Counts())
        sums[queue] = Counts(
            total.push + counts.push - before.push,
            total.pop + counts.pop - before.pop,
            total.ack + counts.ack - before.ack,
        )
    found = {}
    for queue, total in sums.items():
        compared = then is not None and (then.whole or queue in named)
        seconds = (now.at - then.at).total_seconds() if then is not None and compared else since_minute
        found[queue] = Counts(total.push / seconds, total.pop / seconds, total.ack / seconds)
    return found


def _look(server: Server, last: Sample | None, wanted: int) -> Sample:
    """A sample: the counts of this minute and the previous one, by the server's clock."""
    at = last.at if last else datetime.fromisoformat(server.get(Worked, _ROUTE, {"limit": 1}).time_range.end)
    since = (_minute(at) - timedelta(minutes=1)).isoformat()
    worked = server.get(Worked, _ROUTE, {"from": since, "limit": wanted})
    now = datetime.fromisoformat(worked.time_range.end)
    first = _minute(now) - timedelta(minutes=1)
    points = [(each.queue_name, each) for each in worked.series] + [(_ALL, each) for each in worked.totals]
    return Sample(
        now,
        {
            (queue, each.bucket): Counts(each.push_messages, each.pop_messages, each.ack_success)
            for queue, each in points
            if datetime.fromisoformat(each.bucket) >= first
        },
        worked.queue_count == len(worked.queues),
    )


def _minute(time: datetime) -> datetime:
    return time.replace(second=0, microsecond=0)


def _shown(server: Server, by_queue: Mapping[str, Counts], wanted: int) -> Shown:
    """The busiest queues; among equally busy ones, those with the larger backlog."""
    page = server.get(Queues, "/api/v1/resources/queues", {"order": "pending", "limit": wanted})
    queues = {each.name: each for each in _decoded(page)}
    paces = _paces(by_queue)
    busy = sorted(paces, key=lambda name: -paces[name])
    for names in in_few_requests([name for name in busy[:wanted] if name not in queues]):
        others = server.get(Queues, "/api/v1/resources/queues", {"queue": names, "limit": len(names)})
        queues |= {each.name: each for each in _decoded(others)}
    ordered = sorted(queues.values(), key=lambda each: (-paces.get(each.name, 0), -each.messages.pending, each.name))
    chosen = ordered[:wanted]
    behind = _groups(server, [each.name for each in chosen])
    rows = [_row(each, by_queue.get(each.name, Counts()), behind.get(each.name, [])) for each in chosen]
    return Shown(rows, page.total, by_queue.get(_ALL, Counts()))


def _paces(by_queue: Mapping[str, Counts]) -> dict[str, float]:
    """How busy each queue is that is not idle."""
    paces = {name: round(counts.push, 1) + round(counts.ack, 1) for name, counts in by_queue.items() if name != _ALL}
    return {name: pace for name, pace in paces.items() if pace}


def _groups(server: Server, queues: Sequence[str]) -> dict[str, list[GroupOfQueue]]:
    """The groups of each queue."""
    found: dict[str, list[GroupOfQueue]] = {}
    for names in in_few_requests(queues):
        for _, group in on_queues(server, names):
            found.setdefault(group.queue_name, []).append(group)
    return found


def _decoded(page: Queues) -> Iterator[Queue]:
    return (msgspec.json.decode(raw, type=Queue) for raw in page.queues)


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


def _screen(shown: Shown, problem: str = "") -> Lines:
    of = "" if len(shown.rows) == shown.queues else f" of {shown.queues}"
    total = shown.total
    rates = f"push {total.push:.1f}/s, pop {total.pop:.1f}/s, ack {total.ack:.1f}/s"
    head = Text(f"{counted(len(shown.rows), 'queue')}{of}; {rates}; Ctrl-C ends")
    return Lines(head, Text(showing.clean(problem), "red"), _listing(shown.rows).table())


def _listing(rows: Sequence[Row]) -> showing.Listing:
    titles = ("push/s", "pop/s", "ack/s", "pending", "leased", "lag", "oldest")
    made = showing.Listing("queue", *titles, "highest lag", right=titles)
    for row in rows:
        rates = [f"{rate:.1f}" for rate in (row.push_per_second, row.pop_per_second, row.ack_per_second)]
        made.add(row.queue, *rates, row.pending, row.leased, row.lag, duration(row.lag_seconds), row.slowest)
    return made
