"""``queen.worker`` on a real server: functions that work on messages, and ``queen worker``, which runs them."""

import asyncio
import json
import re
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from queen.worker import Client, Message, Next, RefusedError, Reject, Retry, SocketClient, Worker, run, tracing
from tests.support.api import Api
from tests.support.chaos.proxy import Proxy
from tests.support.clock import eventually
from tests.support.processes import PATIENCE_S, PYTHON, ROOT, Server, clean_environment, free_port
from tests.support.processes import run as command


class Mail(msgspec.Struct):
    to: str


Working = Callable[[Server, Worker], AbstractAsyncContextManager[Client]]


@pytest.fixture(params=["http", "websocket"])
def working(request: pytest.FixtureRequest) -> Working:
    """The worker at work over either, for a block."""
    return partial(_working, request.param == "websocket")


@asynccontextmanager
async def _working(websocket: bool, server: Server, worker: Worker) -> AsyncIterator[Client]:
    stop, url = asyncio.Event(), f"http://127.0.0.1:{server.port}"
    async with SocketClient(worker, stop, url) if websocket else Client(url) as client:
        it = asyncio.create_task(run(worker, client, stop))
        try:
            yield client
        finally:
            stop.set()
            await asyncio.wait_for(it, PATIENCE_S)


async def test_sync_and_async_functions_get_payloads_in_their_type(
    working: Working, server: Server, queue: str
) -> None:
    worker = Worker()
    seen: list[tuple[object, ...]] = []

    @worker.task(queue=f"{queue}-a")
    async def send(mail: Mail, message: Message) -> None:
        seen.append((mail.to, message.queue, message.attempt, message.headers))

    @worker.task(queue=f"{queue}-b")
    def count(number: int) -> None:
        seen.append((number, threading.current_thread().name.startswith("queen-task")))

    assert count.queue == f"{queue}-b"
    count(1)
    assert seen.pop() == (1, False), "a task is still a function"
    async with working(server, worker) as client:
        await send.push({"to": "ann"}, headers={"a": "b"}, client=client)
        await count.push(2, client=client)
        assert await eventually(lambda: _when(len(seen) == 2), "both messages")
    assert sorted(seen, key=str) == sorted([("ann", f"{queue}-a", 1, {"a": "b"}), (2, True)], key=str)


async def _when(condition: bool) -> bool:
    return condition


async def test_failures_are_repeated_and_then_dead_letters(
    working: Working, server: Server, api: Api, queue: str
) -> None:
    worker, calls, done = Worker(), Counter[Any](), []

    @worker.task(queue=queue, retries=2)
    async def handle(mail: Mail) -> None:
        calls[mail.to] += 1
        if mail.to == "fails":
            raise RuntimeError("no route")
        if mail.to == "refused":
            raise Reject("unknown address")
        if mail.to == "later" and calls["later"] < 5:
            raise Retry
        done.append(mail.to)

    await api.configure(queue, leaseTime=77)
    await api.push(queue, {"to": "fails"}, {"to": "refused"}, {"no": 1}, {"to": "later"}, {"to": "last"})
    async with working(server, worker):
        assert await eventually(lambda: _when("last" in done), "the last message")
    # One partition is in order, whatever happens to its messages.
    assert done == ["later", "last"]
    assert calls == {"fails": 3, "refused": 1, "later": 5, "last": 1}
    letters = (await api.http.get("/api/v1/dlq", params={"queue": queue})).json()["messages"]
    texts = sorted(each["errorMessage"] for each in letters)
    assert texts[0] == "RuntimeError: no route"
    assert texts[1].startswith("the payload does not fit")
    assert texts[2] == "unknown address"
    options = (await api.http.get("/api/v1/configure", params={"queue": queue})).json()["options"]
    assert (options["retryLimit"], options["leaseTime"]) == (2, 77)


async def test_partitions_go_on_together_and_each_in_order(
    working: Working, server: Server, api: Api, queue: str
) -> None:
    worker, seen, both = Worker(), [], asyncio.Barrier(2)

    @worker.task(queue=queue, concurrency=2)
    async def handle(item: list[Any]) -> None:
        if item[1] == 0:
            await both.wait()
        seen.append(item)

    for partition in ("a", "b"):
        await api.push(queue, *[[partition, number] for number in range(20)], partition=partition)
    async with working(server, worker):
        assert await eventually(lambda: _when(len(seen) == 40), "all messages")
    for partition in ("a", "b"):
        assert [number for name, number in seen if name == partition] == list(range(20))


async def test_a_lease_is_extended_while_a_function_runs(
    working: Working, server: Server, api: Api, queue: str
) -> None:
    worker, calls, gate = Worker(), [], asyncio.Event()

    @worker.task(queue=queue, lease_s=1, concurrency=2)
    async def handle(number: int) -> None:
        calls.append(number)
        await gate.wait()

    await api.push(queue, 1)
    async with working(server, worker):
        assert await eventually(lambda: _when(bool(calls)), "the message")
        # A pop of somebody else would get it when the lease of a second ended.
        assert (await api.pop(queue, wait=True, timeout=3000)).data == []
        gate.set()
    assert calls == [1]


async def test_middleware_surrounds_each_call(working: Working, server: Server, api: Api, queue: str) -> None:
    seen = []

    def named(name: str) -> Any:
        async def middleware(message: Message, call: Next) -> object:
            seen.append(f"{name} {message.task.rpartition('.')[2]}")
            try:
                return await call(message)
            finally:
                seen.append(f"/{name}")

        return middleware

    worker = Worker([named("outer"), named("inner")])

    @worker.task(queue=queue)
    async def handle(_payload: object) -> None:
        seen.append("call")

    await api.push(queue, 1)
    async with working(server, worker):
        assert await eventually(lambda: _when("/outer" in seen), "the message")
    assert seen == ["outer handle", "inner handle", "call", "/inner", "/outer"]


