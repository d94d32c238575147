"""The real engine as the model sees it: operations of the specification in, observations out.

It goes through everything but sockets and threads: parsing, the engine's handlers (`Broker`) or the whole engine with
its job_queues (`ConcurrentBroker`), the procedures in a real PostgreSQL whose clock the test sets, and rendering.
"""

import asyncio
import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

from queen.config import Settings
from queen.core.administration import MessageKey, QueueConfiguration, Registration, Seek
from queen.core.errors import BadRequestError, QueueFullError
from queen.core.job_type import JobType
from queen.engine.context import Context, ignore_notification
from queen.engine.engine import Engine, Shares
from queen.engine.handlers.configuration import configure
from queen.engine.handlers.consumer_groups import go_on, seek_group, update_subscription
from queen.engine.handlers.give_up import ensure_cursors
from queen.engine.handlers.pop import Outcome
from queen.engine.handlers.removal import delete_group, delete_queue
from queen.engine.job import Job
from queen.engine.job_queue import JobQueue
from queen.engine.job_specs import JOB_SPECS
from queen.engine.metadata_cache import MetadataCache
from queen.engine.waiters import Waiters
from queen.http.parsing import PushItem, to_push
from queen.http.rendering import render_pop
from queen.jobs.jobs import Schedule, services_of
from queen.jobs.sweep import Pacer, Service, sweep
from queen.log import ids
from queen.log import requests as real
from queen.postgres.administration import AdministrationStore
from queen.postgres.dsn import parse
from queen.postgres.maintenance import MaintenanceStore
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.store import Store
from spec import model
from spec.linearizability import Call

#: Few, so that sweeps take several calls.
RETENTION_BATCH = 2

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


async def no_sleep(_seconds: float) -> None:
    """Sweeps need not spare anybody here."""


def at(now: float) -> datetime:
    """The model's time as the database's."""
    return EPOCH + timedelta(seconds=now)


