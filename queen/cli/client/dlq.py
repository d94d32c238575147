"""``queen dlq``: dead letters."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer
from msgspec import UNSET, Raw, Struct, UnsetType

from queen.cli.client import showing
from queen.cli.client.asking import confirm
from queen.cli.client.connection import RefusedError, Server, at
from queen.cli.client.names import there
from queen.cli.client.options import OfGroup, OfPartition, Queue, Yes
from queen.cli.client.server import on_server
from queen.cli.client.showing import clean, counted
from queen.cli.errors import FailedError, UsageError
from queen.cli.output import Json, err, even_unread
from queen.cli.progress import bar

_ROUTE = "/api/v1/dlq"
_PAGE = 1000
#: Statuses for a dead letter that no longer exists or cannot be decrypted; the others are not affected.
_OF_ONE = (404, 409)

dlq = typer.Typer(name="dlq", help="Dead letters: list, replay, purge.", no_args_is_help=True)


class DeadLetter(Struct, rename="camel"):
    """A dead letter, with the fields that are shown."""

    id: str
    transaction_id: str
    partition: str
    consumer_group: str
    error_message: str
    retry_count: int
    failed_at: str
    data: Raw


class Page(Struct):
    """A page of dead letters, and their total number."""

    messages: list[Raw]
    total: int


class Target(Struct, omit_defaults=True):
    """The target of a replay, if not the original partition."""

    queue: str | UnsetType = UNSET
    partition: str | UnsetType = UNSET


class Replayed(Struct):
    """The result of a replay."""

    result: str


class Purged(Struct):
    """The number of deleted dead letters."""

    deleted: int


class Wanted(Struct, frozen=True):
    """A filter for dead letters."""

    queue: str
    group: str | None = None
    partition: str | None = None

    def page(self, server: Server, limit: int, offset: int = 0) -> Page:
        """A page of dead letters, newest failure first."""
        parameters = {
            "queue": self.queue, "consumerGroup": self.group, "partition": self.partition, "limit": limit,
            "offset": offset,
        }  # fmt: skip
        return server.get(Page, _ROUTE, parameters)


@dlq.callback()
def _dlq() -> None:
    """Dead letters: list, replay, purge."""


@dlq.command("list")
@on_server
def list_(
    server: Server,
    queue: Queue,
    group: OfGroup = None,
    partition: OfPartition = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum to show.", min=1, max=10_000)] = 100,
    json: Json = False,
) -> None:
    """List dead letters, newest failure first.

    --json prints an array.
    """
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
@on_server
def replay(
    server: Server,
    queue: Queue,
    ids: Annotated[
        list[str] | None,
        typer.Argument(help="Ids of dead letters, from `queen dlq list`.", metavar="[ID]...", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Replay all dead letters of the queue; asks first.")] = False,
    group: OfGroup = None,
    partition: OfPartition = None,
    to_queue: Annotated[str | None, typer.Option(help="Target queue.", show_default="the queue of each")] = None,
    to_partition: Annotated[
        str | None, typer.Option(help="Target partition.", show_default="the partition of each")
    ] = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Push dead letters again, oldest failure first. All groups get them. A replayed dead letter is removed.

    --json prints the server's answers, one line each.
    """
    wanted = Wanted(queue, group, partition)
    if bool(ids) == every:
        raise UsageError("give ids, or --all")
    if ids and (group is not None or partition is not None):
        raise UsageError("--group and --partition need --all; they cannot be combined with ids")
    chosen = ids or _chosen(server, wanted, yes=yes)
    target = Target(UNSET if to_queue is None else to_queue, UNSET if to_partition is None else to_partition)
    _replay(server, chosen, target, json=json)


def _chosen(server: Server, wanted: Wanted, *, yes: bool) -> list[str]:
    there(server, wanted.queue)
    total = wanted.page(server, 1).total
    if not total:
        return []
    confirm(f"Replay {counted(total, 'dead letter')} of {clean(wanted.queue)}?", yes=yes)
    found = [msgspec.json.decode(raw, type=DeadLetter).id for raw in _every(server, wanted)]
    # New failures shift the pages, so that a dead letter may be on two of them.
    return list(dict.fromkeys(reversed(found)))


def _every(server: Server, wanted: Wanted) -> Iterator[Raw]:
    offset = 0
    while True:
        # Pages with large messages are shorter.
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
        problem.args = (f"{problem}. {counts['moved']} of {len(ids)} were replayed, the others were not",)
        raise
    if not json:
        kept = f", {counts['duplicate']} are duplicates and were kept" if counts["duplicate"] else ""
        with even_unread():
            showing.say(f"{counted(counts['moved'], 'dead letter')} replayed{kept}")
    if counts["refused"]:
        raise FailedError(f"{counted(counts['refused'], 'dead letter')} of {len(ids)} could not be replayed")


def _replay_one(server: Server, each: str, target: Target, *, json: bool) -> str:
    """Replays one; its result."""
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
@on_server
def purge(
    server: Server,
    queue: Queue,
    group: OfGroup = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete the dead letters of a queue. This cannot be undone. Their messages stay acknowledged.

    --json prints the server's answer.
    """
    there(server, queue)
    total = Wanted(queue, group).page(server, 1).total
    if total:
        of = f"group {clean(group)} on {clean(queue)}" if group is not None else clean(queue)
        confirm(f"Delete {counted(total, 'dead letter')} of {of}? This cannot be undone.", yes=yes)
    answer = server.delete(Raw, _ROUTE, {"queue": queue, "consumerGroup": group})
    if json:
        showing.document(answer)
    else:
        showing.say(f"{counted(msgspec.json.decode(answer, type=Purged).deleted, 'dead letter')} deleted")
