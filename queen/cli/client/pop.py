"""``queen pop``: pops messages of a queue."""

import shlex
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Annotated

import msgspec
import typer
from msgspec import Raw, Struct

from queen.cli.client import showing
from queen.cli.client.connection import ANSWER_S, Parameters, Server, at
from queen.cli.client.names import exists, unknown_queue
from queen.cli.client.options import ForGroup, OfPartition, Queue, moment
from queen.cli.client.server import on_server
from queen.cli.errors import UsageError
from queen.cli.output import Json, err

_WAIT_S = 30.0


class Message(Struct, rename="camel"):
    """A delivered message, with the fields that are shown."""

    transaction_id: str
    partition_id: str
    partition: str
    lease_id: str
    consumer_group: str
    data: Raw
    created_at: str
    offset: int
    delivery_attempt: int
    error: str = ""


class Popped(Struct):
    """The answer to a pop."""

    messages: list[Raw]


@on_server
def pop(
    server: Server,
    queue: Queue,
    partition: OfPartition = None,
    group: ForGroup = None,
    batch: Annotated[int, typer.Option("--batch", "-n", help="Maximum of messages.", min=1, max=10_000)] = 1,
    partitions: Annotated[
        int | None, typer.Option(help="Maximum of partitions to take them from.", min=1, max=1000, show_default="1")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until there is a message (long poll).")] = False,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait, with --wait.", min=0.001, max=3600, show_default="30")
    ] = None,
    auto_ack: Annotated[bool, typer.Option("--auto-ack", help="Acknowledge the messages on delivery.")] = False,
    lease: Annotated[int | None, typer.Option(help="Lease time in seconds.", min=1, show_default="the queue's")] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Where a new group starts: beginning, now, a time, or 15m for 15 minutes ago.",
            show_default="beginning",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Pop messages of a queue. They are leased until `queen ack`, or until the lease expires.

    --json prints an array of messages, which `queen ack` can read; [] if there are none.
    """  # fmt: skip
    waits = _wait_s(timeout, wait=wait)
    parameters: Parameters = {
        "consumerGroup": group,
        "batch": batch,
        "partitions": partitions,
        "wait": wait or None,
        "timeout": round(waits * 1000) or None,
        "autoAck": auto_ack or None,
        "leaseSeconds": lease,
        **_start(start),
    }
    path = at("/api/v1/pop/queue/{}", queue) + (at("/partition/{}", partition) if partition is not None else "")
    answer = server.send("GET", path, parameters, timeout_s=waits + ANSWER_S)
    messages = server.decoded(Popped, answer).messages if answer.content else []
    if json:
        showing.document(messages)
    elif messages:
        _show([msgspec.json.decode(each, type=Message) for each in messages], leased=not auto_ack)
    else:
        missing = "" if exists(server, queue) else f": {unknown_queue(server, queue)}"
        err.print(f"no messages{missing}", style="dim", markup=False)


def _wait_s(timeout: float | None, *, wait: bool) -> float:
    if timeout is not None and not wait:
        raise UsageError("--timeout needs --wait")
    return (_WAIT_S if timeout is None else timeout) if wait else 0.0


def _start(start: str | None) -> Parameters:
    if start is None:
        return {}
    if start == "beginning":
        return {"subscriptionMode": "all"}
    return {"subscriptionFrom": moment(start)}


def _show(messages: Sequence[Message], *, leased: bool) -> None:
    made = showing.Listing(
        "partition", "offset", "pushed", "attempt", "transaction id", "payload", right=("offset", "attempt")
    )
    for each in messages:
        text = each.error or showing.payload(each.data)
        made.add(
            each.partition,
            each.offset,
            showing.local(each.created_at),
            each.delivery_attempt,
            each.transaction_id,
            text,
        )
    made.show()
    if leased:
        for command in _acks(each for each in messages if not each.error):
            err.print(command, style="dim", markup=False)


def _acks(messages: Iterable[Message]) -> Iterable[str]:
    """The commands to acknowledge them, one per partition."""
    for partition_id, run in groupby(messages, lambda each: each.partition_id):
        members = list(run)
        words = [
            "queen",
            "ack",
            partition_id,
            *[each.transaction_id for each in members],
            "--lease",
            members[0].lease_id,
        ]
        group = members[0].consumer_group
        words += ["--group", group] if group != "__QUEUE_MODE__" else []
        yield shlex.join(showing.clean(word) for word in words)
