"""``queen sqs``: queues of SQS and their messages."""

import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client import showing
from queen.cli.client.asking import confirm
from queen.cli.client.connection import Server
from queen.cli.client.options import Most, Search, Yes
from queen.cli.client.server import on_server
from queen.cli.client.showing import clean, counted
from queen.cli.client.sqs.connection import Sqs, name_of
from queen.cli.client.sqs.options import Attributes, DeadLetters, MaxReceives, Queue, Tags, attributes, pairs
from queen.cli.errors import FailedError, UsageError
from queen.cli.output import Json, err

_PAGE = 100
_FIFO = ".fifo"
_WAIT_S_MAX, _RECEIVED_MAX = 20, 10
_HANDLES_MAX = 10


class Sort(StrEnum):
    """The order of queues."""

    name = "name"
    visible = "visible"
    in_flight = "in-flight"
    delayed = "delayed"
    age = "age"


class Overview(Struct, rename="pascal"):
    """A queue in a list."""

    queue_name: str
    dead_letter_queue: str | None
    visible: int
    in_flight: int
    delayed: int
    oldest_seconds: float
    sent: int
    received: int
    empty_receives: int
    deleted: int
    dead_lettered: int


class Queues(Struct, rename="pascal"):
    """A page of queues."""

    queues: list[Raw]
    next_token: str | None = None


class Message(Struct, rename="pascal"):
    """A message, with what is shown."""

    message_id: str
    body: str | None = None
    attributes: dict[str, str] = {}
    receipt_handle: str = ""
    state: str = ""
    problem: str | None = None


class Messages(Struct, rename="pascal"):
    """A page of messages."""

    messages: list[Raw] = []
    next_token: str | None = None


class Sent(Struct, rename="pascal"):
    """The answer to a send."""

    message_id: str


class Sources(Struct, rename="camel"):
    """The queues whose dead letters go to a queue."""

    queue_urls: list[str] = []


class Tagged(Struct, rename="pascal"):
    """The tags of a queue."""

    tags: dict[str, str] = {}


class Handled(Struct, rename="pascal"):
    """The answer to deletions of messages."""

    failed: list[dict[str, Any]] = []


_ORDERS: dict[Sort, Callable[[Overview], float]] = {
    Sort.visible: lambda each: -each.visible,
    Sort.in_flight: lambda each: -each.in_flight,
    Sort.delayed: lambda each: -each.delayed,
    Sort.age: lambda each: -each.oldest_seconds,
}

queues = typer.Typer(
    name="sqs",
    help="Queues of SQS: list, show, create, configure, delete, purge; send, peek, receive, ack.",
    no_args_is_help=True,
)


@queues.callback()
def _queues() -> None:
    """Queues of SQS: list, show, create, configure, delete, purge; send, peek, receive, ack."""


# ---------------------------------------------------------------- queues


@queues.command("list")
@on_server
def list_(
    server: Server,
    sort: Annotated[
        Sort, typer.Option(help="Order: by name, the largest number of these first, or age: the oldest message first.")
    ] = Sort.name,
    search: Search = None,
    limit: Most = None,
    json: Json = False,
) -> None:
    """List queues of SQS with their messages, by name.

    --json prints an array.
    """
    found = list(_every(Sqs(server), search, limit if sort is Sort.name else None))
    if sort in _ORDERS:
        found = sorted(found, key=lambda raw: _ORDERS[sort](_overview(raw)))[:limit]
    if json:
        showing.document(found)
        return
    numbers = ("visible", "in flight", "delayed", "sent", "received", "deleted")
    made = showing.Listing("queue", *numbers, "oldest", "dead letters to", right=(*numbers, "oldest"))
    for each in map(_overview, found):
        counts = (each.visible, each.in_flight, each.delayed, each.sent, each.received, each.deleted)
        made.add(each.queue_name, *counts, showing.duration(each.oldest_seconds), each.dead_letter_queue)
    if found:
        made.show()
    else:
        err.print("no queues", style="dim")


def _overview(raw: Raw) -> Overview:
    return msgspec.json.decode(raw, type=Overview)


def _every(sqs: Sqs, search: str | None, limit: int | None = None) -> Iterator[Raw]:
    token, left = None, limit
    while left is None or left > 0:
        page = sqs.call(
            Queues, "Queen.ListQueues", Search=search, NextToken=token, MaxResults=min(_PAGE, left or _PAGE)
        )
        yield from page.queues
        left = None if left is None else left - len(page.queues)
        token = page.next_token
        if token is None:
            return


