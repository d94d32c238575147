"""Servers of SQS side by side: which actions they answer, rates, and memory with many messages."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

from msgspec import Struct
from typer import Option

from bench.load import auditing
from bench.load.target import started
from bench.meter import family, found, memory_bytes
from bench.scenario import MismatchError, Progress, Sample, Scenario, in_turn
from bench.sqs_client import RefusedError, SqsConnection
from bench.sqs_load import record
from queen.core.errors import QueenError

_BATCH = 10
_BODY = "x" * 100
_MIB = 1 << 20
_FILL_S = 30.0
_SIDE = re.compile(r"(?:(\w[\w.-]*)=)?(https?://\S+?)(?:@([0-9]+))?")
#: What a server answers that does not know an action, or fails at it.
_UNKNOWN = frozenset(
    {"UnknownOperationException", "InvalidAction", "NotImplemented", "InternalFailure", "404", "500", "501"}
)


class Settings(Struct, frozen=True):
    """The sizes."""

    url: Annotated[
        tuple[str, ...],
        Option(
            help="Endpoint, as NAME=URL or URL; with @PID behind it the memory of that process is measured. Without "
            "any a server of this installation is started."
        ),
    ] = ()
    connections: Annotated[tuple[int, ...], Option(help="Numbers of connections.", min=1)] = (1, 10, 50)
    seconds: Annotated[float, Option(help="Of each measurement of a rate.", min=0.1)] = 10.0
    messages: Annotated[int, Option(help="Messages in the queue when memory is measured.", min=10)] = 100_000
    journal: Annotated[
        Path | None,
        Option(help="New folder for the journals of a load on a standard and a FIFO queue, which are then audited."),
    ] = None
    load_s: Annotated[float, Option(help="Seconds of that load, for each queue.", min=0.1)] = 10.0
    runs: Annotated[int, Option(help="Number of runs.", min=1)] = 1


class _Side(Struct, frozen=True):
    """A server: its name in the report, its endpoint, and the id of its process, if memory is measured."""

    name: str
    url: str
    pid: int | None


def _side(text: str) -> _Side:
    parts = _SIDE.fullmatch(text)
    if parts is None:
        raise BadEndpointError(f"--url {text!r} is not an endpoint: write it like queen=http://127.0.0.1:6632/sqs@4711")
    name, url, pid = parts.groups()
    return _Side(name or url, url, int(pid) if pid else None)


class BadEndpointError(QueenError):
    """A URL has the wrong form."""

    code = "bench_endpoint"


def measure(_dsn: str, settings: Settings, progress: Progress) -> Iterator[Sample]:
    """The actions of each side; then rates in turns, and memory."""
    if settings.url:
        yield from _measured([_side(each) for each in settings.url], settings, progress)
        return
    with started(None, 2) as server:
        yield from _measured([_Side("queen", f"{server.url}/sqs", server.pid)], settings, progress)


def _measured(sides: Sequence[_Side], settings: Settings, progress: Progress) -> Iterator[Sample]:
    for side in sides:
        yield from _judged(side, settings, progress)
    for run in range(settings.runs):
        turns = in_turn(tuple(sides), run)
        cases = [(number, batch) for batch in (1, _BATCH) for number in settings.connections]
        for step, (number, batch) in enumerate(cases):
            case = f"{number} connections, {'batches of 10' if batch > 1 else 'single messages'}"
            for side in turns:
                progress(f"{side.name}: {case}", step / len(cases))
                yield Sample(case, side.name, run, _rates(side.url, number, batch, settings.seconds))
        for side in (each for each in turns if each.pid is not None):
            progress(f"{side.name}: memory", 1.0)
            yield Sample(_MEMORY, side.name, run, _memory(side, settings.messages))


def _judged(side: _Side, settings: Settings, progress: Progress) -> Iterator[Sample]:
    """Which actions it carries out, and what the journal of a load says."""
    progress(f"{side.name}: actions", 0.0)
    with SqsConnection(side.url) as sqs:
        yield Sample(_ACTIONS, side.name, 0, {action: float(done) for action, done in actions_of(sqs).items()})
    if settings.journal:
        folder = settings.journal / re.sub(r"[^\w.-]+", "-", side.name)
        progress(f"{side.name}: load", 0.0)
        record(side.url, settings.load_s, folder, side.name)
        report = auditing.audit(None, folder, "sqs", progress)
        found = {f"violations of {each.id}": float(each.violations) for each in report.guarantees}
        yield Sample(_AUDIT, side.name, 0, {**{name: float(rows) for name, rows in report.rows.items()}, **found})


# ---------------------------------------------------------------- actions


def actions_of(sqs: SqsConnection) -> Mapping[str, bool]:
    """Each action of SQS, and whether the server carries it out."""
    tried: dict[str, bool] = {}

    def run(action: str, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        try:
            result = sqs.call(action, **given)
        except RefusedError as problem:
            if str(problem) not in _UNKNOWN:
                raise
            tried[action] = False
            return {}
        tried.setdefault(action, True)
        return result

    name = f"bench-{uuid4().hex[:12]}"
    dead = run("CreateQueue", QueueName=f"{name}-dead")["QueueUrl"]
    arn = run("GetQueueAttributes", QueueUrl=dead, AttributeNames=["All"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = run("CreateQueue", QueueName=name)["QueueUrl"]
    run("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": policy})
    run("GetQueueUrl", QueueName=name)
    run("ListQueues", QueueNamePrefix=name)
    run("ListDeadLetterSourceQueues", QueueUrl=dead)
    run("TagQueue", QueueUrl=url, Tags={"a": "b"})
    run("ListQueueTags", QueueUrl=url)
    run("UntagQueue", QueueUrl=url, TagKeys=["a"])
    run("AddPermission", QueueUrl=url, Label="l", AWSAccountIds=["123456789012"], Actions=["SendMessage"])
    run("RemovePermission", QueueUrl=url, Label="l")
    run("SendMessage", QueueUrl=dead, MessageBody="x")
    run("SendMessageBatch", QueueUrl=dead, Entries=[{"Id": str(n), "MessageBody": "x"} for n in range(_BATCH)])
    messages = run("ReceiveMessage", QueueUrl=dead, MaxNumberOfMessages=4, WaitTimeSeconds=1)["Messages"]
    handles = [each["ReceiptHandle"] for each in messages * 4]
    run("ChangeMessageVisibility", QueueUrl=dead, ReceiptHandle=handles[0], VisibilityTimeout=60)
    entry = {"Id": "1", "ReceiptHandle": handles[1], "VisibilityTimeout": 60}
    run("ChangeMessageVisibilityBatch", QueueUrl=dead, Entries=[entry])
    run("DeleteMessage", QueueUrl=dead, ReceiptHandle=handles[2])
    run("DeleteMessageBatch", QueueUrl=dead, Entries=[{"Id": "1", "ReceiptHandle": handles[3]}])
    task = run("StartMessageMoveTask", SourceArn=arn, DestinationArn=f"{arn.removesuffix('-dead')}", **_SLOWLY)
    run("ListMessageMoveTasks", SourceArn=arn)
    if task:
        run("CancelMessageMoveTask", TaskHandle=task["TaskHandle"])
    else:
        tried["CancelMessageMoveTask"] = False
    run("PurgeQueue", QueueUrl=url)
    for each in (url, dead):
        run("DeleteQueue", QueueUrl=each)
    return tried


_SLOWLY = {"MaxNumberOfMessagesPerSecond": 1}


# ---------------------------------------------------------------- rates


def _rates(url: str, connections: int, batch: int, seconds: float) -> dict[str, float]:
    """Messages sent per second; then those of them received and deleted."""
    with SqsConnection(url) as sqs:
        queue = sqs.call("CreateQueue", QueueName=f"bench-{uuid4().hex[:12]}")["QueueUrl"]
        sent, send_s = _at_once(url, connections, lambda each: _send(each, queue, batch), seconds)
        done, take_s = _at_once(url, connections, lambda each: _take(each, queue, batch), seconds)
        sqs.call("DeleteQueue", QueueUrl=queue)
    if done > sent:
        raise MismatchError(f"{done} messages were deleted, and {sent} sent")
    return {"sent/s": sent / send_s, "received and deleted/s": done / take_s}


def _at_once(url: str, connections: int, work: Callable[[SqsConnection], int], seconds: float) -> tuple[int, float]:
    """Repeats work on so many connections, for a time or until one finds nothing; how much was done, and how long."""
    begin, stop = threading.Barrier(connections + 1), threading.Event()

    def client() -> int:
        total = 0
        with SqsConnection(url) as sqs:
            begin.wait()
            while not stop.is_set() and (number := work(sqs)):
                total += number
        stop.set()
        return total

    with ThreadPoolExecutor(connections) as threads:
        clients = [threads.submit(client) for _ in range(connections)]
        begin.wait()
        began = time.perf_counter()
        stop.wait(seconds)
        stop.set()
        total = sum(each.result() for each in clients)
        return total, time.perf_counter() - began


def _send(sqs: SqsConnection, queue: str, batch: int) -> int:
    if batch == 1:
        sqs.call("SendMessage", QueueUrl=queue, MessageBody=_BODY)
        return 1
    entries = [{"Id": str(number), "MessageBody": _BODY} for number in range(batch)]
    return len(sqs.call("SendMessageBatch", QueueUrl=queue, Entries=entries)["Successful"])


def _take(sqs: SqsConnection, queue: str, batch: int) -> int:
    found = sqs.call("ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=batch).get("Messages", [])
    if batch == 1:
        for message in found:
            sqs.call("DeleteMessage", QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return len(found)
    entries = [{"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(found)]
    return len(sqs.call("DeleteMessageBatch", QueueUrl=queue, Entries=entries)["Successful"]) if entries else 0


# ---------------------------------------------------------------- memory


def _memory(side: _Side, messages: int) -> dict[str, float]:
    """The memory of the process and its descendants before and with so many messages of 100 bytes.

    There are fewer if the server does not store them in the time.
    """
    with SqsConnection(side.url) as sqs:
        queue = sqs.call("CreateQueue", QueueName=f"bench-{uuid4().hex[:12]}")["QueueUrl"]
        before = _mib(side)
        stored, until = 0, time.monotonic() + _FILL_S
        while stored < messages and time.monotonic() < until:
            stored += _send(sqs, queue, _BATCH)
        after = _mib(side)
        sqs.call("DeleteQueue", QueueUrl=queue)
    return {"before MiB": before, "messages": float(stored), "with messages MiB": after}


def _mib(side: _Side) -> float:
    assert side.pid is not None
    return memory_bytes([each for root in found(side.pid) for each in family(root)]) / _MIB


_ACTIONS, _AUDIT, _MEMORY = "actions (1: carried out)", "load, audited", "memory"
SCENARIO = Scenario(
    name="sqs",
    about="Servers with the protocol of SQS: actions, rates, memory.",
    needs="nothing",
    measure=measure,
    settings=Settings,
    smoke={"connections": (2,), "seconds": 0.3, "messages": 100, "load_s": 1.0},
)