class Broker:
    """One event loop; every method is one operation at a time."""

    def __init__(self, dsn: str, connections: int = 1) -> None:
        self._connections = connections
        self._runner = asyncio.Runner()
        self._run(self._open(dsn))

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)

    async def _open(self, dsn: str) -> None:
        await prepare(dsn, 5000)
        self._pool = Pool(parse(dsn, "queen test", 5000), self._connections, 30)
        store = Store(self._pool)
        self._context = Context(
            store,
            AdministrationStore(self._pool),
            MetadataCache(store, 1000),
            ignore_notification,
            5,
        )
        schedule = Schedule(1, RETENTION_BATCH, 1, RETENTION_BATCH, timedelta())
        self._services = {s.name: s for s in services_of(MaintenanceStore(self._pool), schedule)}

    def close(self) -> None:
        """Ends the connections."""
        self._run(self._pool.close())
        self._runner.close()

    def reset(self) -> None:
        """Forgets all queues."""
        self._run(self._pool.fetch("DELETE FROM queen.queues"))
        self._run(self._pool.fetch("DELETE FROM queen.streams"))
        self._streams: dict[str, int] = {}
        store = self._context.database
        self._context.cache = MetadataCache(store, 1000)

    def set_clock(self, now: float) -> None:
        """Sets the database's clock for all connections."""
        self._run(self._set_clock(now))

    async def _set_clock(self, now: float) -> None:
        async with AsyncExitStack() as held:
            # All are held before the first is told, so that none is told twice and another one not.
            connections = [await held.enter_async_context(self._pool.connection()) for _ in range(self._connections)]
            for connection in connections:
                await connection.execute("SELECT set_config('queen.clock', $1, false)", at(now).isoformat())

    def query(self, sql: str, *arguments: object) -> list[Any]:
        """Rows of a statement, for what no operation shows."""
        return self._run(self._pool.fetch(sql, *arguments))  # type: ignore[no-any-return]

    def perform(self, operation: model.Operation) -> tuple[model.Operation, model.Outcome]:
        """Carries out an operation; returns it, with the lease that the server chose, and what was answered."""
        return self._run(self.carry_out(operation))  # type: ignore[no-any-return]

    async def carry_out(self, operation: model.Operation) -> tuple[model.Operation, model.Outcome]:
        """The same, in the broker's event loop."""
        match operation:
            case model.Push():
                return operation, await self._push(operation.items)
            case model.Pop():
                return await self._pop(operation)
            case model.Ack():
                return operation, model.Acked(tuple(await self._ack(operation)))
            case model.RenewLease():
                return operation, await self._renew(operation)
            case model.Transaction():
                return operation, await self._transaction(operation)
            case model.Configure():
                await configure(self._context, _configuration(operation))
                return operation, model.Configured()
            case model.Register():
                return operation, await self._register(operation)
            case model.Cycle():
                return operation, await self._cycle(operation)
            case model.DeleteQueue():
                existed = await delete_queue(self._context, operation.queue)
                return operation, model.Deleted(existed)
            case model.RemoveExpired() | model.EvictOverdue() | model.RemoveIdle():
                return operation, await self._tidy(operation)
            case _:
                return operation, await self._administer(operation)

    async def _tidy(self, operation: model.RemoveExpired | model.EvictOverdue | model.RemoveIdle) -> model.Outcome:
        match operation:
            case model.RemoveExpired():
                await self._sweep(self._services["retention"], operation.queue)
                return model.Removed(await self._oldest(operation.queue))
            case model.EvictOverdue():
                return model.Evicted(await self._sweep(self._services["eviction"], operation.queue))
            case model.RemoveIdle():
                idle = Schedule(1, 1, 1, 1, timedelta(seconds=operation.seconds))
                await self._sweep(services_of(MaintenanceStore(self._pool), idle)[-1], operation.queue)
                return model.Cleaned(frozenset(await self._oldest(operation.queue)))

    async def _sweep(self, service: Service, queue: str) -> int:
        """One sweep of a background service in one queue, without its pauses; what it did."""
        ids = [row["id"] for row in await self._pool.fetch("SELECT id FROM queen.queues WHERE name = $1", queue)]
        return await sweep(service, ids, Pacer(lambda: 0.0, no_sleep, service.interval_s), lambda: True)

    async def _oldest(self, queue: str) -> dict[str, int]:
        """The oldest kept offset of each partition."""
        rows = await self._pool.fetch(
            "SELECT p.name, queen.last_before(p.id, '-infinity') + 1 AS oldest FROM queen.partitions AS p"
            " JOIN queen.queues AS q ON q.id = p.queue_id WHERE q.name = $1",
            queue,
        )
        return {row["name"]: row["oldest"] for row in rows}

    async def _ask(self, kind: JobType, request: Any) -> Any:
        """The answer to one request, which looks again at once where the engine would."""
        while True:
            [answer] = await JOB_SPECS[kind].handler(self._context, [request])
            if not isinstance(answer, Outcome) or answer.found or answer.ready_in > -inf:
                return answer
            # As the engine does meanwhile: a paused group would be looked at until it has all its cursors.
            await go_on(self._context)

    async def _part_id(self, queue: str, partition: str) -> int | None:
        [(_queue_id, part_id)] = await self._context.database.resolve_partitions([(queue, partition)], create=False)
        return part_id  # type: ignore[no-any-return]

    # ------------------------------------------------------------ push

    async def _push(self, items: tuple[model.PushItem, ...]) -> model.Outcome:
        request = to_push([await self._push_item(item) for item in items])
        pushed = await self._ask(JobType.PUSH, request)
        if isinstance(pushed, QueueFullError | BadRequestError):
            return model.QueueFull()
        return model.Pushed(tuple(self._push_results(items, request, pushed)))

    async def _push_item(self, item: model.PushItem) -> PushItem:
        payload = json.dumps(item.payload).encode()
        id_ = await self._text(item.transaction_id)
        return PushItem(item.queue, item.partition, payload, id_)  # type: ignore[arg-type]

    def _push_results(
        self, items: tuple[model.PushItem, ...], request: real.Push, pushed: real.Pushed
    ) -> list[model.PushResult]:
        results: list[Any] = [None] * len(items)
        for batch, stored in zip(request.batches, pushed.stored, strict=True):
            for number, place in enumerate(batch.places):
                status = "duplicate" if number in stored.duplicates else "queued"
                message = model.MessageId(batch.queue, batch.partition, stored.offset(number))
                refused = number in stored.refused
                results[place] = model.PushResult("refused") if refused else model.PushResult(status, message)  # type: ignore[arg-type]
        return results

    # ------------------------------------------------------------ pop

    async def _pop(self, operation: model.Pop) -> tuple[model.Operation, model.Outcome]:
        answer = await self._ask(JobType.POP, _pop_request(operation))
        return self._popped(operation, answer.popped if isinstance(answer, Outcome) else answer)

    def pop_in_one_call(self, operations: Sequence[model.Pop]) -> list[tuple[model.Operation, model.Outcome]]:
        """Pops that the engine has fused."""
        handler = JOB_SPECS[JobType.POP].handler
        answers = self._run(handler(self._context, [_pop_request(operation) for operation in operations]))
        return [self._popped(operation, answer.popped) for operation, answer in zip(operations, answers, strict=True)]

    def _popped(self, operation: model.Pop, popped: real.Popped) -> tuple[model.Operation, model.Outcome]:
        if not popped.claims:
            return operation, model.Popped()
        body = json.loads(render_pop(popped, operation.group_name))
        lease = body["leaseId"] or None
        seen = tuple(self._delivery(message) for message in body["messages"])
        return replace(operation, lease=lease or "none"), model.Popped(lease, seen)

    def _delivery(self, message: dict[str, Any]) -> model.Delivery:
        _part_id, offset = ids.parse_message_id(message["id"]) or (-1, -1)
        created_at = (datetime.fromisoformat(message["createdAt"]) - EPOCH).total_seconds()
        own = model.MessageId(message["queue"], message["partition"], offset)
        assert offset == message["offset"]
        chosen = message["transactionId"]
        return model.Delivery(
            own, own if chosen == message["id"] else chosen, message["data"], created_at, message["deliveryAttempt"]
        )

    # ------------------------------------------------------------ ack, lease

    async def _ack(self, operation: model.Ack) -> list[model.AckResult]:
        items = [await self._ack_item(item) for item in operation.items]
        acked = await self._ask(JobType.ACK, real.Ack(items))
        return [_ack_result(result) for result in acked.results]

    async def _ack_item(self, item: model.AckItem) -> real.AckItem:
        part_id = await self._part_id(item.queue, item.partition)
        partition_id = ids.partition_id(part_id if part_id is not None else 2**47)
        name = await self._text(item.transaction_id) or ""
        return real.AckItem(name, partition_id, item.group_name, item.lease, item.status, item.error)

    async def _renew(self, operation: model.RenewLease) -> model.Renewed:
        request = real.RenewLease(operation.lease, int(operation.seconds))
        renewed = await self._ask(JobType.RENEW_LEASE, request)
        until = (renewed.expires_at - EPOCH).total_seconds() if renewed.expires_at is not None else None
        return model.Renewed(renewed.cursors, until)

    # ------------------------------------------------------------ administration

    async def _administer(self, operation: model.Operation) -> model.Outcome:
        administration = self._context.administration
        match operation:
            case model.DeleteMessage():
                return model.DeletedMessage(await administration.messages.delete(await self._key(operation)))
            case model.GiveUp():
                key = await self._key(operation)
                await ensure_cursors(self._context, key)
                moved = await administration.messages.give_up(key, operation.group, operation.error)
                return model.GivenUp(moved.known, frozenset(moved.groups or ()) if moved.known else frozenset())
            case model.Seek():
                since = at(operation.since) if operation.since > float("-inf") else None
                seek = Seek(operation.group, operation.queue, operation.partition, operation.to_end, since)
                sought = await seek_group(self._context, seek)
                return model.SeekResult(sought.updated)
            case model.UpdateSubscription():
                known = await update_subscription(self._context, operation.queue, operation.group, at(operation.since))
                return model.UpdatedSubscription(known)
            case model.DeleteGroup():
                cursors = await delete_group(
                    self._context, operation.queue, operation.group, subscription=operation.subscription
                )
                self._context.cache.forget_queue(operation.queue)
                return model.DeletedGroup(cursors)
            case model.Pause():
                groups = administration.consumer_groups
                known, _ready = await groups.pause(operation.queue, operation.group, paused=operation.paused)
                return model.Paused(known)
        raise AssertionError(operation)

    async def _key(self, operation: model.DeleteMessage | model.GiveUp) -> MessageKey:
        part_id = await self._part_id(operation.queue, operation.partition)
        number = part_id if part_id is not None else 2**47
        chosen = operation.transaction_id
        return MessageKey(
            number, ids.message_id(number, chosen.offset) if isinstance(chosen, model.MessageId) else chosen
        )

    # ------------------------------------------------------------ transaction

    async def _transaction(self, operation: model.Transaction) -> model.Outcome:
        pushes = tuple(each for each in operation.operations if isinstance(each, model.PushItem))
        acks = [each for each in operation.operations if isinstance(each, model.AckItem)]
        statuses = [getattr(each, "status", "completed") for each in operation.operations]
        if bad := [n for n, status in enumerate(statuses) if status not in ("completed", "failed", "dlq")]:
            return model.RolledBack(bad[0], "status")  # before the engine sees it: queen.operations.transact
        request = real.Transaction(
            to_push([await self._push_item(item) for item in pushes]),
            [await self._ack_item(item) for item in acks],
            list(operation.required_leases) or None,
        )
        executed = await self._ask(JobType.TRANSACTION, request)
        if executed.undone:
            return model.RolledBack(self._culprit(operation, request, executed), "undone")
        pushed = iter(self._push_results(pushes, request.push, executed.pushed))
        acked = iter(_ack_result(result) for result in executed.acked)
        return model.Committed(
            tuple(next(pushed) if isinstance(each, model.PushItem) else next(acked) for each in operation.operations)
        )

    def _culprit(
        self, operation: model.Transaction, request: real.Transaction, executed: real.TransactionResult
    ) -> int:
        """The first operation that the answer blames."""
        blamed = {number for number, result in enumerate(executed.acked) if result.problem is not None}
        places = [number for number, each in enumerate(operation.operations) if isinstance(each, model.AckItem)]
        found = [places[number] for number in blamed]
        if executed.full is not None:
            return next(n for n, each in enumerate(operation.operations) if isinstance(each, model.PushItem))
        places = [number for number, each in enumerate(operation.operations) if isinstance(each, model.PushItem)]
        for batch, stored in zip(request.push.batches, executed.pushed.stored, strict=False):
            found += [places[batch.places[n]] for n in stored.duplicates | stored.refused]
        return min(found)

    # ------------------------------------------------------------ streams

    async def _register(self, operation: model.Register) -> model.Registered:
        registration = Registration(operation.stream, "source", operation.chain, reset=operation.reset)
        registered = await self._context.administration.register_stream(registration)
        self._streams[operation.stream] = registered.stream
        return model.Registered(registered.fresh, registered.conflict)

    async def _cycle(self, operation: model.Cycle) -> model.CycleResult:
        part_id = await self._part_id(operation.queue, operation.partition)
        request = real.Cycle(
            self._streams[operation.stream], part_id or 2**47, operation.group_name,
            [_state_change(change) for change in operation.changes],
            to_push([await self._push_item(item) for item in operation.pushes]),
            await self._ack_item(operation.ack) if operation.ack is not None else None, operation.release,
        )  # fmt: skip
        cycled = await self._ask(JobType.CYCLE, request)
        if cycled.problem is not None:
            return model.CycleResult(cycled.problem, cycled.noop)
        pushed = self._push_results(operation.pushes, request.push, cycled.pushed)
        return model.CycleResult(None, False, tuple(pushed), cycled.completed, cycled.released, cycled.dead)

    def remembered(self) -> dict[tuple[str, str, str, str], Any]:
        """The state of all streams by queue, partition, stream and key."""
        rows = self.query(
            "SELECT q.name, p.name, t.name, s.key, s.value FROM queen.stream_state AS s"
            " JOIN queen.partitions AS p ON p.id = s.part_id JOIN queen.queues AS q ON q.id = p.queue_id"
            " JOIN queen.streams AS t ON t.id = s.stream_id"
        )
        return {tuple(row[:4]): json.loads(row[4]) for row in rows}

    async def _text(self, transaction_id: model.TransactionId | None) -> str | None:
        if not isinstance(transaction_id, model.MessageId):
            return transaction_id
        part_id = await self._part_id(transaction_id.queue, transaction_id.partition)
        return ids.message_id(part_id if part_id is not None else 2**47, transaction_id.offset)


