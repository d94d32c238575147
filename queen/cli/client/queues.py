"""``queen queues``: lists queues, shows one, pauses and resumes."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer
from msgspec import Raw, Struct
from typer.core import TyperGroup

from queen.cli.client import pausing, showing
from queen.cli.client.connection import DEFAULT_URL, Server, at, connected
from queen.cli.client.options import Json, Token, Url
from queen.cli.client.options import Queue as Name
from queen.cli.output import err

_ROUTE = "/api/v1/resources/queues/{}"
_PAGE = 1000
#: Maximum of names in one query, and of their bytes in a URL.
_NAMES = 100
_NAMES_BYTES = 8000
_PARTITIONS = 50


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
    """The configuration of a queue."""

    options: Config


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


class _ShowUnlessNamed(TyperGroup):
    """Takes ``queen queues NAME`` for ``queen queues show NAME``, unless NAME is a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's own copy of click
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


queues = typer.Typer(name="queues", help="Queues: list, show, pause, resume.", cls=_ShowUnlessNamed)


@queues.callback()
def _queues() -> None:
    """Queues: list, show, pause, resume. Without a command, as show."""


@queues.command("show")
def show(
    name: Annotated[str | None, typer.Argument(help="Queue to show.", metavar="QUEUE", show_default="all")] = None,
    namespace: Annotated[str | None, typer.Option(help="Only queues of this namespace.", show_default=False)] = None,
    task: Annotated[str | None, typer.Option(help="Only queues of this task.", show_default=False)] = None,
    json: Json = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """List queues, newest first; or show one with its options and partitions.

    --json prints an array of queues, or one object.
    """
    with connected(url, token) as server:
        if name is not None:
            answer = server.get(Raw, at("/api/v1/status/queues/{}", name), {"limit": _PARTITIONS})
            if json:
                showing.document(answer)
            else:
                configured = server.get(Configured, "/api/v1/configure", {"queue": name})
                _show_one(msgspec.json.decode(answer, type=Detail), configured.options)
            return
        found = list(every(server, namespace, task))
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


@queues.command("pause")
def pause(name: Name, json: Json = False, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Pause a queue: consumers of all groups get no messages until it is resumed. Pushes and acks go on.

    --json prints the server's answer.
    """
    pausing.switch(_ROUTE, [name], name, on=True, json=json, url=url, token=token)


@queues.command("resume")
def resume(name: Name, json: Json = False, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Resume a paused queue. Groups of it that are paused themselves stay so.

    --json prints the server's answer.
    """
    pausing.switch(_ROUTE, [name], name, on=False, json=json, url=url, token=token)


def every(server: Server, namespace: str | None = None, task: str | None = None) -> Iterator[Raw]:
    """All queues, page by page."""
    offset = 0
    while True:
        parameters = {"limit": _PAGE, "offset": offset, "namespace": namespace, "task": task}
        page = server.get(Queues, "/api/v1/resources/queues", parameters).queues
        yield from page
        if len(page) < _PAGE:
            return
        offset += _PAGE


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


def there(server: Server, queue: str) -> None:
    """Returns if the queue exists, so that an empty list is not mistaken for one of a misspelt name.

    Raises:
        RefusedError: it does not exist (404).
    """
    server.get(Raw, at(_ROUTE, queue), {"limit": 1})


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
