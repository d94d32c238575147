"""The real engine as the model sees it: operations of the specification in, observations out.

It goes through everything but sockets and threads: parsing, the engine's handlers, the procedures in a real PostgreSQL
whose clock the test sets, and rendering.
"""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from queen.core import ids
from queen.core import operations as real
from queen.db.administration import AdministrationStore
from queen.db.dsn import parse
from queen.db.pool import Pool
from queen.db.setup import prepare
from queen.db.store import Store
from queen.engine.context import Context
from queen.engine.directory import Directory
from queen.engine.handlers.ack import ack
from queen.engine.handlers.pop import pop
from queen.engine.handlers.push import push
from queen.engine.handlers.renew_lease import renew_lease
from queen.engine.handlers.transaction import transaction
from queen.http.parsing import PushItem, to_push
from queen.http.rendering import render_pop
from queen_spec import model

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


def at(now: float) -> datetime:
    """The model's time as the database's."""
    return EPOCH + timedelta(seconds=now)


class Broker:
    """One connection to the database, one event loop; every method is one operation at a time."""

    def __init__(self, dsn: str) -> None:
        self._runner = asyncio.Runner()
        self._run(self._open(dsn))

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)

    async def _open(self, dsn: str) -> None:
        await prepare(dsn, 5000)
        self._pool = Pool(parse(dsn, "queen test", 5000), 1, 30)
        store = Store(self._pool)
        self._context = Context(store, AdministrationStore(self._pool), Directory(store, 1000), lambda _notice: None, 5)

    def close(self) -> None:
        """Ends the connection."""
        self._run(self._pool.close())
        self._runner.close()

    def reset(self) -> None:
        """Forgets all queues."""
        self._run(self._pool.fetch("DELETE FROM queen.queues"))
        store = self._context.database
        self._context.directory = Directory(store, 1000)

    def set_clock(self, now: float) -> None:
        """Sets the database's clock for this connection."""
        self._run(self._pool.fetch("SELECT set_config('queen.clock', $1, false)", at(now).isoformat()))

    def query(self, sql: str, *arguments: object) -> list[Any]:
        """Rows of a statement, for what no operation shows."""
        return self._run(self._pool.fetch(sql, *arguments))  # type: ignore[no-any-return]

    def perform(self, operation: model.Operation) -> tuple[model.Operation, model.Outcome]:
        """Carries out an operation; returns it, with the lease that the server chose, and what was answered."""
        match operation:
            case model.Push():
                return operation, model.Pushed(tuple(self._push(operation.items)))
            case model.Pop():
                return self._pop(operation)
            case model.Ack():
                return operation, model.Acked(tuple(self._ack(operation)))
            case model.RenewLease():
                return operation, self._renew(operation)
            case model.Transaction():
                return operation, self._transaction(operation)
            case model.Configure():
                self._run(self._context.administration.configure_queue(_configuration(operation)))
                return operation, model.Configured()
            case model.DeleteQueue():
                existed = self._run(self._context.administration.delete_queue(operation.queue))
                return operation, model.Deleted(existed)

    def _part_id(self, queue: str, partition: str) -> int | None:
        [(_queue_id, part_id)] = self._run(
            self._context.database.resolve_partitions([(queue, partition)], create=False)
        )
        return part_id  # type: ignore[no-any-return]

    # ------------------------------------------------------------ push

    def _push(self, items: tuple[model.PushItem, ...]) -> list[model.PushResult]:
        request = to_push([self._push_item(item) for item in items])
        [pushed] = self._run(push(self._context, [request]))
        return self._push_results(items, request, pushed)

    def _push_item(self, item: model.PushItem) -> PushItem:
        payload = json.dumps(item.payload).encode()
        return PushItem(item.queue, item.partition, payload, self._text(item.transaction_id))  # type: ignore[arg-type]

    def _push_results(
        self, items: tuple[model.PushItem, ...], request: real.Push, pushed: real.Pushed
    ) -> list[model.PushResult]:
        results: list[Any] = [None] * len(items)
        for lot, stored in zip(request.lots, pushed.stored, strict=True):
            for number, place in enumerate(lot.places):
                status = "duplicate" if number in stored.duplicates else "queued"
                message = model.MessageId(lot.queue, lot.partition, stored.offset(number))
                refused = number in stored.refused
                results[place] = model.PushResult("refused") if refused else model.PushResult(status, message)  # type: ignore[arg-type]
        return results

    # ------------------------------------------------------------ pop

    def _pop(self, operation: model.Pop) -> tuple[model.Operation, model.Outcome]:
        since = operation.subscription_from
        mode, moment = ("new" if (operation.subscription_mode or "all").startswith("new") else "all"), None
        if since is not None:
            mode, moment = ("new", None) if since == "now" else ("timestamp", at(float(since)))
        seconds = operation.lease_seconds
        request = real.Pop(
            queue=operation.queue or "", partition=operation.partition, namespace=operation.namespace,
            task=operation.task, group=operation.group_name, batch=operation.batch, partitions=operation.partitions,
            auto_ack=operation.auto_ack, lease_seconds=int(seconds) if seconds is not None else None, mode=mode,
            since=moment,
        )  # fmt: skip
        [outcome] = self._run(pop(self._context, [request]))
        if not outcome.popped.claims:
            return operation, model.Popped()
        body = json.loads(render_pop(outcome.popped, operation.group_name))
        lease = body["leaseId"] or None
        seen = tuple(self._delivery(message) for message in body["messages"])
        performed = model.Pop(**{f: getattr(operation, f) for f in operation.__slots__} | {"lease": lease or "none"})
        return performed, model.Popped(lease, seen)

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

    def _ack(self, operation: model.Ack) -> list[model.AckResult]:
        items = [self._ack_item(item) for item in operation.items]
        [acked] = self._run(ack(self._context, [real.Ack(items)]))
        return [_ack_result(result) for result in acked.results]

    def _ack_item(self, item: model.AckItem) -> real.AckItem:
        part_id = self._part_id(item.queue, item.partition)
        partition_id = ids.partition_id(part_id if part_id is not None else 2**47)
        return real.AckItem(
            self._text(item.transaction_id) or "", partition_id, item.group_name, item.lease, item.status, item.error
        )

    def _renew(self, operation: model.RenewLease) -> model.Renewed:
        [renewed] = self._run(renew_lease(self._context, [real.RenewLease(operation.lease, int(operation.seconds))]))
        until = (renewed.expires_at - EPOCH).total_seconds() if renewed.expires_at is not None else None
        return model.Renewed(renewed.cursors, until)

    # ------------------------------------------------------------ transaction

    def _transaction(self, operation: model.Transaction) -> model.Outcome:
        pushes = tuple(each for each in operation.operations if isinstance(each, model.PushItem))
        acks = [each for each in operation.operations if isinstance(each, model.AckItem)]
        statuses = [getattr(each, "status", "completed") for each in operation.operations]
        if bad := [n for n, status in enumerate(statuses) if status not in ("completed", "failed", "dlq")]:
            return model.RolledBack(bad[0], "status")  # before the engine sees it: queen.http.resources.transactions
        request = real.Transaction(
            to_push([self._push_item(item) for item in pushes]),
            [self._ack_item(item) for item in acks],
            list(operation.required_leases) or None,
        )
        [executed] = self._run(transaction(self._context, [request]))
        if executed.undone:
            return model.RolledBack(self._culprit(operation, request, executed), "undone")
        pushed = iter(self._push_results(pushes, request.push, executed.pushed))
        acked = iter(_ack_result(result) for result in executed.acked)
        return model.Committed(
            tuple(next(pushed) if isinstance(each, model.PushItem) else next(acked) for each in operation.operations)
        )

    def _culprit(self, operation: model.Transaction, request: real.Transaction, executed: real.Executed) -> int:
        """The first operation that the answer blames."""
        blamed = {number for number, result in enumerate(executed.acked) if result.problem is not None}
        places = [number for number, each in enumerate(operation.operations) if isinstance(each, model.AckItem)]
        found = [places[number] for number in blamed]
        places = [number for number, each in enumerate(operation.operations) if isinstance(each, model.PushItem)]
        for lot, stored in zip(request.push.lots, executed.pushed.stored, strict=False):
            found += [places[lot.places[n]] for n in stored.duplicates | stored.refused]
        return min(found)

    def _text(self, transaction_id: model.TransactionId | None) -> str | None:
        if not isinstance(transaction_id, model.MessageId):
            return transaction_id
        part_id = self._part_id(transaction_id.queue, transaction_id.partition)
        return ids.message_id(part_id if part_id is not None else 2**47, transaction_id.offset)


def _ack_result(result: real.AckResult) -> model.AckResult:
    return model.AckResult(result.problem, result.noop, result.dead)


def _configuration(operation: model.Configure) -> real.QueueConfiguration:
    o = operation.options
    return real.QueueConfiguration(
        operation.queue, operation.namespace, operation.task, o.priority, int(o.lease_time), o.retry_limit,
        int(o.retry_delay), int(o.delayed_processing), int(o.window_buffer), o.dead_letter_queue,
        o.dlq_after_max_retries,
    )  # fmt: skip
