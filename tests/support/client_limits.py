"""What a program with the published client asks that this server does not do, and what it is told.

Runs in an interpreter of its own: `python -I client_limits.py SCENARIO URL QUEUE`; the last line that it prints is
the outcome, as JSON.
"""

import asyncio
import inspect
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

import queen
from queen import Queen
from queen.builders.consume_builder import ConsumeBuilder
from queen.builders.dlq_builder import DLQBuilder
from queen.builders.push_builder import PushBuilder
from queen.builders.queue_builder import QueueBuilder
from queen.builders.transaction_builder import TransactionBuilder, TransactionQueueBuilder

Client = Any


async def told(call: Awaitable[Any]) -> list[Any]:
    """The kind of an error, its status and code; fails if there is none."""
    try:
        result = await call
    except httpx.HTTPStatusError as error:
        return [type(error).__name__, error.response.status_code, getattr(error, "code", None)]
    except Exception as error:
        return [type(error).__name__, getattr(error, "status_code", None), None]
    raise AssertionError(f"answered {result!r}")


async def families(url: str, queue: str) -> object:
    """Key-value store, locks, ephemeral queues, reads by offset."""
    async with Queen(url, retry_attempts=1) as client:
        return {
            "kv": [
                await told(client.kv.get("n", "k")),
                await told(client.kv.put("n", "k", 1, forever=True)),
                await told(client.kv.get_prefix("n", "k")),
            ],
            "locks": [await told(client.lock(queue, ttl_seconds=5).acquire()), await told(client.locks.get(queue))],
            "semaphore": await told(client.semaphore(queue, 3, ttl_seconds=5).acquire()),
            "ephemeral": [
                await told(client.ephemeral.push(queue, [{"payload": 1}])),
                await told(client.ephemeral.pop(queue)),
                await told(client.ephemeral.queues()),
                await told(client.ephemeral.depth(queue)),
            ],
            "reads": [
                await told(client.queue(queue).fetch("Default")),
                await told(client.queue(queue).changed_since()),
            ],
            "raised by the client": [
                await told(client.admin.clear_queue(queue)),
                await told(client.admin.move_message_to_dlq("p", "t")),
            ],
        }


async def riders(url: str, queue: str) -> object:
    """Transactions with guards and timers: nothing of them happens."""
    async with Queen(url, retry_attempts=1) as client:
        out = [{"data": 1}]
        refused = [
            await told(client.transaction().queue(queue).push(out).once("n", "k", forever=True).commit()),
            await told(
                client.transaction()
                .queue(queue)
                .push(out)
                .timer(queue)
                .key("t")
                .payload(1)
                .after_ms(1)
                .schedule()
                .commit()
            ),
        ]
        return {"refused": refused, "left": await client.queue(queue).wait(False).pop()}


async def conflation(url: str, queue: str) -> object:
    """A consumer that wants the last value only gets none, and nothing is leased for it."""
    async with Queen(url, retry_attempts=1) as client:
        await client.queue(queue).push([{"data": n} for n in range(3)])
        group = client.queue(queue).group("g").subscription_mode("all").wait(False)
        popped = await told(group.conflation().pop())

        async def handle(_messages: Any) -> None:
            raise AssertionError("nothing is delivered")

        consumer = client.queue(queue).group("g").subscription_mode("all").conflation().limit(1).timeout_millis(200)
        consumed = await told(as_coroutine(consumer.consume(handle)))
        plain = await client.queue(queue).group("g").subscription_mode("all").wait(False).pop()
        return {"popped": popped, "consumed": consumed, "plain": [message["data"] for message in plain]}


async def as_coroutine(awaitable: Any) -> Any:
    return await awaitable


async def binary(url: str, queue: str) -> object:
    """A binary push is refused, and stores nothing. (Framed pops need an extra package in the client.)"""
    async with Queen(url, retry_attempts=1, binary_push=True) as client:
        refused = await told(as_coroutine(client.queue(queue).push([{"data": "binary"}])))
    async with Queen(url, retry_attempts=1) as client:
        await client.queue(queue).push([{"data": "json"}])
        messages = await client.queue(queue).wait(False).pop()
    return {"refused": refused, "popped": [message["data"] for message in messages]}


async def supervision(url: str, queue: str) -> object:
    """A consumer that reports to a key-value store which is not there goes on."""
    async with Queen(url, retry_attempts=1) as client:
        await client.queue(queue).push([{"data": n} for n in range(3)])
        seen: list[Any] = []

        async def handle(message: Any) -> None:
            seen.append(message["data"])

        consumer = (
            client.queue(queue)
            .group("g")
            .subscription_mode("all")
            .supervision({"group": "tests"})
            .limit(3)
            .timeout_millis(300)
        )
        await consumer.each().consume(handle)
        return {"seen": seen}


async def surface(_url: str, _queue: str) -> object:
    """The public methods of the client, by class."""
    classes = (
        queen.Queen, queen.Admin, QueueBuilder, PushBuilder, ConsumeBuilder, DLQBuilder, TransactionBuilder,
        TransactionQueueBuilder,
        queen.Stream, queen.KV, queen.Locks, queen.Timers, queen.Ephemeral,
    )  # fmt: skip
    return {
        each.__name__: sorted(
            name for name, value in vars(each).items() if not name.startswith("_") and inspect.isfunction(value)
        )
        for each in classes
    }


SCENARIOS: dict[str, Callable[[str, str], Awaitable[object]]] = {
    scenario.__name__: scenario for scenario in (families, riders, conflation, binary, supervision, surface)
}


if __name__ == "__main__":
    chosen, *arguments = sys.argv[1:]
    print(json.dumps(asyncio.run(SCENARIOS[chosen](*arguments))))