def play(
    broker: Broker, *program: tuple[float, model.Operation | Callable[[str], model.Operation]]
) -> tuple[model.State, Any]:
    """Operations, each so many seconds after the one before; what the model knows in the end, and the last answer.

    One that needs the lease of the last pop is given as a function of it.
    """
    broker.reset()
    state, now, observed, lease = model.State(), 0.0, None, ""
    for seconds, step in program:
        now += seconds
        broker.set_clock(now)
        performed, observed = broker.perform(step(lease) if callable(step) else step)
        lease = getattr(observed, "lease", None) or lease
        state = model.admit(state, performed, observed, now)
    return state, observed


class ConcurrentBroker(Broker):
    """Engines as those of several workers, on several connections: operations side by side, and when each was."""

    def __init__(self, dsn: str, workers: int = 2, connections: int = 4) -> None:
        self._workers = workers
        super().__init__(dsn, connections)

    def reset(self) -> None:
        """Forgets all queues, and whatever workers know of them."""
        super().reset()
        self._run(self._start())

    async def _start(self) -> None:
        self._time = itertools.count(1)
        self._part_ids: dict[tuple[str, str], int] = {}
        self._clients: dict[asyncio.Task[Any], _Client] = {}
        self._engines = [self._engine() for _ in range(self._workers)]

    def _engine(self) -> Engine:
        store = Store(self._pool)
        heard = self._context.notify
        context = Context(store, self._context.administration, MetadataCache(store, 1000), heard, 5)
        settings = Settings()
        return Engine(
            context,
            lambda kind: JobQueue(settings.policy(kind), settings.limiter(kind)),
            Waiters(100, 1000),
            Shares(4, 1, 1000),
            lambda job, result: job.future.set_result(result),
        )

    def perform_together(self, operations: Sequence[model.Operation], now: float) -> list[Call]:
        """Carries out operations side by side, each through one of the workers in turn."""
        return self._run(self._together(operations, now))  # type: ignore[no-any-return]

    async def _together(self, operations: Sequence[model.Operation], now: float) -> list[Call]:
        engines = itertools.cycle(self._engines)
        async with asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(self._call(operation, next(engines), now)) for operation in operations]
        return [call.result() for call in calls]

    async def _call(self, operation: model.Operation, engine: Engine, now: float) -> Call:
        client = _Client(engine)
        self._clients[asyncio.current_task()] = client  # type: ignore[index]
        performed, outcome = await self.carry_out(operation)
        # What was refused before the engine saw it happened at one moment.
        invoked = client.invoked or next(self._time)
        return Call(performed, invoked, client.completed or invoked, outcome, now)

    async def _ask(self, kind: JobType, request: Any) -> Any:
        client = self._clients[asyncio.current_task()]  # type: ignore[index]
        job = Job(kind, request, asyncio.get_running_loop().create_future())
        client.invoked = next(self._time)
        client.engine.accept([job])
        answer = await job.future
        client.completed = next(self._time)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _part_id(self, queue: str, partition: str) -> int | None:
        if (part_id := self._part_ids.get((queue, partition))) is None:
            part_id = await super()._part_id(queue, partition)
            if part_id is not None:
                self._part_ids[queue, partition] = part_id
        return part_id


