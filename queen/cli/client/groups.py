"""``queen groups``: consumer groups."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client import pausing, showing
from queen.cli.client.asking import confirm
from queen.cli.client.connection import Server, at
from queen.cli.client.names import there, unknown_group
from queen.cli.client.options import (
    AnyQueue,
    Behind,
    Group,
    GroupSort,
    Most,
    OfQueue,
    OnQueue,
    Search,
    SortGroups,
    Yes,
)
from queen.cli.client.pages import every
from queen.cli.client.server import on_server
from queen.cli.client.showing import clean, counted, duration
from queen.cli.output import Json, err

_ROUTE = "/api/v1/consumer-groups"
_ON_QUEUE = _ROUTE + "/{}/queues/{}"
_CURSORS = 1000
_KINDS = {"longPoll": "long poll", "webSocket": "WebSocket"}

groups = typer.Typer(
    name="groups", help="Consumer groups: list, show, consumers, pause, resume, delete.", no_args_is_help=True
)


class GroupOfQueue(Struct, rename="camel"):
    """A group on a queue."""

    name: str
    queue_name: str
    members: int
    partitions_with_lag: int
    total_lag: int
    max_time_lag: int
    state: str
    paused: bool = False


class Cursor(Struct, rename="camel"):
    """The cursor of a group in a partition."""

    partition: str
    total_consumed: int
    offset_lag: int
    time_lag_seconds: int
    lease_active: bool
    last_consumed_at: str | None


class Cursors(Struct):
    """The cursors of a group on a queue, of ``total`` that match (``None``: not known yet)."""

    partitions: list[Cursor]
    total: int | None


class Consumer(Struct, rename="camel"):
    """A connected consumer."""

    kind: str
    address: str
    since: str
    in_flight: int | None
    hostname: str
    worker_id: int


class Consumers(Struct):
    """A page of them."""

    consumers: list[Raw]


class Deleted(Struct, rename="camel"):
    """The result of a deletion."""

    existed: bool
    deleted_partitions: int


@groups.callback()
def _groups() -> None:
    """Consumer groups: list, show, consumers, pause, resume, delete."""


def on_queues(
    server: Server, queues: Sequence[str], limit: int | None = None, **chosen: str | bool | None
) -> Iterator[tuple[Raw, GroupOfQueue]]:
    """The groups of some queues, or of all: the raw answer, and the fields that are shown."""
    for raw in every(lambda page: server.get(list[Raw], _ROUTE, {"queue": queues, **chosen, **page}), limit):
        yield raw, msgspec.json.decode(raw, type=GroupOfQueue)


@groups.command("list")
@on_server
def list_(
    server: Server,
    queue: AnyQueue = None,
    sort: SortGroups = GroupSort.name,
    search: Search = None,
    behind: Behind = False,
    limit: Most = None,
    json: Json = False,
) -> None:
    """List consumer groups with their lag. __QUEUE_MODE__ is the group of pops that name none.

    --json prints an array.
    """
    if queue is not None:
        there(server, queue)
    queues = [] if queue is None else [queue]
    found = list(on_queues(server, queues, limit, order=sort, search=search, behind=behind))
    if json:
        showing.document([raw for raw, _ in found])
        return
    made = showing.Listing(
        "queue",
        "group",
        "partitions",
        "with lag",
        "lag",
        "oldest",
        "state",
        "paused",
        right=("partitions", "with lag", "lag", "oldest"),
    )
    for _, each in found:
        made.add(
            each.queue_name,
            each.name,
            each.members,
            each.partitions_with_lag,
            each.total_lag,
            duration(each.max_time_lag),
            each.state,
            "yes" if each.paused else "",
        )
    if found:
        made.show()
    else:
        err.print("no consumer groups", style="dim")


@groups.command("show")
@on_server
def show(
    server: Server,
    group: Group,
    queue: OnQueue = None,
    sort: SortGroups = GroupSort.name,
    search: Search = None,
    behind: Behind = False,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum to show.", min=1, max=10_000)] = _CURSORS,
    json: Json = False,
) -> None:
    """Show the cursors of a group, per partition.

    --json prints an object with one entry per queue.
    """
    query = {"queue": queue, "order": sort, "search": search, "behind": behind, "limit": limit}
    found = server.get(dict[str, Raw], at(_ROUTE + "/{}", group), query)
    if not found:
        _there(server, group, queue)
    if json:
        showing.document(found)
    elif found:
        _show(found, limit, queue)
    else:
        err.print("no partitions", style="dim")


def _show(found: Mapping[str, Raw], limit: int, queue: str | None) -> None:
    made = showing.Listing(
        "queue", "partition", "acked", "lag", "oldest", "leased", "acked up to", right=("acked", "lag", "oldest")
    )
    answers = {name: msgspec.json.decode(raw, type=Cursors) for name, raw in found.items()}
    for name, answer in answers.items():
        for each in answer.partitions:
            made.add(
                name,
                each.partition,
                each.total_consumed,
                each.offset_lag,
                duration(each.time_lag_seconds),
                "yes" if each.lease_active else "",
                showing.local(each.last_consumed_at),
            )
    made.show()
    # Of several queues, those behind the limit are not in the answer.
    total = answers[queue].total if queue is not None else None
    if len(made) == limit and total != limit:
        err.print(f"the first {limit} partitions" + (f" of {total}" if total is not None else ""), style="dim")


def _there(server: Server, group: str, queue: str | None) -> None:
    """Returns if the group exists, so that nothing found is not mistaken for nothing there."""
    queues = [] if queue is None else [queue]
    if not any(each.name == group for _, each in on_queues(server, queues, search=group)):
        raise unknown_group(server, group, queue)


@groups.command("consumers")
@on_server
def consumers(server: Server, group: Group, queue: OfQueue, limit: Most = None, json: Json = False) -> None:
    """List the connected consumers of a group on a queue: long polls that wait, and WebSockets.

    --json prints an array.
    """
    _there(server, group, queue)
    path = at(_ON_QUEUE + "/consumers", group, queue)
    found = list(every(lambda page: server.get(Consumers, path, page).consumers, limit))
    if json:
        showing.document(found)
        return
    made = showing.Listing("kind", "address", "since", "in flight", "worker", right=("in flight",))
    for each in (msgspec.json.decode(raw, type=Consumer) for raw in found):
        made.add(
            _KINDS.get(each.kind, each.kind),
            each.address,
            showing.local(each.since),
            each.in_flight,
            f"{each.hostname}:{each.worker_id}",
        )
    if found:
        made.show()
    else:
        err.print("no consumer is connected", style="dim")


@groups.command("pause")
@on_server
def pause(server: Server, group: Group, queue: OfQueue, json: Json = False) -> None:
    """Pause a group on a queue: its consumers get no messages until it is resumed. Acks go on.

    --json prints the server's answer.
    """
    pausing.switch(server, _ON_QUEUE, [group, queue], f"{group} on {queue}", on=True, json=json)


@groups.command("resume")
@on_server
def resume(server: Server, group: Group, queue: OfQueue, json: Json = False) -> None:
    """Resume a paused group on a queue.

    --json prints the server's answer.
    """
    pausing.switch(server, _ON_QUEUE, [group, queue], f"{group} on {queue}", on=False, json=json)


@groups.command("delete")
@on_server
def delete(
    server: Server,
    group: Group,
    queue: OnQueue = None,
    keep_start: Annotated[
        bool,
        typer.Option("--keep-start", help="Delete only its cursors: the group starts again where it first started."),
    ] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete a group with its cursors and leases. Its dead letters stay. Its next pop creates it again.

    --json prints the server's answer.
    """
    path = at(_ROUTE + "/{}", group) + (at("/queues/{}", queue) if queue is not None else "")
    place = f"on {clean(queue)}" if queue is not None else "on all its queues"
    confirm(f"Delete the consumer group {clean(group)} {place}? Its cursors will be lost.", yes=yes)
    answer = server.delete(Raw, path, {"deleteMetadata": not keep_start})
    deleted = msgspec.json.decode(answer, type=Deleted)
    if not deleted.existed:
        raise unknown_group(server, group, queue)
    if json:
        showing.document(answer)
    else:
        showing.say(f"{group} deleted, with {counted(deleted.deleted_partitions, 'cursor')}")
