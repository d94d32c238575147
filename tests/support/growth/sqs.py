"""Worlds of SQS, and the calls that meet them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

from queen.simple_mq.sqs_storage import ReceiveColumns, SendColumns, SqsAdministrationStore, SqsStore, StoredMessage
from tests.support.growth.measure import Case, Growth, Shape
from tests.support.growth.world import World

_LATER = timedelta(hours=1)
#: More than the calls take, also in the smallest world.
_SOME = 60


@dataclass
class Queues:
    """Queues of SQS; of the first what was received."""

    ids: list[UUID]
    n: int
    fifo: bool = False
    received: list[tuple[UUID, int]] = field(default_factory=list)


def given(name: str, call: Callable[[World, Queues], Awaitable[object]]) -> Case:
    return Case(name, call)  # type: ignore[arg-type]


def stored(name: str, call: Callable[[World, Queues], Awaitable[object]]) -> Case:
    return Case(name, call, Growth.STORED)  # type: ignore[arg-type]


def store(w: World) -> SqsStore:
    return SqsStore(w.meter.pool)


def administration(w: World) -> SqsAdministrationStore:
    return SqsAdministrationStore(w.meter.pool)


async def made(w: World, n: int, queues: int = 1, *, fifo: bool = False, **attributes: str) -> Queues:
    ids = [uuid4() for _ in range(queues)]
    settings = {"VisibilityTimeout": "43200"} | attributes
    for number, id_ in enumerate(ids):
        await administration(w).create_queue(id_, f"queue{number:06}{'.fifo' * fifo}", settings, {}, fifo=fifo)
    return Queues(ids, n, fifo)


def sent(queues: Sequence[UUID], groups: Sequence[str | None], deduplication: str = "", delay: int = 0) -> SendColumns:
    """One call, a request for each queue with as many messages as groups."""
    columns = SendColumns(uuid4(), list(queues))
    for number in range(1, len(queues) + 1):
        for place, group in enumerate(groups):
            columns.request.append(number)
            columns.data.append("an order")
            columns.attributes.append(b"{}")
            columns.key_id.append(None)
            columns.delay.append(delay)
            columns.group.append(group)
            columns.deduplication.append(f"{deduplication}{place}" if deduplication else None)
    return columns


async def receive(w: World, queues: Sequence[UUID], limit: int, attempt: str | None = None) -> list[StoredMessage]:
    n = len(queues)
    found, _ = await store(w).receive(
        ReceiveColumns(list(queues), [limit] * n, [None] * n, [attempt] * n, [10_000_000] * n)
    )
    return [message for of_one in found for message in of_one]


# ---------------------------------------------------------------------- calls


async def send_many(w: World, q: Queues) -> None:
    groups = [f"g{number}" for number in range(q.n)] if q.fifo else [None] * q.n
    await store(w).send(sent(q.ids[:1], groups, "new" if q.fifo else ""))


async def send_one(w: World, q: Queues) -> None:
    await store(w).send(sent(q.ids[:1], ["g0" if q.fifo else None], "new" if q.fifo else ""))


async def send_duplicate(w: World, q: Queues) -> None:
    await store(w).send(sent(q.ids[:1], ["g0"], "d"))


async def receive_ten(w: World, q: Queues) -> None:
    assert len(await receive(w, q.ids[:1], 10)) == 10


async def receive_nothing(w: World, q: Queues) -> None:
    assert not await receive(w, q.ids[:1], 10)


async def receive_attempt(w: World, q: Queues) -> None:
    assert await receive(w, q.ids[:1], 10, "a") == await receive(w, q.ids[:1], 10, "a")


async def receive_late(w: World, q: Queues) -> None:
    """All that was hidden is visible, up to the thousand that a call looks at."""
    await w.set_clock(await w.now(24 * _LATER))
    assert len(await receive(w, q.ids[:1], 10)) == 10


async def receive_each(w: World, q: Queues) -> None:
    assert len(await receive(w, q.ids, 1)) == len(q.ids)


def _columns(q: Queues, most: int) -> tuple[list[UUID], list[UUID], list[int]]:
    handles = q.received[:most]
    return q.ids[:1] * len(handles), [id_ for id_, _ in handles], [count for _, count in handles]


async def delete_all(w: World, q: Queues) -> None:
    assert {outcome for outcome, _ in await store(w).delete(*_columns(q, q.n))} == {"deleted"}


async def delete_one(w: World, q: Queues) -> None:
    assert [outcome for outcome, _ in await store(w).delete(*_columns(q, 1))] == ["deleted"]


async def change_all(w: World, q: Queues) -> None:
    assert set(await store(w).change_visibility(*_columns(q, q.n), [60] * q.n)) == {"changed"}


async def change_one(w: World, q: Queues) -> None:
    assert await store(w).change_visibility(*_columns(q, 1), [60]) == ["changed"]


async def give_back_all(w: World, q: Queues) -> None:
    await store(w).give_back(q.ids[0], q.received)


async def figures(w: World, q: Queues) -> None:
    assert await administration(w).figures(q.ids[0])


async def gauges(w: World, _q: Queues) -> None:
    await administration(w).statistics(10)


async def purge(w: World, q: Queues) -> None:
    assert await administration(w).purge_queue(q.ids[0], uuid4()) == "purged"


async def delete_queue(w: World, q: Queues) -> None:
    assert await administration(w).delete_queue(q.ids[0])


async def move_ten(w: World, q: Queues) -> None:
    """A step of a task that may move ten, to the end of the same queue."""
    await administration(w).start_move(uuid4(), q.ids[0], q.ids[0], 10)
    assert await administration(w).move(routes=True) == (10, q.ids[:1])


async def sweep(w: World, q: Queues) -> None:
    await w.set_clock(await w.now(24 * _LATER))
    assert await administration(w).sweep()


async def expire_some(w: World, q: Queues) -> None:
    await w.set_clock(await w.now(24 * 5 * _LATER))
    [row] = await w.meter.pool.fetch("SELECT simple_mq.sqs_expire_v1($1, 50) AS removed", await w.now(24 * 5 * _LATER))
    assert row["removed"] == 50


async def forget_some(w: World, q: Queues) -> None:
    await w.set_clock(await w.now(_LATER))
    [row] = await w.meter.pool.fetch("SELECT simple_mq.sqs_forget_v1($1, 50) AS removed", await w.now(_LATER))
    assert row["removed"] == 50


async def expire_nothing(w: World, q: Queues) -> None:
    await w.meter.pool.fetch("SELECT simple_mq.sqs_expire_v1(NULL, 50)")


async def list_ten(w: World, q: Queues) -> None:
    assert len(await administration(w).list_queues("queue", "", 10)) == 10


async def show_ten_queues(w: World, q: Queues) -> None:
    assert len(await administration(w).overview("queue", "", 10)) == 10


async def peek_ten(w: World, q: Queues) -> None:
    found = await administration(w).peek(q.ids[0], None, 10, 1 << 20)
    [(_, _, last)] = found[-1:]
    assert len(await administration(w).peek(q.ids[0], last.message_id, 10, 1 << 20)) == 10


async def find_one(w: World, q: Queues) -> None:
    assert await administration(w).find_queue("queue000003")


async def one_more(w: World, q: Queues) -> None:
    await administration(w).create_queue(uuid4(), "one more", {}, {}, fifo=False)


# ---------------------------------------------------------------------- worlds


async def full(w: World, n: int) -> Queues:
    queues = await made(w, n)
    await store(w).send(sent(queues.ids, [None] * (n + _SOME)))
    return queues


MESSAGES = Shape("messages of a queue of SQS", full, 300, (
    given("send as many", send_many),
    stored("send one", send_one),
    stored("receive ten", receive_ten),
    stored("figures", figures),
    stored("metrics", gauges),
    stored("two pages to look at", peek_ten),
    stored("purge", purge),
    stored("delete the queue", delete_queue),
    stored("a step that moves ten", move_ten),
    stored("retention of fifty", expire_some),
    stored("retention of none", expire_nothing),
))  # fmt: skip


async def in_flight(w: World, n: int) -> Queues:
    queues = await made(w, n)
    await store(w).send(sent(queues.ids, [None] * n))
    queues.received = [(message.message_id, 1) for message in await receive(w, queues.ids, n)]
    return queues


IN_FLIGHT = Shape("messages in flight of a queue of SQS", in_flight, 300, (
    given("delete all", delete_all),
    given("change all", change_all),
    given("give all back", give_back_all),
    stored("delete one", delete_one),
    stored("change one", change_one),
    stored("receive, nothing visible", receive_nothing),
    stored("send one", send_one),
    stored("figures", figures),
))  # fmt: skip


async def late(w: World, n: int) -> Queues:
    """More than a call looks at."""
    queues = await made(w, n)
    await store(w).send(sent(queues.ids, [None] * (n + 1000)))
    await receive(w, queues.ids, n + 1000)
    return queues


LATE = Shape("messages of SQS whose timeout is over", late, 500, (
    stored("receive ten", receive_late),
    stored("sweep", sweep),
))  # fmt: skip


async def delayed(w: World, n: int) -> Queues:
    queues = await made(w, n)
    await store(w).send(sent(queues.ids, [None] * n, delay=900))
    return queues


DELAYED = Shape("delayed messages of a queue of SQS", delayed, 300, (
    stored("receive, nothing visible", receive_nothing),
    stored("send one", send_one),
    stored("figures", figures),
))  # fmt: skip


async def groups(w: World, n: int) -> Queues:
    queues = await made(w, n, fifo=True)
    await store(w).send(sent(queues.ids, [f"g{number}" for number in range(n + _SOME)], "d"))
    return queues


GROUPS = Shape("message groups of a FIFO queue", groups, 300, (
    given("send one to each", send_many),
    stored("send one", send_one),
    stored("send a duplicate", send_duplicate),
    stored("receive ten", receive_ten),
    stored("receive ten, twice with an attempt id", receive_attempt),
    stored("figures", figures),
    stored("a step that moves ten", move_ten),
    stored("forget fifty deduplication ids", forget_some),
    stored("retention of fifty", expire_some),
))  # fmt: skip


async def busy_groups(w: World, n: int) -> Queues:
    """Of each the oldest message is in flight, and another one behind it; and some are free."""
    queues = await made(w, n, fifo=True)
    names = [f"g{number}" for number in range(n)]
    await store(w).send(sent(queues.ids, names, "first"))
    # As many as the engine lets a call take (queen.core.batch_policy): one of thousands takes half a minute.
    for _ in range(0, n, 100):
        queues.received += [(message.message_id, 1) for message in await receive(w, queues.ids, 100)]
    assert len(queues.received) == n
    await store(w).send(sent(queues.ids, names, "behind"))
    await store(w).send(sent(queues.ids, [f"new{number}" for number in range(_SOME)], "new"))
    return queues


BUSY_GROUPS = Shape("message groups in flight of a FIFO queue", busy_groups, 300, (
    stored("receive ten", receive_ten),
    stored("send one", send_one),
    stored("delete one", delete_one),
    stored("figures", figures),
    stored("sweep", sweep),
))  # fmt: skip


async def one_group(w: World, n: int) -> Queues:
    """Three of its messages are in flight."""
    queues = await made(w, n, fifo=True)
    await store(w).send(sent(queues.ids, ["g0"] * (n + 20), "d"))
    queues.received = [(message.message_id, 1) for message in await receive(w, queues.ids, 3)]
    return queues


async def delete_and_receive(w: World, q: Queues) -> None:
    assert [freed for _, freed in await store(w).delete(*_columns(q, 3))] == [True] * 3
    await receive_ten(w, q)


ONE_GROUP = Shape("messages of one group of a FIFO queue", one_group, 300, (
    stored("send one", send_one),
    stored("delete one", delete_one),
    stored("receive, the group is in flight", receive_nothing),
    stored("delete all in flight, receive the next", delete_and_receive),
))  # fmt: skip


async def many(w: World, n: int) -> Queues:
    queues = await made(w, n, n + _SOME)
    await store(w).send(sent(queues.ids, [None]))
    return queues


MANY = Shape("queues of SQS", many, 64, (
    given("receive from each", receive_each),
    stored("send to one", send_one),
    stored("a page of ten", list_ten),
    stored("ten with figures", show_ten_queues),
    stored("one of them by its name", find_one),
    stored("one more", one_more),
    given("retention of none", expire_nothing),
))  # fmt: skip

SQS_SHAPES = (MESSAGES, IN_FLIGHT, LATE, DELAYED, GROUPS, BUSY_GROUPS, ONE_GROUP, MANY)
