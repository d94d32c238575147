"""``queen redrives``: tasks that move dead letters of SQS to a queue, or back to where they came from."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client import showing
from queen.cli.client.connection import Server
from queen.cli.client.server import on_server
from queen.cli.client.showing import clean, counted
from queen.cli.client.sqs.connection import Sqs, name_of
from queen.cli.client.sqs.options import Queue, queue_names
from queen.cli.errors import FailedError
from queen.cli.output import Json, err

_TASKS_MAX = 10


class Task(Struct, rename="pascal"):
    """A task."""

    status: str
    started_timestamp: int
    approximate_number_of_messages_moved: int
    approximate_number_of_messages_to_move: int
    task_handle: str = ""
    destination_arn: str = ""
    max_number_of_messages_per_second: int | None = None
    failure_reason: str = ""


class Tasks(Struct, rename="pascal"):
    """The latest tasks of a queue."""

    results: list[Raw] = []


class Cancelled(Struct, rename="pascal"):
    """The answer to a cancellation."""

    approximate_number_of_messages_moved: int


redrives = typer.Typer(name="redrives", help="Moves of dead letters of SQS: list, start, cancel.", no_args_is_help=True)


@redrives.callback()
def _redrives() -> None:
    """Moves of dead letters of SQS: list, start, cancel."""


@redrives.command("list")
@on_server
def list_(server: Server, queue: Queue, json: Json = False) -> None:
    """List the latest moves of messages of a dead-letter queue, newest first.

    --json prints an array.
    """
    found = _tasks(Sqs(server), queue)
    if json:
        showing.document(found)
        return
    made = showing.Listing("started", "status", "moved", "of", "per second", "to", "", right=("moved", "of"))
    for each in (msgspec.json.decode(raw, type=Task) for raw in found):
        made.add(
            showing.local_ms(each.started_timestamp), each.status.lower(), each.approximate_number_of_messages_moved,
            each.approximate_number_of_messages_to_move, each.max_number_of_messages_per_second or "unlimited",
            name_of(each.destination_arn) or "where they came from", each.failure_reason,
        )  # fmt: skip
    if found:
        made.show()
    else:
        err.print("no moves", style="dim")


def _tasks(sqs: Sqs, queue: str) -> Sequence[Raw]:
    return sqs.call(Tasks, "ListMessageMoveTasks", SourceArn=sqs.arn(queue), MaxResults=_TASKS_MAX).results


@redrives.command("start")
@on_server
def start(
    server: Server,
    queue: Queue,
    to: Annotated[
        str | None,
        typer.Option(
            help="Queue to move them to.",
            metavar="QUEUE",
            show_default="where each came from",
            autocompletion=queue_names,
        ),
    ] = None,
    per_second: Annotated[
        int | None, typer.Option(help="Maximum of messages per second.", min=1, max=500, show_default="unlimited")
    ] = None,
    json: Json = False,
) -> None:
    """Move the messages of a dead-letter queue. The server goes on by itself.

    --json prints the server's answer.
    """
    sqs = Sqs(server)
    answer = sqs.call(
        Raw,
        "StartMessageMoveTask",
        SourceArn=sqs.arn(queue),
        DestinationArn=None if to is None else sqs.arn(to),
        MaxNumberOfMessagesPerSecond=per_second,
    )
    if json:
        showing.document(answer)
    else:
        showing.say("started: `queen redrives list` shows how far it is")


@redrives.command("cancel")
@on_server
def cancel(server: Server, queue: Queue, json: Json = False) -> None:
    """Cancel the running move of a dead-letter queue. What was moved stays where it is.

    --json prints the server's answer.
    """
    sqs = Sqs(server)
    tasks = [msgspec.json.decode(raw, type=Task) for raw in _tasks(sqs, queue)]
    handle = next((each.task_handle for each in tasks if each.task_handle), None)
    if handle is None:
        raise FailedError(f"no move of {clean(queue)} is running: `queen redrives list` lists the latest")
    answer = sqs.call(Raw, "CancelMessageMoveTask", TaskHandle=handle)
    if json:
        showing.document(answer)
    else:
        moved = msgspec.json.decode(answer, type=Cancelled).approximate_number_of_messages_moved
        showing.say(f"cancelled after {counted(moved, 'message')}")