@dataclass
class _Client:
    """Which worker a task speaks to, and when its call was; 0 when it made none."""

    engine: Engine
    invoked: int = 0
    completed: int = 0


def _pop_request(operation: model.Pop) -> real.Pop:
    since = operation.subscription_from
    mode, moment = ("new" if (operation.subscription_mode or "all").startswith("new") else "all"), None
    if since is not None:
        mode, moment = ("new", None) if since == "now" else ("timestamp", at(float(since)))
    seconds = operation.lease_seconds
    return real.Pop(
        queue=operation.queue or "", partition=operation.partition, namespace=operation.namespace,
        task=operation.task, group=operation.group_name, batch=operation.batch, partitions=operation.partitions,
        auto_ack=operation.auto_ack, lease_seconds=int(seconds) if seconds is not None else None, mode=mode,
        since=moment,
    )  # fmt: skip


def _ack_result(result: real.AckResult) -> model.AckResult:
    return model.AckResult(result.problem, result.noop, result.dead)


def _state_change(change: model.StateChange) -> real.StateChange:
    if change.value is None:
        return real.StateChange(change.key, None)
    end = at(change.window_end).timestamp() * 1000 if change.window_end is not None else None
    return real.StateChange(change.key, json.dumps(change.value).encode(), end)


def _configuration(operation: model.Configure) -> QueueConfiguration:
    o = operation.options
    return QueueConfiguration(
        operation.queue, operation.namespace, operation.task, o.priority, int(o.lease_time), o.retry_limit,
        int(o.retry_delay), int(o.delayed_processing), int(o.window_buffer), o.dead_letter_queue,
        o.dlq_after_max_retries, o.retention_enabled, int(o.retention_seconds), int(o.completed_retention_seconds),
        int(o.ttl), int(o.max_wait_time_seconds), o.max_size,
    )  # fmt: skip
