"""What a program does with the streams of the published client `queen-mq`.

Runs in an interpreter of its own, as ``client_scenarios.py`` does: `python -I stream_scenarios.py SCENARIO URL QUEUE`.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from queen import Queen, Stream, token_bucket_gate

Client = Any
PARTITIONS = 3


class Program:
    """A client, the url that streams want for themselves, and the queue."""

    def __init__(self, client: Client, url: str, queue: str) -> None:
        self.client, self.url, self.queue = client, url, queue

    async def lease_briefly(self) -> None:
        """A worker that stops keeps the leases of what it has popped and not begun: they have to end by themselves."""
        await self.client.queue(self.queue).config({"lease_time": 2}).create()

    async def push(self, events: list[Any]) -> None:
        """Pushes each event to the partition that its number chooses."""
        for partition in range(PARTITIONS):
            mine = [{"data": event} for event in events if event["n"] % PARTITIONS == partition]
            await self.client.queue(self.queue).partition(f"p{partition}").push(mine)

    def windows(self) -> Any:
        """Counts and sums events over ten seconds of their own time."""
        source = self.client.queue(self.queue)
        return (
            Stream.from_(source)
            .window_tumbling(seconds=10, event_time=lambda message: message["data"]["t"], idle_flush_ms=200)
            .aggregate({"count": lambda _: 1, "sum": lambda event: event["n"]})
            .to(self.client.queue(f"{self.queue}-out"))
        )

    async def run(self, stream: Any, name: str = "", **options: Any) -> Any:
        options = {"max_wait_millis": 200, **options}
        return await stream.run(query_id=name or self.queue, url=self.url, **options)

    async def output(self, done: Callable[[list[Any]], bool]) -> list[Any]:
        """What came out, once it is enough; each with its partition."""
        seen: list[Any] = []
        async with asyncio.timeout(200):
            while not done(seen):
                outbox = self.client.queue(f"{self.queue}-out").batch(100).partitions(10).timeout_millis(300)
                messages = await outbox.pop()
                seen += [[message["partition"], message["data"]] for message in messages]
                if messages:
                    await self.client.ack(messages, True)
        return seen

    async def nothing_more(self) -> list[Any]:
        outbox = self.client.queue(f"{self.queue}-out").batch(100).partitions(10).timeout_millis(1500)
        return [message["data"] for message in await outbox.pop()]


def event(n: int) -> Any:
    """Ten events a second of their own time."""
    return {"n": n, "t": 1_700_000_000_000 + n * 100}


def total(seen: list[Any]) -> int:
    return sum(data["count"] for _, data in seen)


#: Closes the windows of all other events, in every partition.
LAST = [event(100_000 + n) for n in range(PARTITIONS)]


async def windows(program: Program) -> object:
    """Ten windows a partition, pushed in two halves with a stop of the stream between them."""
    await program.lease_briefly()
    events = [event(n) for n in range(1000)]
    stream = program.windows()
    await program.push(events[:450])
    runner = await program.run(stream)
    before = await program.output(lambda seen: len(seen) > 3)
    await runner.stop()
    await program.push(events[450:] + LAST)
    runner = await program.run(program.windows())
    after = await program.output(lambda seen: total(before) + total(seen) >= 1000)
    more = await program.nothing_more()
    await runner.stop()
    return {"seen": before + after, "more": more, "errors": runner.metrics()["errorsTotal"]}


async def competing_windows(program: Program) -> object:
    """Three workers of one stream; one stops in between."""
    await program.lease_briefly()
    runners = [await program.run(program.windows(), batch_size=20, max_partitions=2) for _ in range(3)]
    for start in range(0, 1000, 100):
        await program.push([event(n) for n in range(start, start + 100)])
        if start == 400:
            await runners.pop().stop()
    await program.push(LAST)
    seen = await program.output(lambda seen: total(seen) >= 1000)
    more = await program.nothing_more()
    for runner in runners:
        await runner.stop()
    return {"seen": seen, "more": more}


async def stateless(program: Program) -> object:
    """Maps and filters."""
    await program.push([event(n) for n in range(60)])
    stream = Stream.from_(program.client.queue(program.queue)).filter(lambda message: message["data"]["n"] % 2 == 0)
    stream = stream.map(lambda message: {"twice": message["data"]["n"] * 2}).to(
        program.client.queue(f"{program.queue}-out")
    )
    runner = await program.run(stream)
    seen = await program.output(lambda seen: len(seen) >= 30)
    more = await program.nothing_more()
    await runner.stop()
    return {"seen": seen, "more": more, "errors": runner.metrics()["errorsTotal"]}


async def map_of_many(program: Program) -> object:
    """Maps five thousand events of twenty partitions."""
    for partition in range(20):
        mine = [{"data": event(n)} for n in range(5000) if n % 20 == partition]
        await program.client.queue(program.queue).partition(f"p{partition}").push(mine)
    stream = Stream.from_(program.client.queue(program.queue)).map(lambda message: {"n": message["data"]["n"]})
    runner = await program.run(stream.to(program.client.queue(f"{program.queue}-out")))
    seen = await program.output(lambda seen: len(seen) >= 5000)
    more = await program.nothing_more()
    await runner.stop()
    return {"seen": sorted(data["n"] for _, data in seen), "more": more, "errors": runner.metrics()["errorsTotal"]}


async def idle_windows(program: Program) -> object:
    """Sums a field in windows of one second of the server's time, flushed while events go on coming."""
    source = program.client.queue(program.queue)
    stream = (
        Stream.from_(source)
        .window_tumbling(seconds=1, idle_flush_ms=50)
        .aggregate({"count": lambda _: 1, "sum": lambda event: event["n"]})
        .to(program.client.queue(f"{program.queue}-out"))
    )
    runner = await program.run(stream, max_wait_millis=20)
    for n in range(60):
        await program.push([event(n * PARTITIONS)])
        await asyncio.sleep(0.05)
    seen = await program.output(lambda seen: total(seen) >= 60)
    more = await program.nothing_more()
    await runner.stop()
    return {"sum": sum(data["sum"] for _, data in seen), "more": more, "errors": runner.metrics()["errorsTotal"]}


