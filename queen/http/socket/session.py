"""One WebSocket: frames in, frames out, and what its consumer holds."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import falcon
import falcon.asgi
import msgspec
from msgspec import UNSET

from queen.core import ids
from queen.core.credit import Credit
from queen.core.errors import BadRequestError, QueenError
from queen.core.operations import QUEUE_MODE, Ack, AckItem, AckResult, JobType, Pop, Popped, RenewLease
from queen.core.operations import Renewed as LeaseRenewed
from queen.engine.context import Context
from queen.engine.handlers.ack import ALREADY_COMPLETED, INVALID_LEASE, lease_of
from queen.engine.handlers.give_back import give_back
from queen.engine.thread import EngineThread
from queen.http import problems
from queen.http.disconnect import abandon
from queen.http.parsing import check_group
from queen.http.rendering import render_pop, timestamp
from queen.http.request import QueenRequest
from queen.http.resources.ack import to_ack_items
from queen.http.resources.leases import renewal
from queen.http.room import SMALL_BYTES, Room
from queen.http.socket import frames
from queen.http.socket.delivery import Windows, deliver_batches, messages_of
from queen.http.socket.frames import AckFrame, Ref, Refused, ServerFrame, SocketLimits, WindowTimes
from queen.http.socket.subscription import Subscription, subscribed, subscription_of
from queen.security.keyring import Keyring

log = logging.getLogger("queen.http")

#: Where a scope of ASGI has an event that is set while the client has read what was sent to it, and one that is set
#: when the server has given the client up for lack of room. Not every server has them.
DRAINED, GIVEN_UP = "queen.drained", "queen.given_up"

GOING_AWAY, INTERNAL_ERROR, TRY_AGAIN_LATER = 1001, 1011, 1013

#: What the frames of one socket that are under way may take, by the estimate of ``queen.http.room``; then it is read no
#: further. As much as 16 take that are too small to count among those of the worker.
_UNDER_WAY_BYTES = 16 * SMALL_BYTES
#: When a lease whose length is not known is looked at first; and the shortest pause between two looks.
_LEASE_LOOK_S, _LEASE_PAUSE_S = 1.0, 0.2
#: A delivery that has failed, because PostgreSQL is away, is begun again after this time.
_FAILED_PAUSE_S = 1.0
#: Frames that were on their way when the server began to stop are still taken for this time.
_LAST_WORDS_S = 0.2
#: A close frame that cannot be sent within this time, because nobody reads, is not sent.
_CLOSE_S = 1.0


class SessionSettings(msgspec.Struct, frozen=True):
    """What all sockets share.

    Attributes:
        subscription_mode: where a group starts that does not say.
        look_first_s, look_limit_s: pauses between two looks for windows.
    """

    limits: SocketLimits
    subscription_mode: str
    look_first_s: float
    look_limit_s: float


class Session:
    """The consumer at the other end of a WebSocket; a ``Consumer`` for its delivery.

    Everything goes through the same jobs as over HTTP. Its messages are held under leases, and what it holds when it
    ends is given back by saying ``retry``: nobody can ack on a socket that is gone.
    """

    def __init__(
        self,
        engine: EngineThread,
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
        self._given_up: asyncio.Event = extensions.get(GIVEN_UP) or asyncio.Event()
        self._ended = asyncio.Event()
        self._close_code: int | None = None
        self._group = QUEUE_MODE
        self._delivery: asyncio.Task[None] | None = None
        self._delivering = False
        self._under_way = Room(bytes_max=_UNDER_WAY_BYTES, patience_s=None, small_bytes=0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._looks: dict[UUID, asyncio.TimerHandle] = {}
        self._batches = 0

    # ------------------------------------------------------------ life

    async def run(self) -> None:
        """Returns when the socket is at an end and everything that it held is given back."""
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
        """Begins the end from our side."""
        if self._close_code is None:
            self._close_code = code
        self._ended.set()

    async def _finish(self) -> None:
        await self._end_delivery()
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
        """One ``retry`` ends the lease of a partition; the others under it come again without being mentioned."""
        items = [
            self._ack_item(held.lease, held.part_id, min(held.offsets), "retry", None) for held in self._credit.held
        ]
        if items:
            try:
                await self._engine.submit(JobType.ACK, Ack(items)).future
            except QueenError as problem:
                text = "What a WebSocket held is not given back, its leases end by themselves: %s"
                log.warning(text, problem, extra=self._req.log_fields)

    # ------------------------------------------------------------ frames

    async def _read(self) -> None:
        # No frame is kept here while the next is waited for.
        with contextlib.suppress(falcon.WebSocketDisconnected):
            while True:
                if self._drained is not None:
                    await self._drained.wait()  # who reads no answers is asked for no more
                await self._begin(await self._receive())

    async def _receive(self) -> bytes:
        while True:
            try:
                return (await self._ws.receive_text()).encode("utf-8", "replace")
            except falcon.PayloadTypeError:
                await self._refuse(UNSET, BadRequestError("Frames must be text: JSON in UTF-8"))

    async def _begin(self, body: bytes) -> None:
        """Carries out a frame; what needs the database beside the reading of others, while there is room for it."""
        own = await self._under_way.enter(body)
        size, work = 0, None
        try:
            size = await self._req.room.enter(body)
            frame = frames.parse_frame(body)
            match frame:
                case frames.AckFrame():
                    work = self._acknowledge(frame, self._ack_items(frame))
                case frames.Renew():
                    work = self._renew(frame)
                case _:
                    await self._handle(frame)
        except QueenError as problem:
            await self._refuse(frames.ref_of(body), problem)
        finally:
            if work is None:
                self._end_frame(own, size)
        if work is not None:
            self._track(self._carry_out(work, frame.ref, own, size))

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
        await self._send_text(frames.render_frame(frame))

    async def _send_text(self, text: str) -> None:
        """Sends a frame."""
        try:
            await self._ws.send_text(text)
        except (falcon.WebSocketDisconnected, OSError):
            self.end(INTERNAL_ERROR)

    # ------------------------------------------------------------ delivery

    async def _subscribe(self, frame: frames.Subscribe) -> None:
        if self._delivery is not None and not self._delivery.done():
            raise BadRequestError("This socket has a subscription already: unsubscribe first, or open another socket")
        subscription = subscription_of(frame, self._settings.limits.credit, self._settings.subscription_mode)
        self._group = subscription.pop.group
        self._credit.limit = subscription.credit
        self._delivering = True
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
        """Returns when nothing more is delivered."""
        self._delivering = False
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
        """What the delivery waits for is no longer what is wanted."""
        self._interrupt.set()
        self._freed.set()

    @property
    def is_open(self) -> bool:
        """Whether anything is to be delivered."""
        return self._delivering and not self._ended.is_set() and not self._ws.closed

    @property
    def room(self) -> int:
        """How many more messages the consumer may be given."""
        return self._credit.room

    async def wait(self, seconds: float | None) -> None:
        """Returns when credit or subscription have changed, or after that time."""
        try:
            async with asyncio.timeout(seconds):
                await self._freed.wait()
        except TimeoutError:
            return
        self._freed.clear()

    async def pop(self, pop: Pop) -> Popped:
        """The answer to a pop, made when the client has read the one before; empty when something has changed."""
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
        """Waits, but not longer than until something has changed."""
        interrupt = asyncio.ensure_future(self._interrupt.wait())
        await asyncio.wait({something, interrupt}, return_when=asyncio.FIRST_COMPLETED)
        interrupt.cancel()

    async def now(self) -> datetime:
        """The database's clock."""

        async def read(context: Context) -> datetime:
            return await context.patiently(lambda _again: context.database.now())

        return await self._engine.submit(JobType.CUSTOM, read).future  # type: ignore[no-any-return]

    async def give_back(self, popped: Popped) -> None:
        """Takes a pop back as if it had not been made."""
        group = self._group
        await self._engine.submit(JobType.CUSTOM, lambda context: give_back(context, popped, group)).future

    async def give(self, popped: Popped, window: WindowTimes | None = None) -> None:
        """Sends a batch; from now on its messages are held."""
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
        await self._send_text((b'{"type":"batch","batch":%d,%b' % (self._batches, body[1:])).decode())

    # ------------------------------------------------------------ leases

    def _look_later(self, lease: UUID, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._looks[lease] = loop.call_later(seconds, lambda: self._track(self._look(lease)))

    def _track(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look(self, lease: UUID) -> None:
        """What is held under a lease that has ended is held no longer.

        The database says whether it has: a renewal by nothing asks.
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
        """The acks of a frame; those of a batch speak for what is held of it."""
        group = check_group(frame.consumerGroup, "consumerGroup", QUEUE_MODE) if frame.consumerGroup else self._group
        if (frame.batch is None) == (frame.acknowledgments is None):
            raise BadRequestError("An ack needs batch or acknowledgments, and not both", "batch")
        if frame.acknowledgments is not None:
            return to_ack_items(frame.acknowledgments, group)
        held = list(self._credit.of_batch(frame.batch or 0))
        if not held:
            raise BadRequestError(f"Nothing of batch {frame.batch} is held: acked already, or its lease ended", "batch")
        status = frame.status or "completed"
        return [self._ack_item(each.lease, each.part_id, offset, status, frame.error) for each, offset in held]

    async def _acknowledge(self, frame: AckFrame, items: list[AckItem]) -> None:
        acked = await self._engine.submit(JobType.ACK, Ack(items)).future
        refused = [
            Refused(index, item.transaction_id, item.partition_id, result.problem)
            for index, (item, result) in enumerate(zip(items, acked.results, strict=True))
            if result.problem is not None
        ]
        dead = sum(result.dead for result in acked.results)
        for item, result in zip(items, acked.results, strict=True):
            self._settle(item, result)
        # Nothing is awaited between this and the sending: who counts by the answers never finds more than its credit.
        await self._send(frames.AckedFrame(frame.ref, len(items) - len(refused), dead, refused, len(self._credit)))
        self._freed_some()

    def _settle(self, item: AckItem, result: AckResult) -> None:
        """What an ack, or its refusal, says of what is held."""
        part_id, lease = ids.parse_partition_id(item.partition_id), lease_of(item.lease)
        held = self._credit.find(lease, part_id) if lease is not None and part_id is not None else None
        if held is None:
            return
        place = ids.parse_message_id(item.transaction_id)
        offset = place[1] if place is not None and place[0] == part_id else held.names.get(item.transaction_id)
        if result.problem == INVALID_LEASE or result.released:
            self._credit.end(held.lease, held.part_id)
        elif offset is not None and result.problem in (None, ALREADY_COMPLETED):
            self._credit.settle(held.lease, held.part_id, offset)

    def _freed_some(self) -> None:
        """There may be room, and leases that nobody has to look at any more."""
        for lease in [lease for lease in self._looks if not self._credit.holds(lease)]:
            self._looks.pop(lease).cancel()
        self._freed.set()
