"""Acks on a WebSocket that are read together share a job, and each frame has an answer of its own."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import falcon
import pytest
from msgspec import UNSET
from websockets.frames import Frame, Opcode

from queen.core.errors import DatabaseUnavailableError, DataRejectedError, QueenError, TooSlowError
from queen.core.job_type import JobType
from queen.engine.job import Job
from queen.http.room import Room
from queen.http.socket.frames import SocketLimits
from queen.http.socket.session import GOING_AWAY, WRITE, Session, SessionSettings
from queen.log import ids
from queen.log.requests import Ack, Acked, AckItem, AckResult
from queen.server.websocket import OneTurnTransport, head_of

LEASE, OTHER = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"
SETTINGS = SessionSettings(SocketLimits(1000, 1 << 20, 20), "all", 1.0, 5.0)
Answer = Callable[[Sequence[AckItem]], "list[AckResult] | QueenError"]


def fine(items: Sequence[AckItem]) -> list[AckResult]:
    return [AckResult(None)] * len(items)


class World:
    """A client that has sent some frames at once, and an engine that answers in the next turn of the loop."""

    def __init__(self, answer: Answer, *, writes: bool = True) -> None:
        self.jobs: list[Sequence[AckItem]] = []
        self.sent: list[Any] = []
        self.closed = False
        self._answer = answer
        self._frames: asyncio.Queue[str | None] = asyncio.Queue()
        extensions = {WRITE: self._write} if writes else {}
        request = SimpleNamespace(
            scope={"extensions": extensions}, room=Room(), log_fields={}, path="/", request_id="r", is_simple_mq=False
        )
        self.session = Session(self, request, self, SETTINGS, None)  # type: ignore[arg-type]

    # ---- the engine

    def submit(self, kind: JobType, request: Ack) -> Job:
        assert kind is JobType.ACK
        self.jobs.append(request.items)
        job = Job(kind, request, asyncio.get_running_loop().create_future())
        asyncio.get_running_loop().call_soon(self._settle, job)
        return job

    def _settle(self, job: Job) -> None:
        result = self._answer(job.request.items)
        if isinstance(result, QueenError):
            job.future.set_exception(result)
        else:
            job.future.set_result(Acked(result))

    # ---- the socket

    async def receive_text(self) -> str:
        text = await self._frames.get()
        if text is None:
            raise falcon.WebSocketDisconnected
        return text

    async def send_text(self, text: str) -> None:
        self._write([text.encode()])

    def _write(self, texts: Sequence[bytes]) -> None:
        self.sent += [json.loads(text) for text in texts]

    async def close(self, code: int | None) -> None:
        self.closed = True

    # ---- the client

    async def run(self, *frames: dict[str, Any]) -> list[Any]:
        """The answers to frames that are there at once, and then the client leaves."""
        for frame in frames:
            self._frames.put_nowait(json.dumps(frame))
        self._frames.put_nowait(None)
        await self.session.run()
        return self.sent[1:]


def ack(ref: int, offset: int, *, part: int = 1, lease: str = LEASE, **fields: Any) -> dict[str, Any]:
    item = {"transactionId": ids.message_id(part, offset), "partitionId": ids.partition_id(part), "leaseId": lease}
    return {"type": "ack", "ref": ref, "acknowledgments": [item | fields]}


def offsets(jobs: Sequence[Sequence[AckItem]]) -> list[list[int]]:
    return [[int(item.transaction_id[24:], 16) for item in items] for items in jobs]


@pytest.mark.parametrize("writes", [True, False])
async def test_acks_of_one_cursor_are_one_job_and_each_has_its_answer(writes: bool) -> None:
    def one_is_refused(items: Sequence[AckItem]) -> list[AckResult]:
        return [AckResult("Message not found" if n == 1 else None) for n, _ in enumerate(items)]

    world = World(one_is_refused, writes=writes)
    answers = await world.run(*[ack(n, 10 + n) for n in range(3)])
    assert offsets(world.jobs) == [[10, 11, 12]]
    assert [(each["type"], each["ref"], each["acked"]) for each in answers] == [
        ("acked", 0, 1), ("acked", 1, 0), ("acked", 2, 1),
    ]  # fmt: skip
    assert [len(each["refused"]) for each in answers] == [0, 1, 0]
    [refused] = answers[1]["refused"]
    assert refused == {
        "index": 0, "transactionId": ids.message_id(1, 11), "partitionId": ids.partition_id(1),
        "error": "Message not found",
    }  # fmt: skip


@pytest.mark.parametrize(
    "different",
    [{"part": 2}, {"lease": OTHER}, {"status": "failed"}, {"status": "retry"}],
)
async def test_acks_that_say_something_else_are_jobs_of_their_own_in_the_order_of_their_frames(
    different: dict[str, Any],
) -> None:
    world = World(fine)
    answers = await world.run(ack(0, 0), ack(1, 1), ack(2, 2, **different), ack(3, 3), ack(4, 4))
    assert offsets(world.jobs) == [[0, 1], [2], [3, 4]]
    assert [each["ref"] for each in answers] == [0, 1, 2, 3, 4]


async def test_two_failures_of_one_cursor_and_frames_of_several_messages_stay_apart() -> None:
    world = World(fine)
    several = ack(2, 2)
    several["acknowledgments"].append(ack(2, 3)["acknowledgments"][0])
    nothing = {"type": "ack", "ref": 4, "acknowledgments": []}
    answers = await world.run(ack(0, 0, status="failed"), ack(1, 1, status="failed"), several, ack(3, 4), nothing)
    assert offsets(world.jobs) == [[0], [1], [2, 3], [4], []]
    assert [(each["ref"], each["acked"]) for each in answers] == [(0, 1), (1, 1), (2, 2), (3, 1), (4, 0)]


@pytest.mark.parametrize(("problem", "status"), [(DataRejectedError("no"), 422), (TooSlowError("slow"), 504)])
async def test_what_is_wrong_with_one_ack_is_no_fault_of_the_others(problem: QueenError, status: int) -> None:
    def not_the_second(items: Sequence[AckItem]) -> list[AckResult] | QueenError:
        return problem if any(item.transaction_id == ids.message_id(1, 1) for item in items) else fine(items)

    world = World(not_the_second)
    answers = {each["ref"]: each for each in await world.run(*[ack(n, n) for n in range(3)])}
    assert offsets(world.jobs) == [[0, 1, 2], [0], [1], [2]]
    assert [answers[ref]["type"] for ref in range(3)] == ["acked", "error", "acked"]
    assert answers[1]["problem"]["status"] == status


async def test_what_is_wrong_with_all_is_not_tried_again_for_each() -> None:
    world = World(lambda _: DatabaseUnavailableError("down"))
    answers = await world.run(*[ack(n, n) for n in range(3)])
    assert len(world.jobs) == 1
    assert [(each["type"], each["ref"], each["problem"]["status"]) for each in answers] == [
        ("error", ref, 503) for ref in range(3)
    ]


async def test_every_answered_ack_makes_room() -> None:
    """More frames than may be under way at a time: they come in several jobs, and all are answered."""
    refused = defaultdict(int)

    def now_and_then(items: Sequence[AckItem]) -> list[AckResult] | QueenError:
        refused[len(items)] += 1
        return TooSlowError("slow") if len(items) > 1 and refused[len(items)] == 1 else fine(items)

    world = World(now_and_then)
    answers = await world.run(*[ack(n, n) for n in range(500)])
    assert sorted(each["ref"] for each in answers) == list(range(500))
    assert all(each["type"] == "acked" for each in answers)
    assert max(map(len, world.jobs)) < 200


async def test_acks_that_were_read_when_the_server_stops_are_carried_out_before_the_end() -> None:
    world = World(fine)
    running = asyncio.create_task(world.session.run())
    await asyncio.sleep(0)
    world._frames.put_nowait(json.dumps(ack(0, 0)))
    world._frames.put_nowait(json.dumps(ack(1, 1)))
    world.session.end(GOING_AWAY)
    await running
    assert [each.get("ref", UNSET) for each in world.sent[1:]] == [0, 1]
    assert world.closed


# ---------------------------------------------------------------- one write


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.ended = False

    def writelines(self, pieces: Any) -> None:
        self.writes.append(b"".join(pieces))

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True


async def test_frames_of_one_loop_iteration_are_one_write() -> None:
    below = Transport()
    transport = OneTurnTransport(below, asyncio.get_running_loop())
    for turn in range(2):
        for number in range(3):
            transport.write(b"%d%d " % (turn, number))
        await asyncio.sleep(0)
    assert below.writes == [b"00 01 02 ", b"10 11 12 "]


async def test_much_is_not_held_back_and_a_close_sends_what_is() -> None:
    below = Transport()
    transport = OneTurnTransport(below, asyncio.get_running_loop())
    transport.write(b"a")
    transport.write(b"b" * 70_000)
    assert below.writes == [b"a" + b"b" * 70_000]
    transport.write(b"last")
    transport.close()
    transport.write(b"nobody reads it")
    await asyncio.sleep(0)
    assert below.writes[1:] == [b"last"]
    assert (below.ended, transport.is_closing()) == (True, True)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
def test_texts_are_framed_as_the_standard_says(size: int) -> None:
    text = b"x" * size
    assert head_of(text) + text == Frame(Opcode.TEXT, text).serialize(mask=False)