@queues.command("show")
@on_server
def show(server: Server, queue: Queue, json: Json = False) -> None:
    """Show a queue with its attributes, messages, tags, and the queues whose dead letters it gets.

    --json prints an object.
    """
    sqs = Sqs(server)
    found = sqs.attributes(queue)
    tags = msgspec.json.decode(sqs.on(queue, "ListQueueTags"), type=Tagged).tags
    sources = msgspec.json.decode(sqs.on(queue, "ListDeadLetterSourceQueues"), type=Sources).queue_urls
    if json:
        facts = {"QueueName": queue, "Attributes": found, "Tags": tags, "DeadLetterSourceQueues": sources}
        showing.document(facts)
        return
    overview = next((each for each in map(_overview, _every(sqs, queue)) if each.queue_name == queue), None)
    showing.record(
        ("queue", queue),
        *((name, _shown(name, value)) for name, value in sorted(found.items())),
        *((f"tag {name}", value) for name, value in sorted(tags.items())),
        ("dead letters of", ", ".join(map(name_of, sources)) or "no queue"),
        *(_counters(overview) if overview is not None else ()),
    )


def _shown(name: str, value: str) -> str:
    return showing.local_ms(int(value) * 1000) if name.endswith("Timestamp") else value


def _counters(found: Overview) -> Sequence[tuple[str, str | int]]:
    return (
        ("oldest message", showing.duration(found.oldest_seconds)),
        ("sent", found.sent),
        ("received", found.received),
        ("empty receives", found.empty_receives),
        ("deleted", found.deleted),
        ("dead letters", found.dead_lettered),
    )


@queues.command("create")
@on_server
def create(
    server: Server,
    queue: Queue,
    attribute: Attributes = None,
    tag: Tags = None,
    dead_letters: DeadLetters = None,
    max_receives: MaxReceives = None,
    json: Json = False,
) -> None:
    """Create a queue of SQS; a FIFO queue, if its name ends with .fifo.

    --json prints the server's answer.
    """
    sqs = Sqs(server)
    if queue in sqs.names(queue):
        raise FailedError(f"there is a queue {clean(queue)} already: `queen sqs configure` changes its attributes")
    given = attributes(sqs, attribute, dead_letters, max_receives)
    if queue.endswith(_FIFO):
        given = {"FifoQueue": "true", **given}
    answer = sqs.call(Raw, "CreateQueue", QueueName=queue, Attributes=given, tags=pairs(tag, "--tag") or None)
    if json:
        showing.document(answer)
    else:
        showing.say(f"{queue} created: `queen sqs show` shows its attributes")


@queues.command("configure")
@on_server
def configure(
    server: Server,
    queue: Queue,
    attribute: Attributes = None,
    tag: Tags = None,
    untag: Annotated[
        list[str] | None, typer.Option(help="A tag to remove; may be repeated.", show_default=False)
    ] = None,
    dead_letters: DeadLetters = None,
    max_receives: MaxReceives = None,
    json: Json = False,
) -> None:
    """Change attributes and tags of a queue; the others stay. An empty value removes a policy.

    --json prints the attributes.
    """
    sqs = Sqs(server)
    given, tags = attributes(sqs, attribute, dead_letters, max_receives), pairs(tag, "--tag")
    if not given and not tags and not untag:
        raise UsageError("nothing to change: give at least one option, such as -a VisibilityTimeout=60")
    if given:
        sqs.on(queue, "SetQueueAttributes", Attributes=given)
    if tags:
        sqs.on(queue, "TagQueue", Tags=tags)
    if untag:
        sqs.on(queue, "UntagQueue", TagKeys=untag)
    if json:
        showing.document(sqs.attributes(queue))
    else:
        showing.say(f"{queue} is configured: `queen sqs show` shows its attributes")


@queues.command("delete")
@on_server
def delete(server: Server, queue: Queue, yes: Yes = False, json: Json = False) -> None:
    """Delete a queue with its messages. This cannot be undone.

    --json prints the server's answer.
    """
    _remove(server, queue, "DeleteQueue", f"Delete the queue {clean(queue)} with", "deleted", yes=yes, json=json)


@queues.command("purge")
@on_server
def purge(server: Server, queue: Queue, yes: Yes = False, json: Json = False) -> None:
    """Delete the messages of a queue, at most once a minute. This cannot be undone.

    --json prints the server's answer.
    """
    _remove(server, queue, "PurgeQueue", f"Purge the queue {clean(queue)} with", "purged", yes=yes, json=json)


def _remove(server: Server, queue: str, action: str, question: str, done: str, *, yes: bool, json: bool) -> None:
    sqs = Sqs(server)
    found = sqs.attributes(queue)
    names = ("", "NotVisible", "Delayed")
    total = sum(int(found[f"ApproximateNumberOfMessages{name}"]) for name in names)
    confirm(f"{question} {counted(total, 'message')}? This cannot be undone.", yes=yes)
    answer = sqs.on(queue, action)
    if json:
        showing.document(answer)
    else:
        showing.say(f"{queue} {done}")


# ---------------------------------------------------------------- messages