async def sessions(program: Program) -> object:
    """Two bursts with a gap; the second is closed by an event long after."""
    times = [0, 100, 200, 60_000, 60_100]
    events = [{"n": 0, "t": 1_700_000_000_000 + time} for time in [*times, 10**7]]
    await program.push(events)
    stream = (
        Stream.from_(program.client.queue(program.queue))
        .window_session(gap=5, event_time=lambda message: message["data"]["t"], idle_flush_ms=200)
        .aggregate({"count": lambda _: 1})
        .to(program.client.queue(f"{program.queue}-out"))
    )
    runner = await program.run(stream)
    seen = await program.output(lambda seen: total(seen) >= 5)
    more = await program.nothing_more()
    await runner.stop()
    return {"counts": [data["count"] for _, data in seen], "more": more}


async def gate(program: Program) -> object:
    """A rate limit: what it denies comes again, in order, when the lease is over."""
    await program.lease_briefly()
    await program.push([{"n": n * PARTITIONS, "t": 0} for n in range(12)])
    stream = Stream.from_(program.client.queue(program.queue)).gate(token_bucket_gate(capacity=5, refill_per_sec=5))
    runner = await program.run(stream.to(program.client.queue(f"{program.queue}-out")))
    seen = await program.output(lambda seen: len(seen) >= 12)
    more = await program.nothing_more()
    await runner.stop()
    return {"seen": [data["n"] // PARTITIONS for _, data in seen], "more": more, "denied": runner.metrics()}


async def another_chain(program: Program) -> object:
    """The same name with other operators is refused, unless the state is given up."""
    await (await program.run(program.windows())).stop()
    other = Stream.from_(program.client.queue(program.queue)).map(lambda value: value)
    try:
        await program.run(other)
        refused = ""
    except Exception as error:
        refused = type(error).__name__
    runner = await program.run(other, reset=True)
    await runner.stop()
    return {"refused": refused}


def event_time(message: Any) -> int:
    return int(message["data"]["t"])


async def sums(program: Program, source: Any, name: str, expected: int) -> object:
    """Sums over the windows of a stream."""
    stream = source.reduce(lambda total, value: {"sum": total["sum"] + value["n"]}, {"sum": 0})
    runner = await program.run(stream.to(program.client.queue(f"{program.queue}-out")), name=f"{program.queue}-{name}")
    seen = await program.output(lambda seen: sum(data["sum"] for _, data in seen) >= expected)
    await runner.stop()
    return sum(data["sum"] for _, data in seen)


async def operators(program: Program) -> object:
    """Windows that overlap, windows of the clock, keys, several values of one, and effects without a sink."""
    # Two minutes of one partition; the last event closes the windows of the others and belongs to none that ends.
    await program.push([{"n": n * PARTITIONS, "t": 1_700_000_000_000 + n * 5_000} for n in range(24)])
    await program.push([{"n": 0, "t": 1_700_000_000_000 + 10**7}])
    total = sum(n * PARTITIONS for n in range(24))
    source = Stream.from_(program.client.queue(program.queue))
    sliding = source.key_by(lambda _: "all").window_sliding(size=20, slide=10, event_time=event_time, idle_flush_ms=200)
    cron = source.window_cron(every="minute", event_time=event_time, idle_flush_ms=200)
    seen: list[Any] = []
    runner = await program.run(
        source.flat_map(lambda message: [message["data"]["n"]] * 2).foreach(seen.append), name=f"{program.queue}-each"
    )
    async with asyncio.timeout(200):
        while len(seen) < 50:
            await asyncio.sleep(0.05)
    await runner.stop()
    return {
        "sliding": await sums(program, sliding, "sliding", 2 * total) == 2 * total,
        "cron": await sums(program, cron, "cron", total) == total,
        "each": sum(seen) == 2 * total,
    }


SCENARIOS: dict[str, Callable[[Program], Awaitable[object]]] = {
    scenario.__name__: scenario
    for scenario in (
        windows,
        competing_windows,
        stateless,
        map_of_many,
        idle_windows,
        sessions,
        gate,
        another_chain,
        operators,
    )
}


async def main(scenario: str, url: str, queue: str) -> None:
    async with Queen(url) as client:
        outcome = await SCENARIOS[scenario](Program(client, url, queue))
    print(json.dumps(outcome))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
