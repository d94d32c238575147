"""What is measured: worlds that have something n times, and the calls that meet it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from queen.core.administration import (
    CursorFilter,
    CursorOrder,
    DeadLetterFilter,
    GroupBy,
    GroupFilter,
    GroupOrder,
    MessageFilter,
    MessageKey,
    Page,
    PartitionFilter,
    PartitionOrder,
    Period,
    QueueFilter,
    QueueOrder,
    QueuesOfGroup,
    Seek,
)
from queen.core.metrics import Connected, Worker
from queen.engine.ports import AckColumns, Lock, LockKind
from queen.engine.timers import push_of
from queen.engine.waiters import OFFERED_MAX
from queen.log.append import AppendBatch, lay_out
from queen.log.requests import TimerChange
from queen.log.segment import encode_entry
from queen.postgres.timers import DueTimersStore
from tests.support.clock import eventually
from tests.support.growth.measure import Case, Growth, Shape
from tests.support.growth.sqs import SQS_SHAPES
from tests.support.growth.world import GROUP, Box, Stock, World

DAY = timedelta(days=1)
EVER = Period(datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC))
_AGES = {"retention_enabled": True, "retention_seconds": 3600}
Step = Callable[[], Awaitable[object]]


def given(name: str, call: Callable[[World, Stock], Awaitable[object]]) -> Case:
    """The call gets or returns all of it."""
    return Case(name, call)  # type: ignore[arg-type]


def stored(name: str, call: Callable[[World, Stock], Awaitable[object]]) -> Case:
    """The call has nothing to do with most of it."""
    return Case(name, call, Growth.STORED)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- calls that several shapes have


def new_to_all(s: Stock) -> list[tuple[int, str | None]]:
    return [(number, f"new{number}") for number in range(len(s.parts))]


def known_to_all(s: Stock) -> list[tuple[int, str | None]]:
    return [(number, "t0") for number in range(len(s.parts))]


async def push_new(w: World, s: Stock) -> None:
    await w.push(w.flush(s, new_to_all(s)))


async def push_one(w: World, s: Stock) -> None:
    await w.push(w.flush(s, [(0, "new")]))


async def push_one_again(w: World, s: Stock) -> None:
    """Its first sending has never arrived."""
    await w.push(w.flush(s, [(0, "new")]), again=True)


async def pop_one(w: World, s: Stock) -> None:
    await w.pop(s.groups[:1])


async def pop_messages(w: World, s: Stock) -> None:
    await w.pop(s.groups[:1], batch=100_000)


async def pop_partitions(w: World, s: Stock) -> None:
    await w.pop(s.groups[:1], batch=100_000, parts=len(s.parts))


async def first_pop(w: World, s: Stock) -> None:
    await w.join(Stock(s.queue), "new")


async def first_pop_since(w: World, s: Stock) -> None:
    await w.join(Stock(s.queue), "new", "timestamp", s.times[0])


async def first_pop_new(w: World, s: Stock) -> None:
    await w.join(Stock(s.queue), "new", "new")


async def first_page(w: World, s: Stock) -> None:
    """Until a pop of one partition is served."""
    made = await w.store.subscribe(s.queue, "new", "all", None, create_queue=True, create_group=True, wanted=1)
    assert made.complete or made.ready


async def first_pop_of_one(w: World, s: Stock) -> None:
    """Of the partition that was made last."""
    made = await w.store.subscribe(
        s.queue, "new", "all", None, create_queue=True, create_group=True, part=s.parts[-1], wanted=1
    )
    assert made.complete or made.ready


async def first_page_of_seek(w: World, s: Stock) -> None:
    sought, _ = await w.groups.seek(Seek(GROUP, s.queue), 0)
    assert sought.updated


async def new_subscription(w: World, s: Stock) -> None:
    assert await w.groups.update_subscription(s.queue, GROUP, await w.now()) == (True, True)


async def seek(w: World, seek: Seek) -> None:
    after: int | None = 0
    while after is not None:
        _, after = await w.groups.seek(seek, after)


async def seek_end(w: World, s: Stock) -> None:
    await seek(w, Seek(GROUP, s.queue, to_end=True))


async def seek_begin(w: World, s: Stock) -> None:
    await seek(w, Seek(GROUP, s.queue))


async def seek_since(w: World, s: Stock) -> None:
    await seek(w, Seek(GROUP, s.queue, since=s.times[0]))


async def preview_of_seek(w: World, s: Stock) -> None:
    seen = await w.groups.preview(Seek(GROUP, s.queue))
    assert seen.partitions >= len(s.parts), seen


async def preview_of_one(w: World, s: Stock) -> None:
    await w.groups.preview(Seek(GROUP, s.queue, "000000"))


async def seek_one(w: World, s: Stock) -> None:
    await seek(w, Seek(GROUP, s.queue, partition="000000", to_end=True))


async def retention(w: World, s: Stock) -> None:
    await w.configure(s, **_AGES)
    await w.set_clock(await w.now(DAY))
    assert await w.sweep_expired(s) > 0


async def eviction(w: World, s: Stock) -> None:
    await w.configure(s, max_wait_time_seconds=3600)
    await w.set_clock(await w.now(DAY))
    assert await w.sweep_overdue(s) > 0


async def list_messages(w: World, s: Stock) -> None:
    assert await w.messages.page(MessageFilter(queue=s.queue), EVER, 100, 0)


async def list_all_messages(w: World, s: Stock) -> None:
    assert await w.messages.page(MessageFilter(queue=s.queue), EVER, 100_000, 0)


async def list_pending(w: World, s: Stock) -> None:
    await w.messages.page(MessageFilter(queue=s.queue, status="pending"), EVER, 10, 0)


async def list_past(w: World, s: Stock) -> None:
    await w.messages.page(MessageFilter(queue=s.queue), Period(EVER.begin, s.times[0]), 10, 0)


def key(s: Stock, offset: int = 0) -> MessageKey:
    return MessageKey(s.part, f"t{offset}")


async def get_message(w: World, s: Stock) -> None:
    assert await w.messages.get(key(s)) is not None


async def delete_message(w: World, s: Stock) -> None:
    assert await w.messages.delete(key(s))


async def give_up(w: World, s: Stock) -> None:
    assert (await w.messages.give_up(key(s), None, "no")).groups


async def delete_group(w: World, s: Stock) -> None:
    after: str | None = ""
    while after is not None:
        _, after = await w.groups.delete(s.queue, GROUP, after, subscription=True)


async def delete_queue(w: World, s: Stock) -> None:
    assert await w.administration.delete_queue(s.queue)


async def page_of_partitions(w: World, s: Stock) -> None:
    await w.administration.catalogue.partitions(PartitionFilter(s.queue), Page(PartitionOrder.NAME, 10))


async def search_of_partitions(w: World, s: Stock) -> None:
    await w.administration.catalogue.partitions(PartitionFilter(s.queue, search="0"), Page(PartitionOrder.PENDING, 10))


async def page_of_cursors(w: World, s: Stock) -> None:
    await w.groups.cursors(CursorFilter(GROUP), Page(CursorOrder.NAME, 10))


async def report_and_list(w: World, s: Stock) -> None:
    connected = [Connected(s.queue, None, None, GROUP, "longPoll", "x", await w.now())]
    await w.administration.statistics.record_consumers(Worker("here", 1), connected, 60)
    assert len(await w.groups.connected(s.queue, GROUP, 10, 0)) == 1


async def lag_over_time(w: World, s: Stock) -> None:
    await w.groups.lag(s.queue, GROUP, EVER, 60)


async def slowest_cursors(w: World, s: Stock) -> None:
    await w.groups.cursors(CursorFilter(GROUP, s.queue, behind=True), Page(CursorOrder.LAG, 10))


# ---------------------------------------------------------------------- partitions


async def empty_partitions(w: World, n: int) -> Stock:
    return await w.stock(n)


async def push_without_ids(w: World, s: Stock) -> None:
    await w.push(w.flush(s, [(number, None) for number in range(len(s.parts))]))


async def limited(w: World, s: Stock, messages: list[tuple[int, str | None]]) -> AppendBatch:
    columns = w.flush(s, messages)
    options = await w.store.read_push_options()
    columns.version, columns.limited = options.version, [options.limited[s.queue].queue_id]
    return columns


async def push_to_limited(w: World, s: Stock) -> None:
    await w.configure(s, max_size=1_000_000)
    await w.push(await limited(w, s, new_to_all(s)))


async def push_one_limited(w: World, s: Stock) -> None:
    await w.configure(s, max_size=1_000_000)
    await push_one_of_limited(w, s)


async def push_one_of_limited(w: World, s: Stock) -> None:
    await w.push(await limited(w, s, [(0, "new")]))


async def push_to_one_waiter(w: World, s: Stock) -> None:
    assert await w.push_to_waiters(w.flush(s, new_to_all(s)), s.groups) == 1


async def push_to_a_waiter_of_all(w: World, s: Stock) -> None:
    parts = min(len(s.parts), 1000)
    assert await w.push_to_waiters(w.flush(s, new_to_all(s)), s.groups, parts) == parts


async def push_to_many_waiters(w: World, s: Stock) -> None:
    """As many as a worker offers to a push at most."""
    groups = s.groups[:OFFERED_MAX]
    assert await w.push_to_waiters(w.flush(s, [(0, "new")]), groups) == len(groups)


async def push_again(w: World, s: Stock) -> None:
    columns = w.flush(s, new_to_all(s))
    await w.push(columns)
    await w.push(columns, again=True)


async def resolve(w: World, s: Stock) -> None:
    names = [(s.queue, f"{number:06}") for number in range(len(s.parts))]
    assert len(await w.store.resolve_partitions(names, create=True)) == len(names)


async def make(w: World, s: Stock) -> None:
    names = [(s.queue, f"more{number}") for number in range(len(s.parts))]
    assert all(part for _, part in await w.store.resolve_partitions(names, create=True))


async def describe(w: World, s: Stock) -> None:
    assert len(await w.store.describe_partitions(s.parts)) == len(s.parts)


async def execute_on_new(w: World, s: Stock) -> None:
    await w.execute(w.new_partitions(s, len(s.parts)))


async def execute_pushes(w: World, s: Stock) -> None:
    await w.execute(w.flush(s, new_to_all(s)))


async def change_delay(w: World, s: Stock) -> None:
    await w.configure(s, delayed_processing=60)


async def set_maximum(w: World, s: Stock) -> None:
    await w.configure(s, max_size=1_000_000)


def first_page_of(**options: int) -> Callable[[World, Stock], Awaitable[None]]:
    """Options that change in all partitions, until those of the first page are done."""

    async def call(w: World, s: Stock) -> None:
        configured = await w.begin_to_configure(s, **options)
        assert await w.administration.settle_queue(configured.queue_id)

    return call


async def clean_up(w: World, s: Stock) -> None:
    await w.set_clock(await w.now(DAY))
    assert await w.sweep_idle(s) == len(s.parts)


async def look_at_partitions(w: World, s: Stock) -> None:
    assert not await w.store.find_locked([Lock(LockKind.PARTITION, part) for part in s.parts])


async def look_at_partition(w: World, s: Stock) -> None:
    assert not await w.store.find_locked([Lock(LockKind.PARTITION, s.part)])


EMPTY = Shape("empty partitions", empty_partitions, 400, (
    given("push to all, of which a waiter gets one", push_to_one_waiter),
    given("push to all for a waiter", push_to_a_waiter_of_all),
    given("push to all, new ids", push_new),
    given("push to all, without ids", push_without_ids),
    given("push to all, to a queue with a maximum size", push_to_limited),
    given("push to all, sent again", push_again),
    given("resolve all", resolve),
    given("make as many more", make),
    given("describe all", describe),
    given("transaction that pushes to all", execute_pushes),
    given("transaction that makes as many", execute_on_new),
    given("first pop of a group", first_pop),
    given("seek to the end", seek_end),
    given("what a seek would do", preview_of_seek),
    stored("what a seek of one would do", preview_of_one),
    given("change of the delay", change_delay),
    given("a maximum size", set_maximum),
    given("delete the group", delete_group),
    given("clean-up", clean_up),
    given("delete the queue", delete_queue),
    given("which of all are locked", look_at_partitions),
    stored("whether one is locked", look_at_partition),
    stored("push to one", push_one),
    stored("pop of any, all idle", pop_one),
    stored("seek of one", seek_one),
    stored("new subscription time", new_subscription),
    stored("a page of partitions", page_of_partitions),
    given("partitions with most pending", search_of_partitions),
    given("cursors that are furthest behind", slowest_cursors),
    stored("a page of cursors", page_of_cursors),
    stored("connected consumers", report_and_list),
    stored("lag over time", lag_over_time),
))  # fmt: skip


async def ready_partitions(w: World, n: int) -> Stock:
    stock = await w.stock(n)
    await w.fill(stock, 2)
    return stock


async def pops_of_any(w: World, s: Stock) -> None:
    assert len(await w.pop(s.groups, pops=len(s.parts))) == len(s.parts)


async def pops_of_named(w: World, s: Stock) -> None:
    assert len(await w.pop(s.groups, pops=len(s.parts), named=s.parts)) == len(s.parts)


async def work_off(w: World, s: Stock) -> None:
    """Pops of one message each; each is completed, and the next one is prefetched."""
    leases = [uuid4() for _ in s.parts]
    delivered = await w.pop(s.groups, pops=len(leases), leased=leases)
    assert await w.complete(delivered, s.groups[0], leases) == len(leases)


async def pop_with_auto_ack(w: World, s: Stock) -> None:
    await w.pop(s.groups, batch=100_000, parts=len(s.parts), auto_ack=True)


async def pops_of_two(w: World, s: Stock) -> None:
    """Pops of two partitions each."""
    await w.pop(s.groups, pops=max(len(s.parts) // 2, 1), batch=4, parts=2)


async def push_known(w: World, s: Stock) -> None:
    await w.push(w.flush(s, known_to_all(s)))


async def push_half_known(w: World, s: Stock) -> None:
    await w.push(w.flush(s, new_to_all(s) + known_to_all(s)))


async def has_messages(w: World, s: Stock) -> None:
    await w.meter.pool.fetch("SELECT queen.has_pending_messages_v1($1, NULL, $2)", s.queue, GROUP)


async def depth_of_group(w: World, s: Stock) -> None:
    assert await w.administration.catalogue.depth(s.queue, GROUP)


READY = Shape("partitions with two messages", ready_partitions, 400, (
    stored("whether a pop would find a message", has_messages),
    given("depth of the group", depth_of_group),
    given("as many pops of any", pops_of_any),
    given("as many pops of named ones", pops_of_named),
    given("pops of two each", pops_of_two),
    given("pop of all", pop_partitions),
    given("pop of all with autoAck", pop_with_auto_ack),
    given("pop and completion of one message each, with the next", work_off),
    given("push to all, all stored before", push_known),
    given("push to all, half stored before", push_half_known),
    given("first pop of a group", first_pop),
    given("first pop of a group that begins at a time", first_pop_since),
    given("first pop of a group that begins now", first_pop_new),
    given("seek to the beginning", seek_begin),
    given("seek to a time", seek_since),
    given("seek to the end", seek_end),
    given("retention", retention),
    given("eviction", eviction),
    given("delete the queue", delete_queue),
    stored("first pop of a group, until it is served", first_page),
    stored("first pop of a group that names a partition", first_pop_of_one),
    stored("a page of a seek", first_page_of_seek),
    stored("a page of a change of the delay", first_page_of(delayed_processing=60)),
    stored("a page of a maximum size", first_page_of(max_size=1_000_000)),
    stored("push to one", push_one),
    stored("pop of any", pop_one),
    stored("a page of messages", list_messages),
    stored("a page of partitions", page_of_partitions),
))  # fmt: skip


async def partitions_of_a_group_to_come(w: World, n: int) -> Stock:
    """Messages lie before its start, and it is popped when that has come."""
    stock = await w.stock(n, group=False)
    await w.join(stock, GROUP, "timestamp", await w.now(DAY / 2))
    await w.fill(stock, 2)
    return stock


async def start(w: World, s: Stock) -> None:
    await w.set_clock(await w.now(DAY))
    await w.join(Stock(s.queue))


TO_COME = Shape("partitions of a group to come", partitions_of_a_group_to_come, 400, (
    given("first pop when its start has come", start),
    given("seek to the end", seek_end),
))  # fmt: skip


async def leased_partitions(w: World, n: int) -> Stock:
    stock = await w.stock(n)
    await w.fill(stock)
    await w.lease(stock)
    return stock


def ack_all(kinds: str, *, by_id: bool = False) -> Callable[[World, Stock], Awaitable[None]]:
    async def call(w: World, s: Stock) -> None:
        await w.ack(w.acks(s, [(part, 0) for part in s.parts], kinds, by_id))

    return call


async def execute_acks(w: World, s: Stock) -> None:
    await w.execute(w.flush(s, new_to_all(s)), w.acks(s, [(part, 0) for part in s.parts]))


async def execute_under_many(w: World, s: Stock) -> None:
    """Each ack is under one of as many leases."""
    assert s.lease is not None
    acks = w.acks(s, [(part, 0) for part in s.parts], "d")
    acks.lease = [None] * len(s.parts)
    await w.execute(w.flush(s, []), acks, required=[*(uuid4() for _ in s.parts), s.lease])


async def renew(w: World, s: Stock) -> None:
    assert s.lease is not None
    [(renewed, _)] = await w.store.renew_leases([s.lease], [100_000])
    assert renewed == len(s.parts)


async def renew_many(w: World, s: Stock) -> None:
    assert s.lease is not None
    await w.store.renew_leases([s.lease, *(uuid4() for _ in s.parts)], [100_000] * (len(s.parts) + 1))


async def release(w: World, s: Stock) -> None:
    assert s.lease is not None
    await w.store.release_leases([s.lease])


async def renew_none(w: World, _: Stock) -> None:
    [(renewed, _)] = await w.store.renew_leases([uuid4()], [100_000])
    assert renewed == 0


async def look_at_cursors(w: World, s: Stock) -> None:
    assert not await w.store.find_locked([Lock(LockKind.CURSOR, part, s.groups[0]) for part in s.parts])


async def look_at_lease(w: World, s: Stock) -> None:
    assert not await w.store.find_locked([Lock(LockKind.LEASE, name=str(s.lease))])


async def look_at_cursor(w: World, s: Stock) -> None:
    assert not await w.store.find_locked([Lock(LockKind.CURSOR, s.part, s.groups[0])])


LEASED = Shape("leased partitions", leased_partitions, 250, (
    stored("whether a pop would find a message", has_messages),
    given("ack all: completed", ack_all("c")),
    given("ack all by transaction id: completed", ack_all("c", by_id=True)),
    given("ack all: failed", ack_all("f")),
    given("ack all: every second failed", ack_all("cf")),
    given("ack all: dead letters", ack_all("d")),
    given("ack all: retry", ack_all("r")),
    given("transaction that acks all and pushes to all", execute_acks),
    given("transaction that acks all and names as many leases", execute_under_many),
    given("renewal of the lease", renew),
    given("renewal of the lease and of as many that are over", renew_many),
    given("release of the lease", release),
    given("which of all cursors are locked", look_at_cursors),
    given("whether the lease is locked", look_at_lease),
    stored("whether one cursor is locked", look_at_cursor),
    stored("renewal of a lease that is over", renew_none),
    stored("pop of any", pop_one),
    stored("push to one", push_one),
))  # fmt: skip


# ---------------------------------------------------------------------- messages of one partition


async def one_segment(w: World, n: int) -> Stock:
    stock = await w.stock(1)
    await w.fill(stock, n)
    return stock


def push_items(new: int, of: int) -> Callable[[World, Stock], Awaitable[None]]:
    """As many messages as there are stored; so many of them new, the others stored before."""

    async def call(w: World, s: Stock) -> None:
        n = s.n
        texts = [f"{'new' if number % of < new else 't'}{number}" for number in range(n)]
        await w.push(w.flush(s, [(0, text) for text in texts]))

    return call


async def counted_segment(w: World, n: int) -> Stock:
    stock = await one_segment(w, n)
    stock.n = n
    return stock


async def find_server_made(w: World, s: Stock) -> None:
    assert not any(await w.store.find_server_made([s.part] * s.n, list(range(s.n))))


ONE_SEGMENT = Shape("messages of one segment", counted_segment, 1500, (
    given("push of as many, all new", push_items(1, 1)),
    given("push of as many, half stored before", push_items(1, 2)),
    given("push of as many, one stored before", push_items(499, 500)),
    given("push of as many, all stored before", push_items(0, 1)),
    given("pop of all", pop_messages),
    given("list all", list_all_messages),
    given("delete one", delete_message),
    given("give one up", give_up),
    given("retention", retention),
    given("eviction", eviction),
    given("a page of messages", list_messages),
    given("which ids the server made", find_server_made),
    stored("pop of one", pop_one),
    stored("push of one", push_one),
    given("read one", get_message),
))  # fmt: skip


async def segments_of_one(w: World, n: int) -> Stock:
    stock = await w.stock(1)
    await w.fill(stock, 1, segments=n)
    return stock


SEGMENTS = Shape("segments of one message", segments_of_one, 125, (
    given("pop of all", pop_messages),
    given("list all", list_all_messages),
    given("retention", retention),
    given("eviction", eviction),
    stored("push of one", push_one),
    stored("push of one, sent again", push_one_again),
    stored("pop of one", pop_one),
    stored("read one", get_message),
    stored("delete one", delete_message),
    stored("give one up", give_up),
    stored("a page of messages", list_messages),
    stored("a page of messages of a time that has passed", list_past),
    stored("first pop of a group that begins at the beginning", first_pop),
    stored("first pop of a group that begins at a time", first_pop_since),
    stored("first pop of a group that begins now", first_pop_new),
    stored("seek to a time", seek_since),
    stored("seek to the end", seek_end),
    stored("seek to the beginning", seek_begin),
))  # fmt: skip


async def leased_messages(w: World, n: int) -> Stock:
    stock = await counted_segment(w, n)
    await w.lease(stock)
    return stock


def ack_messages(kinds: str, step: int = 1, *, by_id: bool = False) -> Callable[[World, Stock], Awaitable[None]]:
    async def call(w: World, s: Stock) -> None:
        n = s.n
        places = range(n)[::step] if step > 0 else range(n - 1, -1, step)
        await w.ack(w.acks(s, [(s.part, offset) for offset in places], kinds, by_id))

    return call


async def ack_run(w: World, s: Stock) -> None:
    await w.ack(w.acked_run(s, 0, s.n - 1))


LEASED_MESSAGES = Shape("leased messages of a partition", leased_messages, 300, (
    given("ack all: completed", ack_messages("c")),
    given("ack all by transaction id: completed", ack_messages("c", by_id=True)),
    given("ack all as a run: completed", ack_run),
    given("ack all from the last to the first: completed", ack_messages("c", -1)),
    given("ack every second: completed", ack_messages("c", 2)),
    given("ack all: every second failed", ack_messages("cf")),
    given("ack all: failed", ack_messages("f")),
    given("ack all: every second a dead letter", ack_messages("cd")),
    given("ack all: dead letters", ack_messages("d")),
    given("ack all: retry", ack_messages("r")),
    given("ack all: of each kind", ack_messages("cfdr")),
))  # fmt: skip


async def gaps(w: World, n: int) -> Stock:
    """Every second message is done ahead of the cursor."""
    stock = await leased_messages(w, 2 * n)
    await ack_messages("c", 2)(w, stock)
    await w.store.release_leases([stock.lease] if stock.lease else [])
    return stock


async def fill_gaps(w: World, s: Stock) -> None:
    await w.lease(s)
    n = s.n
    await w.ack(w.acks(s, [(s.part, offset) for offset in range(1, n, 2)]))


async def fill_one_gap(w: World, s: Stock) -> None:
    await w.lease(s, 1)
    await w.ack(w.acks(s, [(s.part, 1)]))


GAPS = Shape("messages done ahead, each with a gap before it", gaps, 250, (
    given("depth of the group", depth_of_group),
    given("pop of all", pop_messages),
    given("pop and ack of all", fill_gaps),
    # The gaps are one value of the cursor, which is written again.
    given("pop of one", pop_one),
    given("pop and ack of one", fill_one_gap),
    given("retention", retention),
))  # fmt: skip


async def failed_messages(w: World, n: int) -> Stock:
    stock = await leased_messages(w, n)
    await ack_messages("f")(w, stock)
    return stock


async def fail_again(w: World, s: Stock) -> None:
    await w.lease(s)
    await ack_messages("f")(w, s)


async def complete_failed(w: World, s: Stock) -> None:
    await w.lease(s)
    await ack_messages("c")(w, s)


async def complete_one_failed(w: World, s: Stock) -> None:
    await w.lease(s, 1)
    await w.ack(w.acks(s, [(s.part, 0)]))


FAILED = Shape("messages that failed before", failed_messages, 250, (
    given("pop and ack of all: failed", fail_again),
    given("pop and ack of all: completed", complete_failed),
    # The counts are one value of the cursor, which is written again.
    given("pop and ack of one", complete_one_failed),
    given("pop of all", pop_messages),
))  # fmt: skip


def one_by_one(order: Callable[[range], list[int]]) -> Callable[[World, object], AsyncIterator[Step]]:
    async def steps(w: World, stock: object) -> AsyncIterator[Step]:
        s = stock
        assert isinstance(s, Stock)
        for offset in order(range(s.n)):
            columns = w.acks(s, [(s.part, offset)])

            async def step(columns: object = columns) -> None:
                await w.ack(columns)  # type: ignore[arg-type]

            yield step

    return steps


ONE_BY_ONE = Shape("acks, one a call", leased_messages, 64, (
    Case("in order", kept=one_by_one(list)),
    Case("every second", kept=one_by_one(lambda offsets: list(offsets)[1::2])),
))  # fmt: skip


async def deleted_messages(w: World, n: int) -> Stock:
    """Every second message is deleted."""
    stock = await w.stock(1)
    await w.fill(stock, 1, segments=2 * n)
    for offset in range(1, 2 * n, 2):
        await w.messages.delete(key(stock, offset))
    return stock


DELETED = Shape("deleted messages", deleted_messages, 40, (
    given("pop of all", pop_messages),
    given("first pop of a group", first_pop),
    given("list all", list_all_messages),
    given("seek to the beginning", seek_begin),
    given("retention", retention),
    given("delete one more", delete_message),
))  # fmt: skip


# ---------------------------------------------------------------------- hidden partitions


async def hidden_by_delay(w: World, n: int) -> Stock:
    """The delay is lowered while messages wait for it; all of them still have to."""
    stock = await w.stock(n, delayed_processing=7200)
    await w.fill(stock)
    await w.configure(stock, delayed_processing=3600)
    return stock


async def hidden_by_window(w: World, n: int) -> Stock:
    """The queue has no group; the first pop finds all partitions too young."""
    stock = await w.stock(n, group=False, window_buffer=3600)
    await w.fill(stock)
    await w.join(stock)
    return stock


async def some_pops(w: World, s: Stock) -> None:
    await w.pop(s.groups, pops=10)


_HIDDEN = (
    given("pop of any", pop_one),
    given("ten pops of any", some_pops),
    given("pop of all", pop_partitions),
    given("as many pops of named ones", lambda w, s: w.pop(s.groups, pops=len(s.parts), named=s.parts)),
    given("change of the delay", change_delay),
)
DELAYED = Shape("partitions hidden by delayedProcessing", hidden_by_delay, 300, _HIDDEN)
WINDOWED = Shape("partitions hidden by windowBuffer", hidden_by_window, 300, _HIDDEN)


# ---------------------------------------------------------------------- groups, queues, dead letters


async def parked_groups(w: World, n: int) -> Stock:
    """They have nothing to do until a message comes."""
    stock = await w.stock(1, group=False)
    for number in range(n):
        await w.join(stock, f"g{number:05}")
    return stock


async def many_groups(w: World, n: int) -> Stock:
    stock = await parked_groups(w, n)
    await w.fill(stock)
    return stock


async def leased_groups(w: World, n: int) -> Stock:
    stock = await many_groups(w, n)
    assert len(await w.pop_each(stock.groups)) == n
    return stock


async def eviction_of_nothing(w: World, s: Stock) -> None:
    """What has waited too long is under a lease."""
    await w.configure(s, max_wait_time_seconds=3600)
    await w.set_clock(await w.now(timedelta(hours=2)))
    assert await w.sweep_overdue(s) == 0


async def pop_each_group(w: World, s: Stock) -> None:
    assert len(await w.pop_each(s.groups)) == len(s.groups)


async def list_groups(w: World, s: Stock) -> None:
    assert len(await w.groups.groups(GroupFilter(), Page(GroupOrder.NAME, 1_000_000))) == len(s.groups)
    assert await w.groups.count(GroupFilter()) == len(s.groups)


async def pop_and_ack_one(w: World, s: Stock) -> None:
    await w.lease(s, 1)
    await w.ack(w.acks(s, [(s.part, 0)]))


async def look_at_new_group(w: World, s: Stock) -> None:
    assert not await w.store.find_locked([Lock(LockKind.SUBSCRIBING, name=s.queue, group="new")])


def page_of_queues(order: QueueOrder) -> Callable[[World, Stock], Awaitable[None]]:
    async def call(w: World, _: Stock) -> None:
        assert await w.administration.catalogue.queues(QueueFilter(), Page(order, 10))

    return call


async def page_of_groups(w: World, _: Stock) -> None:
    assert await w.groups.groups(GroupFilter(), Page(GroupOrder.NAME, 1))


async def totals(w: World, s: Stock) -> None:
    assert (await w.administration.catalogue.summary()).queues == len(s.parts)
    await w.groups.summary(QueueFilter())


async def queues_of_group(w: World, s: Stock) -> None:
    """All of them, in the order that reads the figures of each."""
    rows, total = await w.groups.on_queues(QueuesOfGroup(GROUP), Page(GroupOrder.LAG, 1_000_000))
    assert len(rows) == total == len(s.parts)


async def page_of_queues_of_group(w: World, s: Stock) -> None:
    """Of those that a search finds; it is the total that needs all."""
    rows, total = await w.groups.on_queues(QueuesOfGroup(GROUP, search="MANY"), Page(GroupOrder.AGE, 10))
    assert (len(rows), total) == (min(10, len(s.parts)), len(s.parts))


async def queues_of_one_group(w: World, _: Stock) -> None:
    rows, total = await w.groups.on_queues(QueuesOfGroup("g00000"), Page(GroupOrder.LAG, 10))
    assert len(rows) == total == 1


async def page_of_namespaces(w: World, _: Stock) -> None:
    assert await w.administration.catalogue.namespaces(10, 0)


async def depth(w: World, s: Stock) -> None:
    assert await w.administration.catalogue.depth(s.others[0], None)


async def has_pending(w: World, s: Stock) -> None:
    assert await w.meter.pool.fetch("SELECT queen.has_pending_messages_v1($1)", s.others[0])


async def refresh(w: World, _: Stock) -> None:
    after: int | None = 0
    while after is not None:
        after = (await w.administration.statistics.refresh_page(after, wait=True)).last


async def refresh_smallest(w: World, _: Stock) -> None:
    await w.administration.statistics.refresh_smallest(100)


GROUPS = Shape("groups of a partition", many_groups, 64, (
    given("a pop of each", pop_each_group),
    given("read a message", get_message),
    given("give a message up", give_up),
    given("delete a message", delete_message),
    given("retention", retention),
    given("eviction", eviction),
    given("change of the delay", change_delay),
    given("delete the queue", delete_queue),
    given("list of groups", list_groups),
    given("refresh of the statistics", refresh),
    stored("a page of groups", page_of_groups),
    stored("the queues of one group", queues_of_one_group),
    stored("pop and ack of one", pop_and_ack_one),
    stored("first pop of one more", first_pop),
))  # fmt: skip
LEASED_GROUPS = Shape("groups with a lease on a partition", leased_groups, 64, (
    given("eviction that finds nothing", eviction_of_nothing),
    stored("a page of messages", list_messages),
))  # fmt: skip
PARKED = Shape("parked groups of a partition", parked_groups, 64, (
    given("whether it is locked, or any of them", look_at_partition),
    stored("whether one more is being made", look_at_new_group),
    given("push of one, which wakes them", push_one),
    given("push of one to waiters of some, which wakes the others", push_to_many_waiters),
    given("a pop of each", lambda w, s: w.pop_each(s.groups)),
))  # fmt: skip


async def look_at_queues(w: World, s: Stock) -> None:
    assert not await w.store.find_locked([Lock(LockKind.MAKING, name=queue) for queue in s.others])


async def many_queues(w: World, n: int) -> Stock:
    """With a message each, all of one namespace."""
    return await w.stocks(f"many{n}", n)


async def pop_of_namespace(w: World, s: Stock) -> None:
    assert await w.pop(s.groups, batch=10)


async def pop_of_all_queues(w: World, s: Stock) -> None:
    assert len(await w.pop(s.groups, batch=100_000, parts=len(s.parts))) == len(s.parts)


async def find_queues(w: World, s: Stock) -> None:
    assert len(await w.store.find_queues(s.queue, None)) == len(s.parts)


async def list_queues(w: World, s: Stock) -> None:
    page = Page(QueueOrder.NAME, 1_000_000)
    assert len(await w.administration.catalogue.queues(QueueFilter(s.queue), page)) == len(s.parts)


async def resolve_queues(w: World, s: Stock) -> None:
    await w.store.resolve_partitions([(queue, "more") for queue in s.others], create=True)


async def first_pop_on_one(w: World, s: Stock) -> None:
    await w.join(Stock(s.others[0]), "new")


QUEUES = Shape("queues", many_queues, 150, (
    given("pop of any of them", pop_of_namespace),
    given("pop of all of them", pop_of_all_queues),
    given("a pop of each", pop_each_group),
    given("queues of a namespace", find_queues),
    given("list of queues", list_queues),
    given("list of the queues of a group", queues_of_group),
    given("a page of the queues of a group", page_of_queues_of_group),
    given("a partition more in each", resolve_queues),
    given("which of all are locked", look_at_queues),
    # Totals are those of all queues, and so are those that have a namespace, and the smallest of all.
    given("totals", totals),
    given("a page of namespaces", page_of_namespaces),
    given("refresh of the statistics", refresh),
    given("refresh of those of the smallest", refresh_smallest),
    stored("a page of the newest queues", page_of_queues(QueueOrder.NEWEST)),
    stored("a page of queues by name", page_of_queues(QueueOrder.NAME)),
    stored("a page of groups", page_of_groups),
    stored("depth of one", depth),
    stored("whether one has messages", has_pending),
    stored("pop of one", pop_one),
    stored("push to one", push_one),
    stored("first pop of a group on one", first_pop_on_one),
))  # fmt: skip


async def limited_queues(w: World, n: int) -> Stock:
    """With a maximum size."""
    stock = await w.stocks(f"limited{n}", n)
    for queue in stock.others:
        await w.configure(Stock(queue), max_size=1000)
    return stock


async def push_to_limited_queues(w: World, s: Stock) -> None:
    options = await w.store.read_push_options()
    columns = w.flush(s, new_to_all(s))
    columns.version, columns.limited = options.version, [options.limited[queue].queue_id for queue in s.others]
    await w.push(columns)


async def idle_limited(w: World, n: int) -> Stock:
    """All has been completed."""
    stock = await w.stock(n)
    await w.fill(stock)
    await w.lease(stock)
    await w.ack(w.acks(stock, [(part, 0) for part in stock.parts]))
    await w.configure(stock, max_size=1_000_000)
    return stock


async def full_limited(w: World, n: int) -> Stock:
    """A message in each partition, and no room; and another queue with as many, which has room."""
    stock, roomy = await w.stock(n), await w.stock(n)
    for each, size in ((stock, n), (roomy, 1_000_000)):
        await w.fill(each)
        await w.configure(each, max_size=size)
        # A new maximum is counted when a push asks for it.
        await w.ask_for_count(each)
        assert await w.services.count_backlog()
    stock.roomy = roomy
    return stock


async def push_to_unknown(w: World, s: Stock) -> None:
    await w.forget_size(s)
    await push_one_of_limited(w, s)


async def push_to_roomy(w: World, s: Stock) -> None:
    assert s.roomy
    await push_one_of_limited(w, s.roomy)


async def push_to_full(w: World, s: Stock) -> None:
    [row] = await w.store.push(await limited(w, s, [(0, "new")]), again=False)
    assert row.room == 0


async def count_in_background(w: World, s: Stock) -> None:
    assert s.roomy
    await w.ask_for_count(s.roomy)
    assert await w.services.count_backlog()


IDLE_LIMITED = Shape("idle partitions of a queue with a maximum size", idle_limited, 400, (
    stored("push to one", push_one_of_limited),
    stored("push to one, of whose queue nothing is known", push_to_unknown),
))  # fmt: skip

#: More than a push counts, from the second size on.
FULL_LIMITED = Shape("partitions with a backlog of a queue with a maximum size", full_limited, 400, (
    stored("push to one", push_to_roomy),
    stored("push to one, refused", push_to_full),
    given("count of all", count_in_background),
))  # fmt: skip

LIMITED_QUEUES = Shape("queues with a maximum size", limited_queues, 100, (
    given("push to each", push_to_limited_queues),
))  # fmt: skip


async def dead_letters(w: World, n: int) -> Stock:
    stock = await leased_messages(w, n)
    await ack_messages("d")(w, stock)
    return stock


def letters(s: Stock) -> DeadLetterFilter:
    return DeadLetterFilter(queue=s.queue, begin=None, end=None)


async def page_of_letters(w: World, s: Stock) -> None:
    assert await w.letters.page(letters(s), 10, 0)


async def count_letters(w: World, s: Stock) -> None:
    assert await w.letters.count(letters(s)) == s.n


async def newest_letter(w: World, s: Stock) -> int:
    found = await w.letters.find_newest(key(s))
    assert found is not None
    return found.id


async def delete_letter(w: World, s: Stock) -> None:
    assert await w.letters.delete(await newest_letter(w, s))


async def replay_letter(w: World, s: Stock) -> None:
    number = await newest_letter(w, s)
    replayed = await w.letters.replay(number, w.flush(s, [(0, f"dlq:{number}")]), again=False)
    assert replayed.outcome == "moved"


async def purge_letters(w: World, s: Stock) -> None:
    purged, after = await w.letters.purge(DeadLetterFilter(s.queue), None)
    while after is not None:
        more, after = await w.letters.purge(DeadLetterFilter(s.queue), after)
        purged += more
    assert purged == s.n


async def letters_of_partition(w: World, s: Stock) -> None:
    assert await w.letters.page(DeadLetterFilter(queue=s.queue, partition="000000", begin=None, end=None), 10, 0)


async def letters_of_group(w: World, s: Stock) -> None:
    assert await w.letters.page(DeadLetterFilter(queue=s.queue, group=GROUP, begin=None, end=None), 10, 0)


async def summary(w: World, s: Stock) -> None:
    await w.letters.summarize(s.queue)


async def errors_of_letters(w: World, s: Stock) -> None:
    """Of at most the newest 10,000."""
    [row] = await w.letters.errors(letters(s), 24, 50)
    assert row.number == s.n


async def letters_to_replay(w: World, s: Stock) -> None:
    numbers, _ = await w.letters.match(letters(s), None, 10)
    assert len(numbers) == min(10, s.n)


LETTERS = Shape("dead letters", dead_letters, 600, (
    given("count", count_letters),
    given("delete all", purge_letters),
    given("summary", summary),
    given("by error", errors_of_letters),
    given("refresh of the statistics", refresh),
    stored("a page", page_of_letters),
    stored("a page to replay", letters_to_replay),
    stored("a page of a partition", letters_of_partition),
    stored("a page of a group", letters_of_group),
    stored("find the newest of a message", newest_letter),
    stored("delete one", delete_letter),
    stored("replay one", replay_letter),
    stored("pop of one", pop_one),
))  # fmt: skip


# ---------------------------------------------------------------------- traces


async def traces(w: World, n: int) -> Stock:
    """Each of a message of its own; all messages in one segment. Each has a name, and all have one."""
    stock = await counted_segment(w, n)
    for number in range(n):
        await w.trace(key(stock, number), (f"name{number}", "common"))
    return stock


async def record_trace(w: World, s: Stock) -> None:
    assert await w.trace(key(s), ("common",))


async def page_of_name(w: World, _: Stock) -> None:
    assert await w.traces.of_name("common", 10, 0)


async def all_of_name(w: World, s: Stock) -> None:
    assert len(await w.traces.of_name("common", 100_000, 0)) == s.n


async def traces_of_message(w: World, s: Stock) -> None:
    assert await w.traces.of_message(key(s), 10, 0)


async def page_of_names(w: World, _: Stock) -> None:
    assert await w.traces.names(None, 10, 0)


async def search_of_names(w: World, s: Stock) -> None:
    assert len(await w.traces.names("NAME", 100_000, 0)) == await w.traces.count_names("NAME") == s.n


async def search_of_one_name(w: World, _: Stock) -> None:
    assert len(await w.traces.names("ame0", 10, 0)) == await w.traces.count_names("ame0") == 1


async def count_traces(w: World, s: Stock) -> None:
    assert await w.traces.count("common") == s.n


TRACES = Shape("traces of messages of one segment", traces, 100, (
    given("all of a name", all_of_name),
    given("count of a name", count_traces),
    # Counted among the newest, up to a bound.
    given("a page of names", page_of_names),
    given("all names with a text", search_of_names),
    given("the one name with a text", search_of_one_name),
    given("a page of a name", page_of_name),
    stored("traces of a message", traces_of_message),
    stored("record one", record_trace),
))  # fmt: skip


# ---------------------------------------------------------------------- metrics


async def busy_queues(w: World, n: int) -> Stock:
    """In each minute of the last hour something was done for so many queues together."""
    stock = Stock("q0", n=n)
    minute = int((await w.now()).timestamp()) // 60
    await w.count_work([(minute - number % 60, f"q{number}") for number in range(n)])
    return stock


async def count_again(w: World, s: Stock) -> None:
    minute = int((await w.now()).timestamp()) // 60
    await w.count_work([(minute - number % 60, f"q{number}") for number in range(s.n)])


async def busiest(w: World, s: Stock) -> None:
    assert (await w.administration.statistics.busiest(await w.last_hour(), None, 10, 0)).total >= s.n


async def work_of_all(w: World, _: Stock) -> None:
    assert await w.administration.statistics.queues(await w.last_hour(), 1, QueueFilter(), GroupBy(bucket=False))


async def work_of_one(w: World, _: Stock) -> None:
    metrics, hour = w.administration.statistics, await w.last_hour()
    found = await metrics.busiest(hour, ["q0"], 10, 0)
    assert await metrics.queues(hour, 1, QueueFilter(names=found.names), GroupBy(queue=True))


METRICS = Shape("metrics of queues", busy_queues, 300, (
    given("counting as many more", count_again),
    given("a page of the busiest", busiest),
    stored("what was done for all", work_of_all),
    stored("what was done for one", work_of_one),
))  # fmt: skip


# ---------------------------------------------------------------------- streams


async def windows(w: World, n: int) -> Stock:
    """As many rows of the state of each of two streams; the first of them is of a window that is over."""
    stock = await w.stock(1)
    await w.fill(stock)
    stock.n = n
    for name in ("other", "stream"):
        stock.stream = await w.register(stock, name)
        await w.cycle(stock, {f"k{number:06}": 1.0 if number == 0 else 9e15 for number in range(n)})
    await eventually(w.is_state_settled, "state that no longer counts as changed a moment ago")
    return stock


async def cycle_all(w: World, s: Stock) -> None:
    await w.cycle(s, {f"k{number:06}": 9e15 for number in range(s.n)})


async def cycle_and_push(w: World, s: Stock) -> None:
    await w.cycle(s, {}, w.flush(s, [(0, f"new{number}") for number in range(s.n)]))


async def cycle_one(w: World, s: Stock) -> None:
    await w.cycle(s, {"k000000": 9e15})


def read_state(rows: Callable[[Stock], int], **arguments: object) -> Callable[[World, Stock], Awaitable[None]]:
    async def call(w: World, s: Stock) -> None:
        assert len(await w.read_state(s, **arguments)) == rows(s)  # type: ignore[arg-type]

    return call


async def read_named_state(w: World, s: Stock) -> None:
    assert len(await w.read_state(s, keys=[f"k{number:06}" for number in range(s.n)])) == s.n


async def forget_state(w: World, s: Stock) -> None:
    assert await w.register(s, "stream", reset=True) == s.stream


async def forget_nothing(w: World, s: Stock) -> None:
    await w.register(s, "third")
    await w.register(s, "third", reset=True)


WINDOWS = Shape("rows of the state of a stream", windows, 300, (
    given("cycle that writes all", cycle_all),
    given("cycle that pushes as many", cycle_and_push),
    given("read all", read_state(lambda s: s.n)),
    given("read all by name", read_named_state),
    given("reset of the stream", forget_state),
    stored("cycle that writes one", cycle_one),
    stored("read one", read_state(lambda _: 1, keys=["k000000"])),
    stored("read by prefix", read_state(lambda _: 1, prefix="k000000")),
    stored("read what is over", read_state(lambda _: 1, ripe=2.0)),
    stored("reset of another stream", forget_nothing),
))  # fmt: skip


# ---------------------------------------------------------------------- simple-mq


def simple(name: str, call: Callable[[World, Box], Awaitable[object]], growth: Growth = Growth.GIVEN) -> Case:
    return Case(name, call, growth)  # type: ignore[arg-type]


async def full_box(w: World, n: int) -> Box:
    box = await w.box()
    await w.enqueue(w.enqueued(box.queues * n))
    box.n = n
    return box


async def enqueue_many(w: World, b: Box) -> None:
    await w.enqueue(w.enqueued(b.queues * b.n))


async def enqueue_requests(w: World, b: Box) -> None:
    n = b.n
    await w.enqueue(w.enqueued(b.queues * n, requests=n))


async def enqueue_group(w: World, b: Box) -> None:
    await w.enqueue(w.enqueued(b.queues * b.n, ["one"]))


async def enqueue_groups(w: World, b: Box) -> None:
    n = b.n
    await w.enqueue(w.enqueued(b.queues * n, [f"g{number}" for number in range(n)]))


async def enqueue_one(w: World, b: Box) -> None:
    await w.enqueue(w.enqueued(b.queues[:1]))


async def poll_all(w: World, b: Box) -> None:
    assert len(await w.poll(b, 100_000)) == b.n


async def poll_one(w: World, b: Box) -> None:
    await w.poll(Box(b.queues[:1]), 1)


async def polls_of_one(w: World, b: Box) -> None:
    polled = await w.simple.dequeue(b.queues * b.n, [1] * b.n)
    assert all(len(answer.messages) == 1 for answer in polled.answers)


async def delete_box(w: World, b: Box) -> None:
    assert await w.simple_administration.delete_queue(b.queues[0]) == "deleted"
    await w.simple_administration.purge()


async def count_outcomes(w: World, b: Box) -> None:
    outcomes = [(queue, f"o{number}") for queue in b.queues for number in range(b.n // len(b.queues))]
    await w.simple_administration.count_outcomes({(queue, "enqueue", outcome): 1 for queue, outcome in outcomes})


async def peek(w: World, b: Box) -> None:
    assert await w.simple_administration.peek(b.queues[0], None, None, 100)


BOX = Shape("messages of a simple-mq queue", full_box, 300, (
    simple("enqueue as many in a request", enqueue_many),
    simple("enqueue as many, a request each", enqueue_requests),
    simple("enqueue as many of one group", enqueue_group),
    simple("enqueue as many of as many groups", enqueue_groups),
    simple("poll of all", poll_all),
    simple("as many polls of one", polls_of_one),
    simple("delete the queue", delete_box),
    simple("counting as many outcomes", count_outcomes),
    simple("poll of one", poll_one, Growth.STORED),
    simple("enqueue one", enqueue_one, Growth.STORED),
    simple("peek", peek, Growth.STORED),
))  # fmt: skip


async def polled_box(w: World, n: int) -> Box:
    box = await full_box(w, n)
    box.polled = await w.poll(box, n)
    return box


async def acknowledge_all(w: World, b: Box) -> None:
    found = await w.simple.acknowledge(b.queues * len(b.polled), b.polled)
    assert {outcome for outcome, _ in found} == {"deleted"}


async def extend_all(w: World, b: Box) -> None:
    n = len(b.polled)
    await w.simple.extend_visibility(b.queues * n, b.polled, [60] * n)


async def acknowledge_one(w: World, b: Box) -> None:
    await w.simple.acknowledge(b.queues[:1], b.polled[:1])


async def give_back_all(w: World, b: Box) -> None:
    await w.give_back(b)


async def requeue_one(w: World, b: Box) -> None:
    assert (await w.simple_administration.requeue(b.queues[0], b.polled[0])).outcome == "requeued"


async def poll_late(w: World, b: Box) -> None:
    await w.set_clock(await w.now(DAY))
    assert len(await w.poll(b, 100_000)) == min(b.n, 1000)


async def sweep_boxes(w: World, b: Box) -> None:
    """As often as it takes."""
    await w.set_clock(await w.now(DAY))
    while any(routed.dead for routed in await w.simple_administration.sweep()):
        pass


async def sweep_again(w: World, b: Box) -> None:
    """What is over needs no sweep any more."""
    await w.set_clock(await w.now(DAY))
    assert await w.simple_administration.sweep() == []


POLLED = Shape("messages in flight of a simple-mq queue", polled_box, 300, (
    simple("ack of all", acknowledge_all),
    simple("extension of all", extend_all),
    simple("all given back", give_back_all),
    simple("poll of all when their time is over", poll_late),
    simple("sweep when their time is over", sweep_boxes),
    simple("ack of one", acknowledge_one, Growth.STORED),
    simple("requeue of one", requeue_one, Growth.STORED),
    simple("poll, nothing visible", poll_one, Growth.STORED),
    simple("enqueue one", enqueue_one, Growth.STORED),
))  # fmt: skip


async def grouped_box(w: World, n: int) -> Box:
    """As many groups, with a message in flight and one behind it each."""
    box = await w.box(max_deliveries=1, visibility_timeout=60)
    await w.enqueue(w.enqueued(box.queues * (2 * n), [f"g{number}" for number in range(n)]))
    box.polled = await w.poll(box, 2 * n)
    assert len(box.polled) == n
    box.n = n
    return box


GROUPED = Shape("groups of a simple-mq queue", grouped_box, 100, (
    simple("ack of all", acknowledge_all),
    simple("all given back", give_back_all),
    simple("sweep, which moves them to the dead letters", sweep_boxes),
    simple("ack of one", acknowledge_one, Growth.STORED),
    simple("requeue of one", requeue_one, Growth.STORED),
    simple("poll, nothing visible", poll_one, Growth.STORED),
))  # fmt: skip


async def one_group(w: World, n: int) -> Box:
    """Behind a message in flight."""
    box = await w.box()
    await w.enqueue(w.enqueued(box.queues * n, ["one"]))
    box.polled = await w.poll(box, n)
    return box


async def enqueue_to_group(w: World, b: Box) -> None:
    await w.enqueue(w.enqueued(b.queues, ["one"]))


BEHIND = Shape("messages of one group of a simple-mq queue", one_group, 300, (
    simple("ack of one", acknowledge_one, Growth.STORED),
    simple("requeue of one", requeue_one, Growth.STORED),
    simple("enqueue one", enqueue_to_group, Growth.STORED),
    simple("poll, nothing visible", poll_one, Growth.STORED),
))  # fmt: skip


async def exhausted_box(w: World, n: int) -> Box:
    """All deliveries of all messages are used up, when a day has passed."""
    box = await w.box(max_deliveries=1, visibility_timeout=60)
    await w.enqueue(w.enqueued(box.queues * n))
    box.polled = await w.poll(box, n)
    box.n = n
    return box


async def stuck_box(w: World, n: int) -> Box:
    """The dead letters have as many already, and no room for more."""
    box = await w.box(size=n, max_deliveries=1, visibility_timeout=60)
    for _ in range(2):
        await w.enqueue(w.enqueued(box.queues * n))
        assert len(await w.poll(box, n)) == n
        async with w.later(DAY):
            while any(routed.dead or routed.stuck for routed in await w.simple_administration.sweep()):
                pass
    return box


async def route(w: World, b: Box) -> None:
    await w.set_clock(await w.now(DAY))
    polled = await w.simple.dequeue(b.queues, [1])
    while polled.routed and polled.routed[0].dead < len(b.polled):
        moved = polled.routed[0].dead
        polled = await w.simple.dequeue(b.queues, [1])
        if not polled.routed or polled.routed[0].dead + moved >= len(b.polled):
            break


async def requeue_all(w: World, b: Box) -> None:
    await w.set_clock(await w.now(DAY))
    routed = (await w.simple.dequeue(b.queues, [1])).routed
    assert routed
    requeued = 0
    while requeued < len(b.polled):
        step = (await w.simple_administration.requeue_all(routed[0].dlq_id)).requeued
        if not step:
            break
        requeued += step


EXHAUSTED = Shape("exhausted messages of a simple-mq queue", exhausted_box, 30, (
    simple("poll, which moves them to the dead letters", route),
    simple("sweep, which moves them to the dead letters", sweep_boxes),
    simple("requeue all", requeue_all),
))  # fmt: skip


STUCK = Shape("exhausted messages for which there is no room", stuck_box, 200, (
    simple("poll, nothing visible", poll_one, Growth.STORED),
    simple("sweep", sweep_again, Growth.STORED),
))  # fmt: skip


async def boxes(w: World, n: int) -> Box:
    box = await w.box(n)
    await w.enqueue(w.enqueued(box.queues, requests=n))
    return box


async def enqueue_to_all(w: World, b: Box) -> None:
    await w.enqueue(w.enqueued(b.queues, requests=len(b.queues)))


async def make_box(w: World, b: Box) -> None:
    await w.box()


async def poll_each(w: World, b: Box) -> None:
    assert len(await w.poll(b, 1)) == len(b.queues)


async def look_at_boxes(w: World, b: Box) -> None:
    assert not await w.store.find_locked([Lock(LockKind.ENQUEUING, name=str(queue)) for queue in b.queues])


async def list_ten_boxes(w: World, b: Box) -> None:
    assert len(await w.simple_administration.list_queues("", None, 10)) == min(10, len(b.queues))


BOXES = Shape("simple-mq queues", boxes, 64, (
    simple("which of all are locked", look_at_boxes),
    simple("enqueue to each", enqueue_to_all),
    simple("poll of each", poll_each),
    simple("poll of one", poll_one, Growth.STORED),
    simple("enqueue to one", enqueue_one, Growth.STORED),
    simple("one more", make_box, Growth.STORED),
    simple("a page of ten", list_ten_boxes, Growth.STORED),
))  # fmt: skip


async def grouped_boxes(w: World, n: int) -> Box:
    """With a message in flight and one behind it each."""
    box = await w.box(n, max_deliveries=1, visibility_timeout=60)
    for _ in range(2):
        await w.enqueue(w.enqueued(box.queues, ["one"], requests=n))
    box.polled = await w.poll(box, 1)
    return box


async def acknowledge_each(w: World, b: Box) -> None:
    polled = {message: queue for queue, message in zip(b.queues, b.polled, strict=True)}
    found = await w.simple.acknowledge(list(polled.values()), list(polled))
    assert {freed for _, freed in found} == {True}


async def poll_each_late(w: World, b: Box) -> None:
    await w.set_clock(await w.now(DAY))
    assert len((await w.simple.dequeue(b.queues, [1] * len(b.queues))).routed) == len(b.queues)


GROUPED_BOXES = Shape("simple-mq queues with a message in flight", grouped_boxes, 64, (
    simple("ack of each", acknowledge_each),
    simple("poll of each, which moves them to the dead letters", poll_each_late),
))  # fmt: skip


def timers_of(s: Stock, prefix: str, number: int, delay_s: float) -> list[TimerChange]:
    return [
        TimerChange(
            "schedule", s.queue, f"{prefix}{n}", "p0", f"{prefix}{n}", delay_s, None,
            encode_entry(b"1", f"{prefix}{n}", None, None),
        )
        for n in range(number)
    ]  # fmt: skip


async def change_timers(w: World, changes: Sequence[TimerChange], status: str) -> None:
    version = (await w.store.read_push_options()).version
    verdicts = await w.store.change_timers(changes, version)
    assert {verdict.status for verdict in verdicts} == {status}


async def waiting_timers(w: World, n: int) -> Stock:
    stock = await w.stock(n)
    await change_timers(w, timers_of(stock, "t", n, 3600), "scheduled")
    return stock


async def set_timer(w: World, s: Stock) -> None:
    await change_timers(w, timers_of(s, "new", 1, 3600), "scheduled")


async def cancel_timer(w: World, s: Stock) -> None:
    await change_timers(w, [TimerChange("cancel", s.queue, "t0")], "cancelled")


async def set_timers(w: World, s: Stock) -> None:
    await change_timers(w, timers_of(s, "new", len(s.parts), 3600), "scheduled")


async def set_timers_in_a_transaction(w: World, s: Stock) -> None:
    batch = w.flush(s, [])
    batch.version = (await w.store.read_push_options()).version
    timers = timers_of(s, "new", len(s.parts), 3600)
    rows = await w.store.execute(batch, AckColumns(), None, timers, again=False)
    assert list(rows.due) == list(range(1, len(timers) + 1))


async def replace_timers(w: World, s: Stock) -> None:
    await change_timers(w, timers_of(s, "t", len(s.parts), 1800), "rescheduled")


async def cancel_timers(w: World, s: Stock) -> None:
    await change_timers(w, [TimerChange("cancel", s.queue, f"t{n}") for n in range(len(s.parts))], "cancelled")


async def read_timers(w: World, s: Stock) -> None:
    assert not (await DueTimersStore(w.meter.pool).read(None, 5000, 8 << 20, 0.25, [], None)).messages


async def list_timers(w: World, s: Stock) -> None:
    assert len(await w.administration.timers.page(s.queue, "t0", 10)) == min(10, len(s.parts) - 1)


async def move_timers(w: World, s: Stock) -> None:
    await w.set_clock(await w.now(DAY))
    due = DueTimersStore(w.meter.pool)
    messages = (await due.read(None, 100_000, 8 << 20, 0.25, [], None)).messages
    assert len(messages) == len(s.parts)
    batch = lay_out(uuid4(), [push_of(messages)], {(s.queue, "p0"): s.parts[0]})
    batch.version = (await w.store.read_push_options()).version
    assert (await due.move(messages, batch)).moved


TIMERS = Shape("timers that wait", waiting_timers, 400, (
    stored("one more", set_timer),
    stored("cancel of one", cancel_timer),
    stored("look for those that are due", read_timers),
    stored("a page of them", list_timers),
    given("as many more", set_timers),
    given("as many more in a transaction", set_timers_in_a_transaction),
    given("as many in their place", replace_timers),
    given("cancel of all", cancel_timers),
    given("move of all, when they are due", move_timers),
))  # fmt: skip

SHAPES: tuple[Shape, ...] = (
    EMPTY, READY, TO_COME, LEASED, ONE_SEGMENT, SEGMENTS, LEASED_MESSAGES, GAPS, FAILED, ONE_BY_ONE, DELETED, DELAYED,
    WINDOWED, GROUPS, LEASED_GROUPS, PARKED, QUEUES, LIMITED_QUEUES, IDLE_LIMITED, FULL_LIMITED, LETTERS, TRACES,
    METRICS, WINDOWS, BOX, POLLED, GROUPED, BEHIND, EXHAUSTED, STUCK, BOXES, GROUPED_BOXES,
    TIMERS, *SQS_SHAPES,
)  # fmt: skip
