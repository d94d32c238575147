"""``queen queues``: lists, shows, creates, configures, deletes, pauses and resumes queues."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client import pages, pausing, showing
from queen.cli.client.asking import confirm
from queen.cli.client.connection import Server, at
from queen.cli.client.names import exists, there
from queen.cli.client.options import Most, Search, Yes
from queen.cli.client.options import Queue as Name
from queen.cli.client.queue_options import Options, with_options
from queen.cli.client.server import on_server
from queen.cli.client.showing import clean
from queen.cli.errors import FailedError, UsageError
from queen.cli.output import Json, err

_ROUTE = "/api/v1/resources/queues/{}"
_CONFIGURE = "/api/v1/configure"
#: Maximum of names in one query, and of their bytes in a URL.
_NAMES = 100
_NAMES_BYTES = 8000
_PARTITIONS = 50


class Sort(StrEnum):
    """The order of queues."""

    newest = "newest"
    name = "name"
    partitions = "partitions"
    total = "total"
    pending = "pending"
    processing = "processing"


class Messages(Struct):
    """Message counts of a queue; ``pending`` excludes messages in flight."""

    total: int
    pending: int
    processing: int


class Queue(Struct, rename="camel"):
    """A queue in a list."""

    name: str
    namespace: str
    task: str
    partitions: int
    messages: Messages
    paused: bool = False


class Queues(Struct):
    """A page of queues, and how many there are."""

    queues: list[Raw]
    total: int


class Counts(Struct, rename="camel"):
    """Message counts by state."""

    total: int
    pending: int
    processing: int
    completed: int
    failed: int
    dead_letter: int


class Config(Struct, rename="camel"):
    """Options of a queue."""

    lease_time: int
    retry_limit: int
    retry_delay: int
    dead_letter_queue: bool
    delayed_processing: int
    window_buffer: int
    retention_enabled: bool
    retention_seconds: int
    completed_retention_seconds: int
    ttl: int
    max_wait_time_seconds: int
    max_size: int
    encryption_enabled: bool


class Configured(Struct):
    """The configuration of a queue: its labels, and its options as the server takes them."""

    namespace: str
    task: str

    options: Raw


class Labels(Struct, rename="camel"):
    """Name and labels of a queue."""

    name: str
    namespace: str
    task: str
    priority: int
    created_at: str
    paused: bool = False


class Partition(Struct, rename="camel"):
    """A partition with its counts."""

    name: str
    messages: Counts
    newest_message: str | None


class Detail(Struct):
    """A queue with a page of its partitions."""

    queue: Labels
    partitions: list[Partition]
    totals: Counts


queues = typer.Typer(
    name="queues", help="Queues: list, show, create, configure, delete, pause, resume.", no_args_is_help=True
)


@queues.callback()
def _queues() -> None:
    """Queues: list, show, create, configure, delete, pause, resume."""


@queues.command("show")
@on_server
def show(server: Server, queue: Name, json: Json = False) -> None:
    """Show a queue with its options and partitions.

    --json prints an object.
    """
    answer = server.get(Raw, at("/api/v1/status/queues/{}", queue), {"limit": _PARTITIONS})
    if json:
        showing.document(answer)
        return
    configured = server.get(Configured, _CONFIGURE, {"queue": queue})
    _show_one(msgspec.json.decode(answer, type=Detail), msgspec.json.decode(configured.options, type=Config))


@queues.command("list")
@on_server
def list_(
    server: Server,
    namespace: Annotated[str | None, typer.Option(help="Only queues of this namespace.", show_default=False)] = None,
    task: Annotated[str | None, typer.Option(help="Only queues of this task.", show_default=False)] = None,
    sort: Annotated[
        Sort, typer.Option(help="Order: newest first, by name, or the largest number of these first.")
    ] = Sort.newest,
    search: Search = None,
    limit: Most = None,
    json: Json = False,
) -> None:
    """List queues, newest first.

    --json prints an array.
    """
    found = list(every(server, limit, namespace=namespace, task=task, order=sort, search=search))
    if json:
        showing.document(found)
        return
    made = showing.Listing(
        "queue",
        "namespace",
        "task",
        "partitions",
        "messages",
        "pending",
        "leased",
        "paused",
        right=("partitions", "messages", "pending", "leased"),
    )
    for each in (msgspec.json.decode(raw, type=Queue) for raw in found):
        counts = each.messages
        made.add(
            each.name,
            each.namespace,
            each.task,
            each.partitions,
            counts.total,
            counts.pending,
            counts.processing,
            "yes" if each.paused else "",
        )
    if found:
        made.show()
    else:
        err.print("no queues", style="dim")


@queues.command("create")
@on_server
@with_options
def create(server: Server, queue: Name, options: Options, json: Json = False) -> None:
    """Create a queue, with the options that are given and the defaults of the others. A push creates it as well.

    --json prints the server's answer.
    """
    if exists(server, queue):
        raise FailedError(f"there is a queue {clean(queue)} already: `queen queues configure` changes its options")
    _configure(server, queue, options, json=json)


@queues.command("configure")
@on_server
@with_options
def configure(server: Server, queue: Name, options: Options, json: Json = False) -> None:
    """Change options of a queue; the others stay as they are.

    --json prints the server's answer.
    """
    if not options:
        raise UsageError("nothing to change: give at least one option, such as --lease-time 60")
    now = server.get(Configured, _CONFIGURE, {"queue": queue})
    kept = msgspec.json.decode(now.options, type=dict[str, Any]) | {"namespace": now.namespace, "task": now.task}
    if "deadLetterQueue" in options:
        # Its second name, which would contradict it.
        del kept["dlqAfterMaxRetries"]
    _configure(server, queue, {**kept, **options}, json=json)


def _configure(server: Server, queue: str, options: Options, *, json: bool) -> None:
    answer = server.post(Raw, _CONFIGURE, {"queue": queue, "options": options})
    if json:
        showing.document(answer)
    else:
        showing.say(f"{queue} is configured: `queen queues show` shows its options")


@queues.command("delete")
@on_server
def delete(server: Server, queue: Name, yes: Yes = False, json: Json = False) -> None:
    """Delete a queue with its messages, cursors and dead letters. This cannot be undone.

    --json prints the server's answer.
    """
    there(server, queue)
    confirm(f"Delete the queue {clean(queue)} with all that is in it? This cannot be undone.", yes=yes)
    answer = server.delete(Raw, at(_ROUTE, queue))
    if json:
        showing.document(answer)
    else:
        showing.say(f"{queue} deleted")


@queues.command("pause")
@on_server
def pause(server: Server, queue: Name, json: Json = False) -> None:
    """Pause a queue: consumers of all groups get no messages until it is resumed. Pushes and acks go on.

    --json prints the server's answer.
    """
    pausing.switch(server, _ROUTE, [queue], queue, on=True, json=json)


@queues.command("resume")
@on_server
def resume(server: Server, queue: Name, json: Json = False) -> None:
    """Resume a paused queue. Groups of it that are paused themselves stay so.

    --json prints the server's answer.
    """
    pausing.switch(server, _ROUTE, [queue], queue, on=False, json=json)


def every(server: Server, limit: int | None = None, **chosen: str | None) -> Iterator[Raw]:
    """All queues, or the first of those that are chosen."""
    return pages.every(lambda page: server.get(Queues, "/api/v1/resources/queues", {**chosen, **page}).queues, limit)


def in_few_requests(names: Sequence[str]) -> Iterator[list[str]]:
    """Splits names into portions that fit into one query."""
    portion: list[str] = []
    room = _NAMES_BYTES
    for name in names:
        size = len(quote(name, safe=""))
        if portion and (len(portion) == _NAMES or size > room):
            yield portion
            portion, room = [], _NAMES_BYTES
        portion.append(name)
        room -= size
    if portion:
        yield portion


def _show_one(detail: Detail, config: Config) -> None:
    queue, totals = detail.queue, detail.totals
    showing.record(
        ("queue", queue.name),
        ("namespace, task", f"{queue.namespace}, {queue.task}"),
        ("created", showing.local(queue.created_at)),
        ("paused", "yes" if queue.paused else "no"),
        ("priority", queue.priority),
        ("lease", f"{config.lease_time} s"),
        ("retries", f"{config.retry_limit}, after {config.retry_delay} ms"),
        ("dead letters enabled", "yes" if config.dead_letter_queue else "no"),
        ("delay", _seconds(config.delayed_processing, "none")),
        ("window", _seconds(config.window_buffer, "none")),
        ("encrypted", "yes" if config.encryption_enabled else "no"),
        ("retention", _seconds(config.retention_seconds if config.retention_enabled else 0, "unlimited")),
        ("retention of acknowledged", _seconds(config.completed_retention_seconds, "unlimited")),
        ("message TTL", _seconds(config.ttl, "none")),
        ("max age before eviction", _seconds(config.max_wait_time_seconds, "unlimited")),
        ("max backlog", config.max_size or "unlimited"),
        ("messages", totals.total),
        ("pending, in flight", f"{totals.pending}, {totals.processing}"),
        ("acknowledged, dead letters", f"{totals.completed}, {totals.dead_letter}"),
    )
    made = showing.Listing(
        "partition", "messages", "pending", "leased", "newest", right=("messages", "pending", "leased")
    )
    for each in detail.partitions:
        counts = each.messages
        made.add(each.name, counts.total, counts.pending, counts.processing, showing.local(each.newest_message))
    if detail.partitions:
        showing.say("")
        made.show()
    if len(detail.partitions) == _PARTITIONS:
        err.print(f"the first {_PARTITIONS} partitions", style="dim")


def _seconds(number: int, none: str) -> str:
    return f"{number} s" if number else none
