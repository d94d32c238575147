"""``queen dlq``: dead letters."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.cli.client import showing
from queen.cli.client.asking import confirm
from queen.cli.client.connection import DEFAULT_URL, FailedError, RefusedError, Server, UsageError, at, connected
from queen.cli.client.options import Json, OfGroup, OfPartition, Queue, Token, Url, Yes
from queen.cli.client.queues import there
from queen.cli.client.showing import clean, counted
from queen.cli.output import err, even_unread
from queen.cli.progress import bar

_ROUTE = "/api/v1/dlq"
_PAGE = 1000
#: The server answers so for one dead letter that is gone, or that nobody can decrypt; the others are not concerned.
_OF_ONE = (404, 409)

dlq = typer.Typer(name="dlq", help="Dead letters: list, replay, purge.", no_args_is_help=True)


class DeadLetter(Struct, rename="camel"):
    """A dead letter, as far as it is shown."""

    id: str
    transaction_id: str
    partition: str
    consumer_group: str
    error_message: str
    retry_count: int
    failed_at: str
    data: Raw


class Page(Struct):
    """Some of them, and how many there are."""

    messages: list[Raw]
    total: int


class Target(Struct, omit_defaults=True):
    """Where a replay goes, if not to where the message was."""

    queue: str | UnsetType = UNSET
    partition: str | UnsetType = UNSET


class Replayed(Struct):
    """What became of a replay."""

    result: str


class Purged(Struct):
    """How many are gone."""

    deleted: int


class Wanted(Struct, frozen=True):
    """Which dead letters are meant."""

    queue: str
    group: str | None = None
    partition: str | None = None

    def page(self, server: Server, limit: int, offset: int = 0) -> Page:
        """Some of them, newest failure first."""
        parameters = {
            "queue": self.queue, "consumerGroup": self.group, "partition": self.partition, "limit": limit,
            "offset": offset,
        }  # fmt: skip
        return server.get(Page, _ROUTE, parameters)


@dlq.callback()
def _dlq() -> None:
    """Dead letters: list, replay, purge."""


@dlq.command("list")
def list_(
    queue: Queue,
    group: OfGroup = None,
    partition: OfPartition = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many to show.", min=1, max=10_000)] = 100,
    json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """List dead letters, newest failure first.

    With --json an array.
    """
    with connected(url, token) as server:
        there(server, queue)
        page = Wanted(queue, group, partition).page(server, limit)
    if json:
        showing.document(page.messages)
        return
    made = showing.Listing(
        "id", "failed", "group", "partition", "retries", "transaction id", "error", "payload", right=("retries",)
    )
    for each in (msgspec.json.decode(raw, type=DeadLetter) for raw in page.messages):
        made.add(
            each.id,
            showing.local(each.failed_at),
            each.consumer_group,
            each.partition,
            each.retry_count,
            each.transaction_id,
            each.error_message,
            showing.payload(each.data),
        )
    if page.messages:
        made.show()
    if page.total > len(page.messages):
        err.print(f"{len(page.messages)} of {page.total}", style="dim")
    elif not page.total:
        err.print("no dead letters", style="dim")


@dlq.command("replay")
def replay(
    queue: Queue,
    ids: Annotated[
        list[str] | None,
        typer.Argument(help="Ids, as `queen dlq list` shows them.", metavar="[ID]...", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All of the queue; asks.")] = False,
    group: OfGroup = None,
    partition: OfPartition = None,
    to_queue: Annotated[str | None, typer.Option(help="Where to.", show_default="the queue of each")] = None,
    to_partition: Annotated[str | None, typer.Option(help="Where to.", show_default="the partition of each")] = None,
    yes: Yes = False,
    json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Push dead letters again, oldest failure first, for all groups; each leaves the dead letters as it does.

    With --json a line for each: the server's answer.
    """
    with connected(url, token) as server:
        wanted = Wanted(queue, group, partition)
        if bool(ids) == every:
            raise UsageError("which ones? Name ids, or --all")
        if ids and (group is not None or partition is not None):
            raise UsageError("--group and --partition choose among --all; ids choose already")
        chosen = ids or _chosen(server, wanted, yes=yes)
        target = Target(UNSET if to_queue is None else to_queue, UNSET if to_partition is None else to_partition)
        _replay(server, chosen, target, json=json)


def _chosen(server: Server, wanted: Wanted, *, yes: bool) -> list[str]:
    there(server, wanted.queue)
    total = wanted.page(server, 1).total
    if not total:
        return []
    confirm(f"Push {counted(total, 'dead letter')} of {clean(wanted.queue)} again?", yes=yes)
    found = [msgspec.json.decode(raw, type=DeadLetter).id for raw in _every(server, wanted)]
    # A failure that comes while the list is read moves the others down: one may stand on two pages.
    return list(dict.fromkeys(reversed(found)))


def _every(server: Server, wanted: Wanted) -> Iterator[Raw]:
    offset = 0
    while True:
        # A page ends sooner where messages are large.
        messages = wanted.page(server, _PAGE, offset).messages
        if not messages:
            return
        yield from messages
        offset += len(messages)


def _replay(server: Server, ids: list[str], target: Target, *, json: bool) -> None:
    counts: Counter[str] = Counter()
    try:
        with bar() as progress:
            for each in progress.track(ids, description="replaying"):
                counts[_replay_one(server, each, target, json=json)] += 1
    except FailedError as problem:
        problem.args = (f"{problem}. {counts['moved']} of {len(ids)} are pushed again, the others are still there",)
        raise
    if not json:
        kept = f", {counts['duplicate']} were there already and are kept" if counts["duplicate"] else ""
        with even_unread():
            showing.say(f"{counted(counts['moved'], 'dead letter')} pushed again{kept}")
    if counts["refused"]:
        raise FailedError(f"{counted(counts['refused'], 'dead letter')} of {len(ids)} cannot be replayed")


def _replay_one(server: Server, each: str, target: Target, *, json: bool) -> str:
    """Replays one; what became of it."""
    try:
        answer = server.post(Raw, at(_ROUTE + "/{}/replay", each), target)
    except RefusedError as problem:
        if problem.status not in _OF_ONE:
            raise
        with even_unread():
            err.print(clean(f"{each}: {problem}"), style="red", markup=False)
        return "refused"
    if json:
        with even_unread():
            showing.lines([answer])
    return msgspec.json.decode(answer, type=Replayed).result


@dlq.command("purge")
def purge(
    queue: Queue,
    group: OfGroup = None,
    yes: Yes = False,
    json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Delete the dead letters of a queue, for good; their messages stay done.

    With --json the server's answer.
    """
    with connected(url, token) as server:
        there(server, queue)
        total = Wanted(queue, group).page(server, 1).total
        if total:
            of = f"group {clean(group)} on {clean(queue)}" if group is not None else clean(queue)
            confirm(f"Delete {counted(total, 'dead letter')} of {of} for good?", yes=yes)
        answer = server.delete(Raw, _ROUTE, {"queue": queue, "consumerGroup": group})
    if json:
        showing.document(answer)
    else:
        showing.say(f"{counted(msgspec.json.decode(answer, type=Purged).deleted, 'dead letter')} deleted")
