"""What a program declares: a worker, its tasks, and middleware around them."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, get_type_hints

import msgspec

from queen.worker.client import Client, Popped

P = ParamSpec("P")
R = TypeVar("R")

Next = Callable[["Message"], Awaitable[object]]
Middleware = Callable[["Message", Next], Awaitable[object]]
Handler = Callable[..., object]


class Retry(Exception):  # noqa: N818 - not an error: what a task asks for
    """The message is delivered again at once, and this is no failure."""


class Reject(Exception):  # noqa: N818 - as above
    """The message becomes a dead letter now, with this text."""


class Message(msgspec.Struct, frozen=True):
    """A message of a task, for middleware and for a task with a parameter of this type.

    Attributes:
        queue, partition: where it is.
        payload: as JSON.
        attempt: 1 at its first delivery.
    """

    queue: str
    partition: str
    id: str
    transaction_id: str
    payload: bytes
    headers: dict[str, str]
    attempt: int
    traceparent: str
    task: str

    @classmethod
    def of(cls, task: "Task[..., Any]", popped: Popped) -> "Message":
        """A delivered message for a task."""
        return cls(
            task.queue, popped.partition, popped.id, popped.transaction_id, bytes(popped.data), popped.headers,
            popped.delivery_attempt, popped.traceparent, task.name,
        )  # fmt: skip


class Task(Generic[P, R]):
    """A function that works on the messages of a queue. Calling it calls the function.

    Args:
        function: takes the payload, in the type of its first parameter, and the Message if a parameter has this type.
        queue: whose messages it works on.
        group: consumer group; ``None``: queue mode.
        retries: failures of a message before it becomes a dead letter; ``None``: the queue's option.
        concurrency: partitions that it works on at a time; one message each.
        batch: messages of a partition that are fetched at once.
        lease_s: lease time; the lease is extended while a message is worked on.
    """

    def __init__(
        self,
        function: Callable[P, R],
        queue: str,
        group: str | None,
        retries: int | None,
        concurrency: int,
        batch: int,
        lease_s: int,
    ) -> None:
        self.function, self.queue, self.group, self.retries = function, queue, group, retries
        self.concurrency, self.batch, self.lease_s = concurrency, batch, lease_s
        self.name = f"{function.__module__}.{function.__qualname__}"
        self.__doc__ = function.__doc__
        hints = get_type_hints(function)
        names = [each.name for each in inspect.signature(function).parameters.values()]
        self._of_message = [name for name in names if hints.get(name) is Message]
        payload = [name for name in names if name not in self._of_message]
        if len(payload) != 1:
            raise TypeError(f"{self.name} must have one parameter for the payload, and may have one for the Message")
        [self._of_payload] = payload
        self._decoder = msgspec.json.Decoder(hints.get(self._of_payload, Any))

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Calls the function here and now, without a message."""
        return self.function(*arguments, **named)

    async def push(
        self,
        payload: object,
        *,
        partition: str | None = None,
        transaction_id: str | None = None,
        delay_s: float | None = None,
        headers: dict[str, str] | None = None,
        client: Client | None = None,
    ) -> None:
        """Pushes a message for the task; a partition keeps its messages in order."""
        item = {
            "partition": partition, "transactionId": transaction_id, "delaySeconds": delay_s, "headers": headers,
        }  # fmt: skip
        if client is not None:
            await client.push(self.queue, payload, **item)
            return
        async with Client() as own:
            await own.push(self.queue, payload, **item)

    def push_now(self, payload: object, **options: Any) -> None:  # noqa: ANN401 - those of push
        """The same for a program without an event loop."""
        asyncio.run(self.push(payload, **options))

    async def work(self, message: Message, threads: Executor) -> object:
        """Calls the function with a message; a function that is not async is called in a thread.

        Raises:
            Reject: the payload does not have the type of the parameter.
        """
        try:
            payload = self._decoder.decode(message.payload)
        except msgspec.DecodeError as problem:
            raise Reject(f"the payload does not fit {self.name}: {problem}") from None
        # The signature was looked at when the task was declared.
        function: Callable[..., Any] = self.function
        call = partial(function, **{self._of_payload: payload}, **dict.fromkeys(self._of_message, message))
        if inspect.iscoroutinefunction(function):
            return await call()
        return await asyncio.get_running_loop().run_in_executor(threads, call)


class Worker:
    """The tasks of a program, and what surrounds each of their calls.

    Args:
        middleware: the first is the outermost.
    """

    def __init__(self, middleware: Sequence[Middleware] = ()) -> None:
        self.tasks: list[Task[..., Any]] = []
        self.middleware = list(middleware)

    def task(
        self,
        *,
        queue: str,
        group: str | None = None,
        retries: int | None = None,
        concurrency: int = 1,
        batch: int = 10,
        lease_s: int = 60,
    ) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Makes a function a task: see :class:`Task`."""
        if concurrency < 1 or batch < 1 or lease_s < 1:
            raise ValueError("concurrency, batch and lease_s must be at least 1")

        def declare(function: Callable[P, R]) -> Task[P, R]:
            made = Task(function, queue, group, retries, concurrency, batch, lease_s)
            for other in self.tasks:
                if (other.queue, other.group) == (queue, group):
                    raise ValueError(f"{other.name} and {made.name} would take each other's messages: give one a group")
                if other.queue == queue and retries is not None and other.retries not in (None, retries):
                    raise ValueError(f"{other.name} and {made.name} want different retries of the queue {queue}")
            self.tasks.append(made)
            return made

        return declare

    async def handle(self, task: Task[..., Any], message: Message, threads: Executor) -> None:
        """Calls a task with a message, inside the middleware."""
        call: Next = partial(_worked, task, threads)
        for each in reversed(self.middleware):
            call = partial(_surrounded, each, call)
        await call(message)


async def _worked(task: Task[..., Any], threads: Executor, message: Message) -> object:
    return await task.work(message, threads)


async def _surrounded(middleware: Middleware, call: Next, message: Message) -> object:
    return await middleware(message, call)
