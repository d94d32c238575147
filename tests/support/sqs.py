"""The real handlers of SQS as the model sees them: operations of the specification in, outcomes out.

Everything but sockets and threads, on a real PostgreSQL whose clock the test sets.
"""

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

from queen.core.errors import DataRejectedError
from queen.engine.context import Context, ignore_notification
from queen.engine.metadata_cache import MetadataCache
from queen.postgres.administration import AdministrationStore
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool
from queen.postgres.setup import prepare
from queen.postgres.store import Store
from queen.security.keyring import Keyring
from queen.simple_mq import sqs_administration as administration
from queen.simple_mq import sqs_handlers as handlers
from queen.simple_mq import sqs_requests as real
from queen.simple_mq.interface import SimpleMq, Sqs
from queen.simple_mq.sqs_spool import SpooledSends, spooled
from queen.simple_mq.sqs_storage import SqsSpoolStore
from spec.model import sqs as model
from tests.support.broker import at
from tests.support.simple_mq import seconds

_TABLES = (
    "counts", "heads", "messages", "flushes", "deleted_queues", "sqs_queues", "sqs_deduplication", "sqs_attempts",
    "sqs_moves",
)  # fmt: skip


class SqsBroker:
    """Connections to the database, one event loop; every method is one operation at a time."""

    def __init__(self, dsn: str, connections: int = 1, keys: Keyring | None = None) -> None:
        self._runner = asyncio.Runner()
        self.run(self._open(dsn, connections, keys))

    def run(self, work: Any) -> Any:
        return self._runner.run(work)

    async def _open(self, dsn: str, connections: int, keys: Keyring | None) -> None:
        await prepare(dsn, 5000)
        self.pool = Pool(parse(dsn, "queen test", 5000), connections, 30)
        store = Store(self.pool)
        self.context = Context(
            store,
            AdministrationStore(self.pool),
            MetadataCache(store, 1000),
            ignore_notification,
            5,
            interfaces=[SimpleMq.over(self.pool, self.pool), Sqs.over(self.pool, self.pool)],
            keys=keys,
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
        for table in _TABLES:
            self.query(f"DELETE FROM simple_mq.{table}")
        self.ids: dict[str, UUID] = {}
        self.bodies: dict[UUID, str] = {}
        self.queues: dict[str, UUID] = {}
        self.names: dict[UUID | None, str] = {}
        self.move: UUID | None = None

    def set_clock(self, now: float) -> None:
        self.query("SELECT set_config('queen.clock', $1, false)", at(now).isoformat())

    def queue(self, name: str) -> UUID:
        """The id of a queue; one that nothing has, if there is none."""
        return self.queues.get(name, UUID(int=7))

    def create(self, name: str, **attributes: object) -> UUID:
        """A queue; FIFO if its name ends so."""
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in attributes.items()}
        fifo = name.endswith(".fifo")
        queue, _ = self.run(administration.create_queue(self.context, name, texts, {}, fifo=fifo))
        self.queues[name] = queue.queue_id
        return queue.queue_id  # type: ignore[no-any-return]

    def send(self, queue: UUID, *messages: real.NewSqsMessage, encrypted: bool = False) -> Any:
        [answer] = self.run(handlers.send(self.context, [real.SendMessages(queue, messages, 0, encrypted)]))
        return answer

    def receive(self, queue: UUID, limit: int = 10, **options: Any) -> Any:
        request = real.ReceiveMessages(queue, options.pop("in_flight_max", 1000), limit, **options)
        [outcome] = self.run(handlers.receive(self.context, [request]))
        return outcome.result

    def perform(self, operation: model.Operation, now: float) -> model.Outcome:
        """Carries out an operation; what was answered."""
        return _PERFORM[type(operation)](self, operation, now)  # type: ignore[operator]

    def _create(self, operation: model.Create, _now: float) -> model.Outcome:
        q = operation.settings
        attributes: dict[str, object] = {
            "VisibilityTimeout": str(int(q.visibility)),
            "DelaySeconds": str(int(q.delay)),
            "MessageRetentionPeriod": str(int(q.retention)),
        }
        if q.dlq is not None:
            arn = f"arn:aws:sqs:us-east-1:000000000000:{q.dlq}"
            attributes["RedrivePolicy"] = {"deadLetterTargetArn": arn, "maxReceiveCount": q.max_receives}
        if q.per_group:
            attributes["DeduplicationScope"] = "messageGroup"
        self.names[self.create(operation.queue, **attributes)] = q.id
        return model.OK

    def _delete(self, operation: model.Delete, _now: float) -> model.Outcome:
        known = self.run(administration.delete_queue(self.context, self.queue(operation.queue)))
        if self.query("SELECT 1 FROM simple_mq.sqs_moves") == []:
            self.move = None
        return model.OK if known else model.UNKNOWN

    def _purge(self, operation: model.Purge, _now: float) -> model.Outcome:
        outcome = self.run(administration.purge_queue(self.context, self.queue(operation.queue)))
        return model.Done("ok" if outcome == "purged" else outcome)

    def _send(self, operation: model.Send, _now: float) -> model.Outcome:
        messages = [
            real.NewSqsMessage(body, None, delay, group, deduplication)
            for body, group, deduplication, delay in operation.messages
        ]
        answer = self.send(self.queue(operation.queue), *messages)
        if not answer.known:
            return model.UNKNOWN
        for sent, (body, *_) in zip(answer.messages, operation.messages, strict=True):
            self.ids.setdefault(self.bodies.setdefault(sent.message_id, body), sent.message_id)
        return model.Each(tuple(self.bodies[sent.message_id] for sent in answer.messages))

    def _replay(self, operation: model.Replay, _now: float) -> model.Outcome:
        messages = [
            real.NewSqsMessage(body, None, delay, group, deduplication)
            for body, group, deduplication, delay in operation.messages
        ]
        batch = spooled(self.context, real.SendMessages(self.queue(operation.queue), messages, 0))
        replaying = SpooledSends(self.context, SqsSpoolStore(self.pool))
        try:
            self.run(replaying.replay(uuid4(), 0, 1, at(operation.sent_at), [[batch]], None))
        except DataRejectedError:
            return model.UNKNOWN
        self.bodies |= zip(map(UUID, batch.ids), (body for body, *_ in operation.messages), strict=True)
        return model.OK

    def _receive(self, operation: model.Receive, _now: float) -> model.Outcome:
        received = self.receive(
            self.queue(operation.queue), operation.limit, visibility_s=operation.visibility,
            attempt_id=operation.attempt, in_flight_max=operation.in_flight_max,
        )  # fmt: skip
        if received.outcome != "ok":
            return model.Done(received.outcome)
        for message in received.messages:
            self.ids[message.body] = message.message_id
        return model.Received(
            tuple(
                (
                    m.body, m.receive_count, seconds(m.sent_at), seconds(m.first_received_at), m.group,
                    self.names.get(m.source),
                )
                for m in received.messages
            )
        )  # fmt: skip

    def _handles(self, handles: tuple[tuple[str, int], ...]) -> list[tuple[UUID, int]]:
        return [(self.ids[body], count) for body, count in handles]

    def _remove(self, operation: model.Remove, _now: float) -> model.Outcome:
        request = real.DeleteMessages(self.queue(operation.queue), self._handles(operation.handles))
        [answer] = self.run(handlers.delete(self.context, [request]))
        return _each(answer)

    def _change(self, operation: model.Change, _now: float) -> model.Outcome:
        handles = [(*handle, operation.seconds) for handle in self._handles(operation.handles)]
        request = real.ChangeVisibility(self.queue(operation.queue), handles)
        [answer] = self.run(handlers.change_visibility(self.context, [request]))
        return _each(answer)

    def _give_back(self, operation: model.GiveBack, _now: float) -> model.Outcome:
        queue = self.queue(operation.queue)
        if operation.queue not in self.queues or not self.query(
            "SELECT 1 FROM simple_mq.sqs_queues WHERE queue_id = $1", queue
        ):
            return model.UNKNOWN
        self.run(Sqs.of(self.context).database.give_back(queue, self._handles(operation.handles)))
        return model.OK

    def _figures(self, operation: model.Figures, _now: float) -> model.Outcome:
        found = self.run(administration.figures(self.context, self.queue(operation.queue)))
        return model.UNKNOWN if found is None else model.Counts(found.visible, found.in_flight, found.delayed)

    def _start_move(self, operation: model.StartMove, _now: float) -> model.Outcome:
        destination = None if operation.destination is None else self.queue(operation.destination)
        source = self.queue(operation.queue)
        outcome, move = self.run(administration.start_move(self.context, source, destination, None))
        if outcome == "started":
            self.move = move
        return model.Done(outcome)

    def _move_on(self, _operation: model.MoveOn, _now: float) -> model.Outcome:
        self.run(administration.move_on(self.context))
        for row in self.query("SELECT data, message_id FROM simple_mq.messages"):
            self.ids[row["data"]] = row["message_id"]
        return model.OK

    def _cancel_move(self, _operation: model.CancelMove, _now: float) -> model.Outcome:
        if self.move is None or self.run(administration.cancel_move(self.context, self.move)) is None:
            return model.UNKNOWN
        [row] = self.query("SELECT status, moved FROM simple_mq.sqs_moves WHERE move_id = $1", self.move)
        return model.Progress(row["status"], row["moved"])

    def _sweep(self, _operation: model.Sweep, _now: float) -> model.Outcome:
        self.run(administration.sweep(self.context))
        return model.OK

    def _expire(self, _operation: model.Expire, now: float) -> model.Outcome:
        self.run(Sqs.of(self.context).administration.tidy(at(now)))
        return model.OK


def _each(answer: real.SqsOutcomes) -> model.Outcome:
    return model.UNKNOWN if "unknown" in answer.outcomes else model.Each(tuple(answer.outcomes))


_PERFORM = {
    model.Create: SqsBroker._create,
    model.Delete: SqsBroker._delete,
    model.Purge: SqsBroker._purge,
    model.Send: SqsBroker._send,
    model.Replay: SqsBroker._replay,
    model.Receive: SqsBroker._receive,
    model.Remove: SqsBroker._remove,
    model.Change: SqsBroker._change,
    model.GiveBack: SqsBroker._give_back,
    model.Figures: SqsBroker._figures,
    model.StartMove: SqsBroker._start_move,
    model.MoveOn: SqsBroker._move_on,
    model.CancelMove: SqsBroker._cancel_move,
    model.Sweep: SqsBroker._sweep,
    model.Expire: SqsBroker._expire,
}
