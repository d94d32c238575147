"""simple-mq's real handlers as the model sees them: operations of the specification in, outcomes out.

Everything but sockets and threads, on a real PostgreSQL whose clock the test sets.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from queen.engine.context import Context, ignore_notification
from queen.engine.metadata_cache import MetadataCache
from queen.postgres.administration import AdministrationStore
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.store import Store
from queen.simple_mq import handlers
from queen.simple_mq import requests as real
from queen.simple_mq.interface import SimpleMq
from queen.simple_mq.outcome_counters import OutcomeCounters
from queen.simple_mq.storage import SimpleMqAdministrationStore, SimpleMqStore
from spec.model import simple_mq as model
from tests.support.broker import EPOCH, at


def seconds(time: datetime) -> float:
    """The database's time as the model's."""
    return (time - EPOCH).total_seconds()


class SimpleMqBroker:
    """One connection to the database, one event loop; every method is one operation at a time."""

    def __init__(self, dsn: str) -> None:
        self._runner = asyncio.Runner()
        self.run(self._open(dsn))

    def run(self, work: Any) -> Any:
        return self._runner.run(work)

    async def _open(self, dsn: str) -> None:
        await prepare(dsn, 5000)
        self.pool = Pool(parse(dsn, "queen test", 5000), 1, 30)
        self.queues = SimpleMqAdministrationStore(self.pool)
        self.messages = SimpleMqStore(self.pool)
        store = Store(self.pool)
        simple_mq = SimpleMq(self.messages, self.queues, OutcomeCounters(self.queues.count_outcomes))
        self.context = Context(
            store,
            AdministrationStore(self.pool),
            MetadataCache(store, 1000),
            ignore_notification,
            5,
            interfaces=[simple_mq],
        )

    def close(self) -> None:
        self.run(SimpleMq.of(self.context).outcomes.close())
        self.run(self.pool.close())
        self._runner.close()

    def query(self, sql: str, *arguments: object) -> list[Any]:
        """Rows of a statement, for what no operation shows."""
        return self.run(self.pool.fetch(sql, *arguments))  # type: ignore[no-any-return]

    def reset(self) -> None:
        """Forgets all queues."""
        for table in ("queues", "counts", "heads", "messages", "flushes", "deleted_queues", "outcomes"):
            self.query(f"DELETE FROM simple_mq.{table}")

    def set_clock(self, now: float) -> None:
        self.query("SELECT set_config('queen.clock', $1, false)", at(now).isoformat())

    def perform(self, operation: model.Operation) -> tuple[model.Operation, model.Outcome]:
        """Carries out an operation; returns it, with the ids that the server chose, and what was answered."""
        match operation:
            case model.Enqueue():
                return self._enqueue(operation)
            case model.Sweep():
                self.run(self.queues.sweep())
                return operation, model.Done("ok")
            case _:
                return operation, self._answer(operation, UUID(operation.queue))

    def _answer(self, operation: Any, queue: UUID) -> model.Outcome:
        match operation:
            case model.CreateQueue():
                timeout, deliveries = int(operation.visibility_timeout), operation.max_deliveries
                self.run(self.queues.create_queue(real.NewQueue(queue, "q", operation.size, timeout, deliveries), 0))
                return model.Done("ok")
            case model.DeleteQueue():
                outcome = self.run(self.queues.delete_queue(queue))
                self.run(self.queues.tidy())
                return model.Done({"deleted": "ok", "unknown": "unknown"}.get(outcome, "conflict"))
            case model.Describe():
                info = self.run(self.queues.describe_queue(queue))
                if info is None:
                    return model.UNKNOWN
                return model.Described(info.messages, None if info.dlq_id is None else str(info.dlq_id))
            case model.Poll():
                [found] = self.run(handlers.dequeue(self.context, [real.Dequeue(queue, operation.limit)]))
                return self._seen(found.result.messages) if found.result.known else model.UNKNOWN
            case model.Peek():
                after, after_id = operation.after or (None, None)
                place = (at(after), UUID(after_id)) if after is not None and after_id is not None else (None, None)
                page = self.run(self.queues.peek(queue, *place, operation.limit))
                return model.UNKNOWN if page is None else self._seen(page)
            case model.Ack():
                ids = [UUID(id_) for id_ in operation.ids]
                [acked] = self.run(handlers.acknowledge(self.context, [real.Acknowledge(queue, ids)]))
                return model.UNKNOWN if "unknown" in acked.outcomes else model.Each(tuple(acked.outcomes))
            case model.Extend():
                request = real.ExtendVisibility(queue, UUID(operation.id), int(operation.seconds))
                [extended] = self.run(handlers.extend_visibility(self.context, [request]))
                return model.Done(extended.outcome)
            case model.Requeue():
                done = self.run(self.queues.requeue(queue, UUID(operation.id)))
                return model.Moved(str(done.destination), 1) if done.outcome == "requeued" else model.Done(done.outcome)
            case _:
                done = self.run(self.queues.requeue_all(queue))
                return (
                    model.Moved(str(done.destination), done.requeued)
                    if done.outcome == "requeued"
                    else model.Done(done.outcome)
                )

    def _enqueue(self, operation: model.Enqueue) -> tuple[model.Operation, model.Outcome]:
        messages = [real.NewMessage(data, group) for data, group in operation.messages]
        [answer] = self.run(handlers.enqueue(self.context, [real.Enqueue(UUID(operation.queue), messages, 0)]))
        ids = tuple(str(id_) for id_ in answer.message_ids)
        performed = model.Enqueue(operation.queue, operation.messages, ids)
        return performed, model.Done("ok" if answer.outcome == "stored" else answer.outcome)

    @staticmethod
    def _seen(messages: Sequence[real.Message]) -> model.Seen:
        return model.Seen(
            tuple(
                (str(m.message_id), m.data, m.delivery_count, seconds(m.visible_at), seconds(m.created_at))
                for m in messages
            )
        )