async def test_a_span_is_linked_to_the_push(server: Server, queue: str) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing._tracer = provider.get_tracer("test")
    context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    message = Message(queue, "p", "1", "t", b"1", {}, 1, context, "task")

    async def call(_message: Message) -> str:
        return str(trace.get_current_span().get_span_context().is_valid)

    assert await tracing.traced(message, call) == "True"
    [span] = exporter.get_finished_spans()
    assert (span.name, span.kind.name) == (f"process {queue}", "CONSUMER")
    assert [format(link.context.trace_id, "032x") for link in span.links] == [context.split("-")[1]]


@pytest.mark.parametrize("websocket", [False, True])
async def test_what_a_server_refuses_ends_it(server: Server, queue: str, websocket: bool) -> None:
    worker, stop, url = Worker(), asyncio.Event(), f"http://127.0.0.1:{server.port}"

    @worker.task(queue=queue, lease_s=2**31)
    async def handle(_payload: object) -> None:
        """Never called."""

    async with SocketClient(worker, stop, url) if websocket else Client(url) as client:
        with pytest.raises(RefusedError, match="answered 400"):
            await asyncio.wait_for(run(worker, client, stop), PATIENCE_S)


async def test_a_worker_connects_again_and_its_messages_come_again(server: Server, api: Api, queue: str) -> None:
    """The end of a socket ends its leases: what was being worked on is delivered again at once."""
    worker, stop, gate = Worker(), asyncio.Event(), asyncio.Event()
    calls = Counter[int]()

    @worker.task(queue=queue, concurrency=2)
    async def handle(number: int) -> None:
        calls[number] += 1
        if calls[1] == 1:
            await gate.wait()

    await api.push(queue, 1, 2)
    proxy = Proxy(lambda: asyncio.open_connection("127.0.0.1", server.port), 0)
    await proxy.start()
    async with SocketClient(worker, stop, f"http://127.0.0.1:{proxy.port}") as client:
        it = asyncio.create_task(run(worker, client, stop))
        await eventually(lambda: _when(calls[1] == 1), "the first delivery", PATIENCE_S)
        proxy.reset()
        await eventually(lambda: _when(calls[1] == 2 and calls[2] == 1), "the second one", PATIENCE_S)
        gate.set()
        await api.push(queue, 3)
        await eventually(lambda: _when(calls[3] == 1), "what comes later", PATIENCE_S)
        stop.set()
        await asyncio.wait_for(it, PATIENCE_S)
    await proxy.stop()
    assert calls == {1: 2, 2: 1, 3: 1}
    assert (await api.pop(queue)).data == []


def test_a_declaration_that_cannot_work_is_refused() -> None:
    worker = Worker()
    with pytest.raises(TypeError, match="one parameter for the payload"):

        @worker.task(queue="q")
        def two(_a: int, _b: int) -> None: ...

    with pytest.raises(ValueError, match="at least 1"):
        worker.task(queue="q", concurrency=0)

    @worker.task(queue="q", retries=1)
    def first(_a: int) -> None: ...

    for options, words in (({}, "take each other's messages"), ({"group": "g", "retries": 2}, "different retries")):
        with pytest.raises(ValueError, match=words):

            @worker.task(queue="q", **options)  # type: ignore[arg-type]
            def second(_a: int) -> None: ...


def _marks(folder: Path) -> set[str]:
    return {each.name for each in folder.glob("*-*")}


def test_the_example_of_the_guide_is_a_worker() -> None:
    example = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "worker.md").read_text(), re.DOTALL)[0]
    names: dict[str, Any] = {"__name__": "shop"}
    exec(example, names)
    assert [(task.name, task.queue, task.concurrency) for task in names["worker"].tasks] == [
        ("shop.send", "emails", 1), ("shop.shrink", "pictures", 4),
    ]  # fmt: skip


PROGRAM = """
import time
from pathlib import Path
from queen.worker import Worker

worker = Worker()
here = Path(__file__).parent

@worker.task(queue="{queue}")
def slow(number: int) -> None:
    (here / f"begun-{{number}}").touch()
    while not (here / "go").exists():
        time.sleep(0.01)
    (here / f"done-{{number}}").touch()
"""


@pytest.mark.parametrize("options", [[], ["--websocket"]])
async def test_queen_worker_finishes_what_it_works_on_and_releases_the_rest(
    server: Server, api: Api, queue: str, tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM.format(queue=queue))
    await api.push(queue, 1, 2, 3)
    environment = clean_environment(QUEEN_URL=f"http://127.0.0.1:{server.port}", PYTHONPATH=str(ROOT))
    with subprocess.Popen(  # noqa: ASYNC220 - its start does not wait
        [*PYTHON, "worker", "shop:worker", *options], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        await eventually(lambda: _when((tmp_path / "begun-1").exists()), "the first message", PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert "slow works on" in process.stderr.readline()
        assert "stopping" in process.stderr.readline()
        (tmp_path / "go").touch()
        assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
    assert _marks(tmp_path) == {"begun-1", "done-1"}
    # The others are delivered again at once.
    assert (await api.pop(queue, batch=9)).data == [2, 3]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("nowhere:worker", "No module named 'nowhere'"),
        ("json", "write MODULE:NAME"),
        ("json:worker", "has no worker"),
        ("json:loads", "is no queen.worker.Worker with tasks"),
    ],
)
def test_a_worker_that_is_not_there_is_a_usage_error(place: str, words: str) -> None:
    done = command("worker", place, QUEEN_URL=f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert words in line
    assert json.dumps(line)
