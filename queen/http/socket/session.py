"""One WebSocket: its frames, and the messages that its consumer has in flight."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any
from uuid import UUID

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET

from queen.core.errors import BadRequestError, DataRejectedError, QueenError, TooSlowError
from queen.core.job_type import JobType
from queen.core.metrics import Connected
from queen.engine.context import Context
from queen.engine.handle import EngineHandle
from queen.engine.handlers.ack import ALREADY_COMPLETED, INVALID_LEASE, lease_of
from queen.engine.handlers.give_back import give_back
from queen.engine.job import Job
from queen.engine.subscriptions import SUBSCRIPTIONS, address
from queen.http import problems
from queen.http.acks import to_ack_items
from queen.http.disconnect import abandon
from queen.http.parsing import check_group, renewal
from queen.http.rendering import render_pop, timestamp
from queen.http.request import QueenRequest
from queen.http.room import SMALL_BYTES, Room
from queen.http.socket import frames
from queen.http.socket.credit import Credit, Held
from queen.http.socket.delivery import Windows, deliver_batches, messages_of
from queen.http.socket.frames import AckFrame, Ref, Refused, ServerFrame, SocketLimits, WindowTimes
from queen.http.socket.subscription import Subscription, subscribed, subscription_of
from queen.log import ids
from queen.log.requests import QUEUE_MODE, Ack, AckItem, AckResult, Pop, Popped, RenewLease
from queen.log.requests import Renewed as LeaseRenewed
from queen.security.keyring import Keyring

log = logging.getLogger("queen.http")

#: Keys of the ASGI scope: an event that is set while the client has read all that was sent, an event that is set when
#: the server drops the client for lack of memory, and a function that sends several texts. Not every server has them.
DRAINED, GIVEN_UP, WRITE = "queen.drained", "queen.given_up", "queen.write"

GOING_AWAY, INTERNAL_ERROR, TRY_AGAIN_LATER = 1001, 1011, 1013

#: Memory for pending frames of one socket, by the estimate of ``queen.http.room``; beyond it the socket is not read. It
#: is that of 16 frames that are too small to count for the worker.
_UNDER_WAY_BYTES = 16 * SMALL_BYTES
#: When a lease of unknown length is checked first; and the shortest pause between two checks.
_LEASE_LOOK_S, _LEASE_PAUSE_S = 1.0, 0.2
#: Pause before a delivery is restarted that failed because PostgreSQL was unavailable.
_FAILED_PAUSE_S = 1.0
#: For this long, frames that were sent before the shutdown are still read.
_LAST_WORDS_S = 0.2
#: Timeout for the close frame, if the client does not read.
_CLOSE_S = 1.0


_PLACE = attrgetter("partition_id", "lease")
_SAME = attrgetter("partition_id", "lease", "group", "status")


class _Asked(msgspec.Struct):
    """A pending ack frame.

    Attributes:
        own, size: its memory in the room of the socket, and in that of the worker.
    """

    ref: Ref
    items: Sequence[AckItem]
    own: int
    size: int

    def goes_with(self, other: "_Asked") -> bool:
        """Whether both complete one message of the same cursor and lease: then both succeed or fail."""
        if len(self.items) != 1 or len(other.items) != 1:
            return False
        return self.items[0].status == "completed" and _SAME(self.items[0]) == _SAME(other.items[0])


class SessionSettings(msgspec.Struct, frozen=True):
    """Settings of all sockets.

    Attributes:
        subscription_mode: where a new group starts by default.
        look_first_s, look_limit_s: first and longest pause between two attempts for windows.
    """

    limits: SocketLimits
    subscription_mode: str
    look_first_s: float
    look_limit_s: float


class Session:
    """The session of one WebSocket consumer; a ``Consumer`` for its delivery.

    It submits the same jobs as HTTP requests. When it ends, it releases its messages in flight with ``retry``, because
    nobody can acknowledge them on a closed socket.
    """

    def __init__(
        self,
        engine: EngineHandle,
        req: QueenRequest,
        ws: falcon.asgi.WebSocket,
        settings: SessionSettings,
        keys: Keyring | None,
    ) -> None:
        self._engine, self._req, self._ws, self._settings, self._keys = engine, req, ws, settings, keys
        self._credit = Credit(0)
        self._interrupt, self._freed = asyncio.Event(), asyncio.Event()
        extensions = req.scope.get("extensions", {})
        self._drained: asyncio.Event | None = extensions.get(DRAINED)
        self._write: Callable[[Iterable[bytes]], None] | None = extensions.get(WRITE)
        self._given_up: asyncio.Event = extensions.get(GIVEN_UP) or asyncio.Event()
        self._ended = asyncio.Event()
        self._close_code: int | None = None
        self._group = QUEUE_MODE
        self._subscription, self._since = Pop(""), datetime.now(UTC)
        self._delivery: asyncio.Task[None] | None = None
        self._delivering = False
        self._under_way = Room(bytes_max=_UNDER_WAY_BYTES, retry_timeout_s=None, small_bytes=0)
        self._tasks: set[asyncio.Task[None]] = set()
        #: Acks read in this iteration of the event loop.
        self._together: list[_Asked] = []
        self._looks: dict[UUID, asyncio.TimerHandle] = {}
        self._batches = 0

    # ------------------------------------------------------------ life

    async def run(self) -> None:
        """Returns when the socket is closed and its messages in flight are released."""
        reader = asyncio.create_task(self._read())
        ended = asyncio.create_task(self._ended.wait())
        given_up = asyncio.create_task(self._given_up.wait())
        try:
            await self._send(frames.Welcome(frames.PROTOCOL, self._settings.limits))
            await asyncio.wait({reader, ended, given_up}, return_when=asyncio.FIRST_COMPLETED)
            if not reader.done() and self._close_code == GOING_AWAY:
                await self._end_delivery()
                await asyncio.wait({reader}, timeout=_LAST_WORDS_S)
        finally:
            for task in (reader, ended, given_up):
                task.cancel()
            await asyncio.shield(self._finish())

    def end(self, code: int) -> None:
        """Starts to close the socket from the server's side."""
        if self._close_code is None:
            self._close_code = code
        self._ended.set()

    async def _finish(self) -> None:
        await self._end_delivery()
        self._submit_acks()
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        for timer in self._looks.values():
            timer.cancel()
        await self._release()
        if not self._ws.closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._ws.close(self._close_code)

    async def _release(self) -> None:
        """Releases leases. One ``retry`` per partition is enough: it ends the lease of all its messages."""
        items = [
            self._ack_item(held.lease, held.part_id, min(held.offsets), "retry", None) for held in self._credit.held
        ]
        if items:
            try:
                await self._engine.submit(JobType.ACK, Ack(items, alone=False)).future
            except QueenError as problem:
                text = "Leases of a closed WebSocket could not be released; they expire by themselves: %s"
                log.warning(text, problem, extra=self._req.log_fields)

    # ------------------------------------------------------------ frames

    async def _read(self) -> None:
        # No frame is kept in memory while waiting for the next one.
        with contextlib.suppress(falcon.WebSocketDisconnected):
            while True:
                if self._drained is not None:
                    await self._drained.wait()  # a client that does not read answers is not read either
                await self._begin(await self._receive())

    async def _receive(self) -> bytes:
        while True:
            try:
                return (await self._ws.receive_text()).encode("utf-8", "replace")
            except falcon.PayloadTypeError:
                await self._refuse(UNSET, BadRequestError("Frames must be text frames with JSON in UTF-8"))

    async def _begin(self, body: bytes) -> None:
        """Handles a frame; database work runs concurrently with reading, while there is room for it."""
        own = await self._under_way.enter(body)
        size, goes_on = 0, False
        try:
            size = await self._req.room.enter(body) if own > SMALL_BYTES else 0
            frame = frames.parse_frame(body)
            match frame:
                case frames.AckFrame():
                    self._gather(_Asked(frame.ref, self._ack_items(frame), own, size))
                    goes_on = True
                case frames.Renew():
                    self._track(self._carry_out(self._renew(frame), frame.ref, own, size))
                    goes_on = True
                case _:
                    await self._handle(frame)
        except QueenError as problem:
            await self._refuse(frames.ref_of(body), problem)
        finally:
            if not goes_on:
                self._end_frame(own, size)

    def _end_frame(self, own: int, size: int) -> None:
        self._under_way.leave(own)
        if size:
            self._req.room.leave(size)

    async def _handle(self, frame: frames.ClientFrame) -> None:
        match frame:
            case frames.Subscribe():
                await self._subscribe(frame)
            case frames.SetCredit():
                await self._set_credit(frame)
            case frames.Unsubscribe():
                await self._end_delivery()
                await self._send(frames.Unsubscribed(frame.ref, len(self._credit)))
            case frames.Ping():
                await self._send(frames.Pong(frame.ref))

    async def _carry_out(self, work: Coroutine[Any, Any, None], ref: Ref, own: int, size: int) -> None:
        try:
            await work
        except QueenError as problem:
            await self._refuse(ref, problem)
        except Exception as problem:
            self._fail(problem)
        finally:
            self._end_frame(own, size)

    def _fail(self, problem: Exception) -> None:
        log.error("A WebSocket failed", exc_info=problem, extra=self._req.log_fields)
        self.end(INTERNAL_ERROR)

    async def _refuse(self, ref: "Ref | msgspec.UnsetType", problem: QueenError) -> None:
        await self._send(frames.ErrorFrame(ref, problems.describe(problem, self._req)))

    async def _send(self, frame: ServerFrame) -> None:
        await self._send_texts([frames.render_frame(frame)])

    async def _send_texts(self, texts: Iterable[bytes]) -> None:
        """Sends frames."""
        try:
            if self._write is not None:
                self._write(texts)
                return
            for text in texts:
                await self._ws.send_text(text.decode())
        except (falcon.WebSocketDisconnected, OSError):
            self.end(INTERNAL_ERROR)

    # ------------------------------------------------------------ delivery

    async def _subscribe(self, frame: frames.Subscribe) -> None:
        if self._delivery is not None and not self._delivery.done():
            raise BadRequestError("This socket already has a subscription. Unsubscribe first, or open another socket")
        subscription = subscription_of(frame, self._settings.limits.credit, self._settings.subscription_mode)
        self._group = subscription.pop.group
        self._credit.limit = subscription.credit
        self._delivering = True
        self._subscription, self._since = subscription.pop, datetime.now(UTC)
        SUBSCRIPTIONS.add(self)
        await self._send(subscribed(frame, subscription))
        self._delivery = asyncio.create_task(self._deliver(subscription))

    async def _deliver(self, subscription: Subscription) -> None:
        while self.is_open:
            try:
                if subscription.window is None:
                    await deliver_batches(self, subscription)
                else:
                    first_s, limit_s = self._settings.look_first_s, self._settings.look_limit_s
                    await Windows(self, subscription, subscription.window, first_s, limit_s).deliver()
            except QueenError as problem:
                await self._refuse(None, problem)
                await self.wait(_FAILED_PAUSE_S)
            except Exception as problem:
                self._fail(problem)
                return

    async def _end_delivery(self) -> None:
        """Returns when the delivery has ended."""
        self._delivering = False
        SUBSCRIPTIONS.remove(self)
        self._disturb()
        if self._delivery is not None:
            await asyncio.wait({self._delivery})

    async def _set_credit(self, frame: frames.SetCredit) -> None:
        most = self._settings.limits.credit
        if not 0 <= frame.messages <= most:
            raise BadRequestError(f"messages must be from 0 to {most}, not {frame.messages}", "messages")
        self._credit.limit = frame.messages
        self._disturb()
        await self._send(frames.CreditSet(frame.ref, frame.messages, len(self._credit)))

    def _disturb(self) -> None:
        """Wakes the delivery after a change of credit or subscription."""
        self._interrupt.set()
        self._freed.set()

    def connected(self) -> Connected:
        """What is reported of a subscribed consumer."""
        pop = self._subscription
        client = address(self._req.scope.get("client"))
        return Connected(
            pop.queue, pop.namespace, pop.task, pop.group, "webSocket", client, self._since, len(self._credit)
        )  # fmt: skip

    @property
    def is_open(self) -> bool:
        """Whether messages may be delivered."""
        return self._delivering and not self._ended.is_set() and not self._ws.closed

    @property
    def room(self) -> int:
        """How many more messages the consumer may get."""
        return self._credit.room

    async def wait(self, seconds: float | None) -> None:
        """Returns when credit or subscription change, or after the given time."""
        try:
            async with asyncio.timeout(seconds):
                await self._freed.wait()
        except TimeoutError:
            return
        self._freed.clear()

    async def pop(self, pop: Pop) -> Popped:
        """The answer to a pop, sent when the client has read the previous one; empty after a change."""
        self._interrupt.clear()
        if self._drained is not None and not self._drained.is_set():
            await self._until_interrupted(asyncio.ensure_future(self._drained.wait()))
            if not self._drained.is_set():
                return Popped()
        job = self._engine.submit(JobType.POP, pop)
        await self._until_interrupted(job.future)
        if not job.future.done():
            abandon(self._engine, job)
            return Popped()
        return await job.future  # type: ignore[no-any-return]

    async def _until_interrupted(self, something: "asyncio.Future[Any]") -> None:
        """Waits until something changes."""
        interrupt = asyncio.ensure_future(self._interrupt.wait())
        await asyncio.wait({something, interrupt}, return_when=asyncio.FIRST_COMPLETED)
        interrupt.cancel()

    async def now(self) -> datetime:
        """The database's clock; of several databases, the first that is available."""

        async def read(context: Context) -> datetime:
            up = next((each for _, each in context.named() if not each.unavailable), context)
            return await up.with_retries(lambda _again: up.database.now())

        return await self._engine.submit(JobType.CUSTOM, read).future  # type: ignore[no-any-return]

    async def give_back(self, popped: Popped) -> None:
        """Undoes a pop: releases its messages, without counting the delivery."""
        group = self._group
        await self._engine.submit(JobType.CUSTOM, lambda context: give_back(context, popped, group)).future

    async def give(self, popped: Popped, window: WindowTimes | None = None) -> None:
        """Sends a batch; its messages are now in flight."""
        assert popped.lease is not None  # noqa: S101 - a socket never asks for autoAck
        self._batches += 1
        for claim in popped.claims:
            messages = list(messages_of(claim))
            names = {name: offset for offset, _, name in messages if name is not None}
            offsets = [offset for offset, _, _ in messages]
            self._credit.give(self._batches, popped.lease, claim, offsets, names)
        self._look_later(popped.lease, _LEASE_LOOK_S)
        more = b',"window":%b' % msgspec.json.encode(window) if window is not None else b""
        body = render_pop(popped, self._group, more, self._keys)
        await self._send_texts([b'{"type":"batch","batch":%d,%b' % (self._batches, body[1:])])

    # ------------------------------------------------------------ leases

    def _look_later(self, lease: UUID, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._looks[lease] = loop.call_later(seconds, lambda: self._track(self._look(lease)))

    def _track(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look(self, lease: UUID) -> None:
        """Drops messages whose lease has expired from those in flight.

        A renewal by nothing asks the database whether a lease has expired.
        """
        try:
            renewed: LeaseRenewed = await self._engine.submit(JobType.RENEW_LEASE, RenewLease(str(lease), 0)).future
        except QueenError:
            self._look_later(lease, _FAILED_PAUSE_S)
            return
        if not self._credit.holds(lease) or self._ended.is_set():
            return
        if renewed.expires_at is None:
            self._credit.end(lease)
            self._freed_some()
        else:
            rest_s = (renewed.expires_at - datetime.now(UTC)).total_seconds()
            self._look_later(lease, max(rest_s, _LEASE_PAUSE_S))

    async def _renew(self, frame: frames.Renew) -> None:
        request = renewal(frame.leaseId, frame.seconds)
        renewed: LeaseRenewed = await self._engine.submit(JobType.RENEW_LEASE, request).future
        end = timestamp(renewed.expires_at, 3) if renewed.expires_at is not None else None
        error = None if end else "Lease not found or expired"
        await self._send(frames.Renewed(frame.ref, frame.leaseId, end is not None, end, error))

    # ------------------------------------------------------------ acks

    def _ack_item(self, lease: UUID, part_id: int, offset: int, status: str, error: str | None) -> AckItem:
        name, partition_id = ids.message_id(part_id, offset), ids.partition_id(part_id)
        return AckItem(name, partition_id, self._group, str(lease), status, error)

    def _ack_items(self, frame: AckFrame) -> list[AckItem]:
        """The acks of a frame; an ack of a batch covers its messages that are still in flight."""
        group = check_group(frame.consumerGroup, "consumerGroup", QUEUE_MODE) if frame.consumerGroup else self._group
        if (frame.batch is None) == (frame.acknowledgments is None):
            raise BadRequestError("An ack needs either batch or acknowledgments", "batch")
        if frame.acknowledgments is not None:
            return to_ack_items(frame.acknowledgments, group)
        held = list(self._credit.of_batch(frame.batch or 0))
        if not held:
            raise BadRequestError(
                f"Batch {frame.batch} has no messages in flight: they are acknowledged already, or the lease has "
                "expired",
                "batch",
            )
        status = frame.status or "completed"
        return [self._ack_item(each.lease, each.part_id, offset, status, frame.error) for each, offset in held]

    def _gather(self, asked: _Asked) -> None:
        """Combines acks that are read in one iteration of the event loop into one job, if they are compatible."""
        if self._together and not asked.goes_with(self._together[-1]):
            self._submit_acks()
        if not self._together:
            asyncio.get_running_loop().call_soon(self._submit_acks)
        self._together.append(asked)

    def _submit_acks(self) -> None:
        together, self._together = self._together, []
        if together:
            self._submit(together)

    def _submit(self, together: Sequence[_Asked]) -> None:
        items = [item for asked in together for item in asked.items]
        self._track(self._acknowledge(together, items, self._engine.submit(JobType.ACK, Ack(items, alone=False))))

    async def _acknowledge(self, together: Sequence[_Asked], items: Sequence[AckItem], job: Job) -> None:
        try:
            acked = await job.future
        except QueenError as problem:
            if len(together) > 1 and isinstance(problem, DataRejectedError | TooSlowError):
                for asked in together:  # each by itself
                    self._submit([asked])
                return
            for asked in together:
                await self._refuse(asked.ref, problem)
        except Exception as problem:
            self._fail(problem)
        else:
            await self._answer_acks(together, items, acked.results)
        for asked in together:
            self._end_frame(asked.own, asked.size)

    async def _answer_acks(
        self, together: Sequence[_Asked], items: Sequence[AckItem], results: Sequence[AckResult]
    ) -> None:
        places, begin, texts = self._places(items), 0, []
        for asked in together:
            end = begin + len(asked.items)
            own = results[begin:end]
            refused = [
                Refused(index, item.transaction_id, item.partition_id, result.problem)
                for index, (item, result) in enumerate(zip(asked.items, own, strict=True))
                if result.problem is not None
            ]
            acked, dead = len(own) - len(refused), sum(result.dead for result in own)
            for (held, offset), result in zip(places[begin:end], own, strict=True):
                if held is not None:
                    self._settle(held, offset, result)
            frame = frames.AckedFrame(asked.ref, acked, dead, refused, len(self._credit))
            texts.append(frames.render_frame(frame))
            begin = end
        # No await before the answer is sent: a client that counts answers never has more in flight than its credit.
        await self._send_texts(texts)
        self._freed_some()

    def _places(self, items: Sequence[AckItem]) -> list[tuple[Held | None, int | None]]:
        """Per ack: the messages in flight under its lease, and the offset of its message, if known."""
        found: list[tuple[Held | None, int | None]] = []
        for (partition_id, lease_id), same in groupby(items, _PLACE):
            names = [item.transaction_id for item in same]
            part_id, lease = ids.parse_partition_id(partition_id), lease_of(lease_id)
            held = self._credit.find(lease, part_id) if lease is not None and part_id is not None else None
            if held is None:
                found += [(None, None)] * len(names)
                continue
            for name, offset in zip(names, ids.offsets_of(names, held.part_id), strict=True):
                found.append((held, offset if offset is not None else held.names.get(name)))
        return found

    def _settle(self, held: Held, offset: int | None, result: AckResult) -> None:
        """Updates the messages in flight after an ack, or after its refusal."""
        if result.problem == INVALID_LEASE or result.released:
            self._credit.end(held.lease, held.part_id)
        elif offset is not None and result.problem in (None, ALREADY_COMPLETED):
            self._credit.settle(held.lease, held.part_id, offset)

    def _freed_some(self) -> None:
        """Continues after messages were finished: there may be credit, and leases that need no more checks."""
        for lease in [lease for lease in self._looks if not self._credit.holds(lease)]:
            self._looks.pop(lease).cancel()
        self._freed.set()
