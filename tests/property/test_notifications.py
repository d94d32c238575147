"""Notifications on ways that lose, double, reorder and damage them: each is received at most once, none breaks."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.core.seal import WINDOW_MS, is_signed, seal, signature, unseal
from queen.engine.notifications import PACKET_BYTES_MAX, NotificationHub, packet_of
from queen.engine.ports import Notification, NotificationKind, configuration_changed
from tests.support.virtual_time import run

SECRET = b"what all instances know"


class Way:
    """A transport between two workers, which does to packets what ``fault`` says."""

    def __init__(
        self, interval_s: float, fault: Callable[[Sequence[bytes]], Sequence[bytes]] = lambda packets: packets
    ):
        self.name, self.interval_s, self.reaches_all, self._fault = "way", interval_s, False, fault
        self.sent: list[bytes] = []
        self.needless = 0
        self.to: Callable[[bytes], None] = lambda _sheet: None
        self.receive: Callable[[bytes], None] = lambda _sheet: None

    def send(self, packets: Sequence[bytes], *, waiting_only: bool = False) -> None:
        self.sent += packets
        self.needless += waiting_only
        for packet in self._fault(packets):
            self.to(packet)

    async def start(self, receive: Callable[[bytes], None], missed: Callable[[], None]) -> None:
        self.receive = receive
        missed()

    async def stop(self) -> None:
        pass


async def connected(ways: Sequence[Way], received: list[Notification]) -> NotificationHub:
    """A worker that speaks on these ways to another one, which notes what it hears."""
    here, there = NotificationHub(ways), NotificationHub(other := [Way(way.interval_s) for way in ways])
    await here.start(lambda _notification, _origin: None, lambda: None)
    await there.start(lambda notification, _origin: received.append(notification), lambda: None)
    for way, end in zip(ways, other, strict=True):
        way.to = end.receive
    return here


def messages(notifications: Sequence[Notification]) -> Counter[tuple[str, str | None]]:
    found: Counter[tuple[str, str | None]] = Counter()
    for notification in notifications:
        found[notification.queue, notification.group] += notification.messages
    return found


published = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from((None, "g")), st.integers(1, 5), st.sampled_from((0, 0.001, 0.05))
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(plan=published, intervals=st.lists(st.sampled_from((0.0, 0.01)), min_size=1, max_size=3))
def test_a_notification_sent_on_several_good_ways_is_received_once(
    plan: list[tuple[str, str | None, int, float]], intervals: list[float]
) -> None:
    async def live() -> None:
        received: list[Notification] = []
        here = await connected([Way(interval) for interval in intervals], received)
        for queue, group, number, pause in plan:
            here.publish(Notification(queue, number, group))
            await asyncio.sleep(pause)
        await here.stop()
        assert messages(received) == messages([Notification(queue, number, group) for queue, group, number, _ in plan])

    # With a quick way all is received on it before a slow one repeats it; several slow ones keep step.
    run(live())


@settings(max_examples=100, deadline=None)
@given(plan=published, seed=st.integers(0, 10**6))
def test_lost_duplicate_and_reordered_notifications_wake_at_most_as_many_as_they_announce(
    plan: list[tuple[str, str | None, int, float]], seed: int
) -> None:
    choice = random.Random(seed)

    def damage(packets: Sequence[bytes]) -> Sequence[bytes]:
        kept = [packet for packet in packets for _ in range(choice.choice((0, 1, 1, 2)))]
        choice.shuffle(kept)
        return [packet if choice.random() < 0.8 else packet[: choice.randrange(len(packet))] for packet in kept]

    async def live() -> None:
        received: list[Notification] = []
        here = await connected([Way(0.0, damage)], received)
        for queue, group, number, pause in plan:
            here.publish(Notification(queue, number, group))
            await asyncio.sleep(pause)
        await here.stop()
        said = messages([Notification(queue, number, group) for queue, group, number, _ in plan])
        assert all(number <= said[key] for key, number in messages(received).items())

    run(live())


def test_a_notification_is_forwarded_to_siblings_and_not_back() -> None:
    async def live() -> None:
        siblings, udp = Way(0.0), Way(0.0)
        siblings.reaches_all = True
        received: list[Notification] = []
        worker = NotificationHub([siblings, udp], relays=[siblings])  # type: ignore[list-item]
        await worker.start(lambda notification, _origin: received.append(notification), lambda: None)
        one, other = packet_of(Notification("a", 1)), packet_of(Notification("b", 1))
        udp.receive(one)
        udp.receive(one)
        siblings.receive(other)
        assert (siblings.sent, udp.sent) == ([one], [])
        assert [notification.queue for notification in received] == ["a", "b"]
        await worker.stop()

    run(live())


def test_a_worker_ignores_its_own_notifications() -> None:
    async def live() -> None:
        way = Way(0.0)
        received: list[Notification] = []
        worker = NotificationHub([way])
        await worker.start(lambda notification, _origin: received.append(notification), lambda: None)
        way.to = way.receive
        worker.publish(Notification("a", 1))
        await worker.stop()
        assert (len(way.sent), received) == (1, [])

    run(live())


def test_only_notifications_of_messages_may_be_left_out_where_nobody_waits() -> None:
    async def live() -> None:
        way = Way(0.0)
        worker = NotificationHub([way], relays=[way])
        await worker.start(lambda _notification, _origin: None, lambda: None)
        worker.publish(Notification("a", 1))
        await asyncio.sleep(0)
        worker.receive_packet(packet_of(Notification("b", 1)), relay=True)
        assert (len(way.sent), way.needless) == (2, 2)
        worker.publish(Notification("a", 1))
        worker.publish(configuration_changed("a"))
        await asyncio.sleep(0)
        worker.receive_packet(packet_of(configuration_changed("b")), relay=True)
        assert (len(way.sent), way.needless) == (4, 2)
        await worker.stop()

    run(live())


def test_many_notifications_take_several_batches_and_all_are_received_once() -> None:
    async def live() -> None:
        received: list[Notification] = []
        quick, slow = Way(0.0), Way(0.01)
        here = await connected([quick, slow], received)
        names = [f"queue-{number}-{'ü' * 200}" for number in range(200)]
        for name in names:
            here.publish(Notification(name, 1))
        await asyncio.sleep(0.1)
        await here.stop()
        assert all(len(packet) <= PACKET_BYTES_MAX for packet in (*quick.sent, *slow.sent))
        assert len(quick.sent) > 10
        assert [notification.queue for notification in received] == names

    run(live())


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[]", b"null", b'{"origin":1}', b'{"origin":"a","first":9}'])
def test_invalid_notifications_are_ignored(payload: bytes) -> None:
    async def live() -> None:
        received: list[Notification] = []
        worker = NotificationHub([])
        await worker.start(lambda notification, _origin: received.append(notification), lambda: None)
        worker.receive_packet(payload, relay=True)
        assert received == []

    run(live())


def test_a_notification_for_all_queues_is_cheap() -> None:
    async def live() -> None:
        received: list[Notification] = []
        worker = NotificationHub([])
        await worker.start(lambda notification, _origin: received.append(notification), lambda: None)
        forged = b'{"origin":"a","first":0,"last":9000000000000,"notifications":[{"queue":"q","messages":1}]}'
        worker.receive_packet(forged, relay=False)
        worker.receive_packet(forged, relay=False)
        assert len(received) == 1

    run(live())


def test_kinds_of_notices() -> None:
    assert Notification("q", 1).kind is NotificationKind.MESSAGE_AVAILABLE
    assert Notification("q", 1, "g").kind is NotificationKind.PARTITION_FREE
    assert configuration_changed("q").kind is NotificationKind.CONFIGURATION_CHANGED


@given(
    content=st.binary(max_size=200),
    now_ms=st.integers(0, 9 * 10**14),
    drift_ms=st.integers(-2 * WINDOW_MS, 2 * WINDOW_MS),
)
def test_a_seal_is_good_within_its_window(content: bytes, now_ms: int, drift_ms: int) -> None:
    good = abs(drift_ms) <= WINDOW_MS
    assert unseal(SECRET, seal(SECRET, content, now_ms), now_ms + drift_ms) == (content if good else None)
    assert is_signed(SECRET, signature(SECRET, content, now_ms), content, now_ms + drift_ms) == good


@given(content=st.binary(max_size=200), data=st.data())
def test_a_changed_datagram_is_refused(content: bytes, data: st.DataObject) -> None:
    datagram = bytearray(seal(SECRET, content, 1000))
    place = data.draw(st.integers(0, len(datagram) - 1))
    datagram[place] ^= data.draw(st.integers(1, 255))
    assert unseal(SECRET, bytes(datagram), 1000) is None
    assert unseal(SECRET, bytes(datagram[:place]), 1000) is None
    assert unseal(b"another secret", seal(SECRET, content, 1000), 1000) is None


@pytest.mark.parametrize(
    "header", ["", "t=1", "t=1,mac=00", f"t=1000,mac={'0' * 64}", f"t=-1,mac={'0' * 64}", "mac=,t="]
)
def test_a_wrong_signature_is_refused(header: str) -> None:
    assert not is_signed(SECRET, header, b"body", 1000)