@queues.command("send")
@on_server
def send(
    server: Server,
    queue: Queue,
    body: Annotated[
        str, typer.Argument(help="The message; - reads standard input.", metavar="BODY", show_default=False)
    ],
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Message group, in a FIFO queue.", show_default=False)
    ] = None,
    deduplication_id: Annotated[
        str | None, typer.Option(help="Deduplication id, in a FIFO queue.", show_default=False)
    ] = None,
    delay: Annotated[
        int | None, typer.Option(help="Seconds until it is visible.", min=0, max=900, show_default="the queue's")
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute", "-a", help="A message attribute, a text; may be repeated.", metavar="NAME=VALUE",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Send a message.

    --json prints the server's answer.
    """
    answer = Sqs(server).on(
        queue,
        "SendMessage",
        MessageBody=sys.stdin.read() if body == "-" else body,
        MessageGroupId=group,
        MessageDeduplicationId=deduplication_id,
        DelaySeconds=delay,
        MessageAttributes={
            name: {"DataType": "String", "StringValue": value}
            for name, value in pairs(attribute, "--attribute").items()
        },
    )
    if json:
        showing.document(answer)
    else:
        showing.say(f"sent {msgspec.json.decode(answer, type=Sent).message_id}")


@queues.command("peek")
@on_server
def peek(
    server: Server,
    queue: Queue,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum to show.", min=1, max=1_000_000)] = 10,
    json: Json = False,
) -> None:
    """Show the oldest messages of a queue in any state. Receives none of them.

    --json prints an array.
    """
    sqs = Sqs(server)
    found: list[Raw] = []
    token = None
    while len(found) < limit:
        answer = sqs.on(queue, "Queen.PeekMessages", MaxResults=min(_PAGE, limit - len(found)), NextToken=token)
        page = msgspec.json.decode(answer, type=Messages)
        found += page.messages
        token = page.next_token
        if token is None:
            break
    _show(found, json=json)


@queues.command("receive")
@on_server
def receive(
    server: Server,
    queue: Queue,
    batch: Annotated[
        int, typer.Option("--batch", "-n", help="Maximum of messages.", min=1, max=_RECEIVED_MAX)
    ] = 1,
    wait: Annotated[
        int | None,
        typer.Option(
            "--wait", "-w", help="Seconds to wait for a message.", min=0, max=_WAIT_S_MAX, show_default="the queue's"
        ),
    ] = None,
    visibility: Annotated[
        int | None,
        typer.Option(
            help="Seconds for which the messages are hidden from others.", min=0, max=43_200,
            show_default="the queue's",
        ),
    ] = None,
    auto_ack: Annotated[bool, typer.Option("--auto-ack", help="Delete the messages, once they are received.")] = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Receive messages of a queue. They are hidden until `queen sqs ack`, or for their visibility timeout.

    --json prints an array; [] if there are none.
    """
    sqs = Sqs(server)
    with sqs.knowing(queue):
        page = sqs.call(
            Messages,
            "ReceiveMessage",
            wait_s=_WAIT_S_MAX,
            QueueUrl=queue,
            MaxNumberOfMessages=batch,
            WaitTimeSeconds=wait,
            VisibilityTimeout=visibility,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
    _show(page.messages, json=json)
    handles = [msgspec.json.decode(raw, type=Message).receipt_handle for raw in page.messages]
    if auto_ack and handles:
        _delete(sqs, queue, handles)
    elif handles and not json:
        err.print(f"queen sqs ack {clean(queue)} {' '.join(handles)}", style="dim", markup=False)


def _show(messages: Sequence[Raw], *, json: bool) -> None:
    if json:
        showing.document(list(messages))
        return
    if not messages:
        err.print("no messages", style="dim")
        return
    made = showing.Listing("id", "state", "sent", "receives", "group", "body", right=("receives",))
    for each in (msgspec.json.decode(raw, type=Message) for raw in messages):
        facts = each.attributes
        made.add(
            each.message_id, each.state or "received", showing.local_ms(int(facts.get("SentTimestamp", "0"))),
            facts.get("ApproximateReceiveCount"), facts.get("MessageGroupId"),
            each.problem if each.body is None else showing.cut(each.body),
        )  # fmt: skip
    made.show()


@queues.command("ack")
@on_server
def ack(
    server: Server,
    queue: Queue,
    handles: Annotated[
        list[str],
        typer.Argument(help="Receipt handles, from `queen sqs receive`.", metavar="HANDLE...", show_default=False),
    ],
    json: Json = False,
) -> None:
    """Delete messages that were received.

    --json prints the number of deleted messages.
    """
    _delete(Sqs(server), queue, handles)
    if json:
        showing.document({"deleted": len(handles)})
    else:
        showing.say(f"{counted(len(handles), 'message')} deleted")


def _delete(sqs: Sqs, queue: str, handles: Sequence[str]) -> None:
    for start in range(0, len(handles), _HANDLES_MAX):
        portion = handles[start : start + _HANDLES_MAX]
        entries = [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(portion)]
        answer = msgspec.json.decode(sqs.on(queue, "DeleteMessageBatch", Entries=entries), type=Handled)
        if answer.failed:
            first = answer.failed[0]
            raise FailedError(
                f"{counted(len(answer.failed), 'message')} of {len(portion)} not deleted: {first.get('Message')}"
            )
