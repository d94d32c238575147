"""A clock that steps: what is noticed, believed and repaired, on a real PostgreSQL whose clock the test sets."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import model
from spec.guarantees import Level, checks
from tests.support.broker import Broker, at
from tests.support.servers import create_database, drop_database

HOUR = 3600
HOLDER = UUID(int=1)


class Clocked(Broker):
    """A broker, and a leader that looks at its clock.

    Attributes:
        real: the leader's own seconds.
        ahead: by how much PostgreSQL's clock is ahead of them.
    """

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.forget()

    def forget(self) -> None:
        self.reset()
        for table in ("clock", "clock_steps", "service_leader"):
            self.query(f"DELETE FROM queen.{table}")
        self.query("SELECT queen.lead_services_v1($1, 15)", HOLDER)
        self.real, self.ahead = 1000.0, 0.0
        self.look()

    def passes(self, seconds: float, steps: float = 0) -> None:
        self.real += seconds
        self.ahead += steps
        self.set_clock(self.real + self.ahead)

    def look(self, boot: str = "here", holder: UUID = HOLDER, took: float = 0) -> tuple[float | None, bool]:
        """What a look says that began so long ago."""
        self.passes(0)
        [row] = self.query(
            "SELECT * FROM queen.note_clock_v1($1, $2, $3, $4, $5)",
            holder, boot, self.real - took, self.real, at(self.real + self.ahead),
        )  # fmt: skip
        return row["step"], row["repairs"]

    def repair(self, partitions: int = 1, rows: int = 2) -> None:
        """A whole repair in the smallest steps; created_at never falls meanwhile."""
        for _ in range(1000):
            [row] = self.query("SELECT queen.repair_times_v1($1, $2) AS more", partitions, rows)
            assert self.query(
                "SELECT bool_and(created_at >= before) IS NOT false AS rises FROM (SELECT created_at, lag(created_at)"
                " OVER (PARTITION BY part_id ORDER BY last_off) AS before FROM queen.segments) AS s"
            )[0]["rises"]
            if not row["more"]:
                return
        raise AssertionError("the repair does not end")

    def older_than(self, age: float, not_after: float | None = None) -> float:
        """What was created before this time is older than that."""
        bound = None if not_after is None else at(not_after)
        [row] = self.query("SELECT queen.older_than(make_interval(secs => $1), $2) AS before", age, bound)
        return (row["before"] - at(0)).total_seconds()  # type: ignore[no-any-return]

    def push(self, queue: str, *payloads: int) -> None:
        self.perform(
            model.Push(tuple(model.PushItem(queue=queue, partition="p", payload=payload) for payload in payloads))
        )

    def pop(self, queue: str, seconds: float | None = None) -> list[Any]:
        _, popped = self.perform(model.Pop(queue=queue, batch=100, lease_seconds=seconds))
        return [delivery.message for delivery in popped.deliveries]  # type: ignore[union-attr]

    def ends_in(self, queue: str) -> float:
        """Seconds until a cursor of the queue is ready."""
        [row] = self.query(
            "SELECT extract(EPOCH FROM c.ready_at - queen.clock())::float8 AS seconds"
            " FROM queen.partition_consumers AS c JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id"
            " JOIN queen.queues AS q ON q.id = g.queue_id"
            " WHERE q.name = $1 AND c.acked < 1000 AND c.ready_at < 'infinity'",
            queue,
        )
        return float(row["seconds"])


@pytest.fixture(scope="module")
def opened(postgres: str) -> Iterator[Clocked]:
    url = asyncio.run(create_database(postgres))
    broker = Clocked(url)
    yield broker
    broker.close()
    asyncio.run(drop_database(postgres, url))


@pytest.fixture
def broker(opened: Clocked) -> Clocked:
    opened.forget()
    return opened


@pytest.mark.parametrize(
    ("passed", "steps", "took", "boot", "noticed"),
    [
        (1, 0, 0, "here", 0),
        (1, 0.4, 0, "here", 0),
        (1, HOUR, 0, "here", HOUR),
        (1, -0.7, 0, "here", -0.7),
        (1, -HOUR, 0, "here", -HOUR),
        # A look that takes long proves nothing; one that takes longer than the step, neither.
        (30, 0, 30, "here", 0),
        (30, 20, 30, "here", 20),
        (30, -20, 29, "here", 0),
        # Clocks differ a little, and that adds up between two readings.
        (100_000, 90, 0, "here", 0),
        (100_000, 110, 0, "here", 110),
        # The next leader, on another machine, cannot tell how long it was.
        (20, 0, 0, "there", 0),
        (HOUR, 0, 0, "there", HOUR),
        (20, HOUR, 0, "there", HOUR + 20),
        (20, -HOUR, 0, "there", -HOUR + 20),
    ],
)
def test_a_clock_step_is_a_difference_that_elapsed_time_does_not_explain(
    broker: Clocked, passed: float, steps: float, took: float, boot: str, noticed: float
) -> None:
    broker.passes(passed, steps)
    step, repairs = broker.look(boot, took=took)
    assert step == pytest.approx(noticed, abs=took / 2 + 0.001)
    assert repairs is (noticed < 0)
    assert broker.look(boot) == (0, repairs)


def test_only_the_leader_is_heard(broker: Clocked) -> None:
    broker.passes(1, HOUR)
    assert broker.look(holder=UUID(int=2)) == (None, None)
    assert broker.look()[0] == pytest.approx(HOUR)


def test_a_leadership_granted_by_a_fast_clock_expires_in_time(broker: Clocked) -> None:
    broker.query("UPDATE queen.service_leader SET expires_at = clock_timestamp() + interval '1 hour'")
    asked = "SELECT queen.lead_services_v1($1, 15) AS led"
    assert not broker.query(asked, UUID(int=2))[0]["led"]
    assert broker.query("SELECT expires_at <= clock_timestamp() + interval '15 s' AS ends FROM queen.service_leader")[
        0
    ]["ends"]
    broker.query("UPDATE queen.service_leader SET expires_at = clock_timestamp()")
    assert broker.query(asked, UUID(int=2))[0]["led"]


@checks("G-TIME-1", level=Level.MODEL)
def test_a_step_forward_makes_nothing_older(broker: Clocked) -> None:
    before = broker.real
    broker.passes(10, HOUR)
    assert broker.older_than(600, not_after=before + 10) == pytest.approx(before + 10 - 600), "not noticed yet"
    broker.look()
    assert broker.older_than(600) == pytest.approx(before + 10 - 600)
    broker.passes(589)
    broker.look()
    assert broker.older_than(600) < before
    broker.passes(11)
    assert broker.older_than(600) >= before, "it is as old as that now"
    assert broker.older_than(7200) == pytest.approx(broker.real - 7200), "not for those who keep longer"
    assert broker.query("SELECT queen.accept_clock_v1() AS s")[0]["s"] == pytest.approx(HOUR)
    assert broker.older_than(7200) == pytest.approx(broker.real + HOUR - 7200)


@checks("G-TIME-1", level=Level.MODEL)
def test_without_clock_checks_by_a_leader_no_time_passes(broker: Clocked) -> None:
    seen = broker.real
    broker.passes(500, HOUR)
    assert broker.older_than(10) == pytest.approx(seen + 60 - 10)


@checks("G-TIME-1", level=Level.MODEL)
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 5, 60, 700]), st.sampled_from([0, 0, 60, HOUR, 5000, -60, -HOUR, -2000])),
        min_size=1, max_size=12,
    )
)  # fmt: skip
def test_clock_steps_do_not_change_the_age_of_messages(opened: Clocked, moves: list[tuple[int, int]]) -> None:
    opened.forget()
    stored: list[tuple[float, float]] = []  # when, and created_at
    for passes, steps in moves:
        opened.passes(passes, steps)
        opened.look()
        now = opened.real + opened.ahead
        stored = [(real, min(created_at, now)) for real, created_at in stored]
        stored.append((opened.real, now))
        opened.passes(0.5)
        for age in (0.4, 30, 600, HOUR, 3 * HOUR):
            before = opened.older_than(age)
            for real, created_at in stored:
                # Steps are measured up to half a second.
                assert created_at >= before or opened.real - real >= age - 0.5, (age, real, created_at)


@checks("G-TIME-1", level=Level.MODEL)
def test_what_does_not_step_any_more_is_removed_in_the_end(broker: Clocked) -> None:
    for steps in (HOUR, -2000, 60, -HOUR, 5000):
        broker.passes(5, steps)
        broker.look()
    broker.passes(700)
    broker.look()
    assert broker.older_than(600) == pytest.approx(broker.real + broker.ahead - 600)


def test_a_clock_that_steps_all_the_time_fills_no_table(broker: Clocked) -> None:
    for _ in range(130):
        broker.passes(1, 10)
        broker.look()
    [row] = broker.query("SELECT count(*) AS rows, sum(distrusted) AS distrusted FROM queen.clock_steps")
    assert row["rows"] == 100
    assert row["distrusted"] == pytest.approx(1300)


@checks("G-TIME-2", level=Level.MODEL)
@pytest.mark.parametrize(
    ("queue_s", "asked_s", "given_ahead", "ends_in"),
    [
        (60, 2, True, 0),  # over, when four seconds have passed
        (60, 30, True, 26),
        (60, 7200, True, 7196),
        (60, 50, False, 46),  # given by the right clock
        (7200, 7000, False, 6996),
    ],
)
def test_a_lease_lasts_as_long_as_was_asked_for(
    broker: Clocked, queue_s: int, asked_s: int, given_ahead: bool, ends_in: int
) -> None:
    broker.perform(model.Configure("q", model.Options(lease_time=queue_s)))
    broker.push("q", 1)
    broker.passes(1, HOUR if given_ahead else 0)
    broker.look()
    assert len(broker.pop("q", asked_s)) == 1
    broker.passes(4, -HOUR if given_ahead else -5)
    broker.look()
    broker.repair()
    assert broker.ends_in("q") == pytest.approx(ends_in if given_ahead else ends_in + 5)
    broker.repair()
    assert broker.ends_in("q") == pytest.approx(ends_in if given_ahead else ends_in + 5), "once"
    assert broker.query("SELECT set_back, repaired_part FROM queen.clock")[0][:] == (0, None)


@checks("G-TIME-2", level=Level.MODEL)
def test_a_lease_that_is_given_while_times_are_repaired_stays(broker: Clocked) -> None:
    broker.perform(model.Configure("q", model.Options(lease_time=60)))
    broker.push("q", 1)
    broker.passes(1, -HOUR)
    broker.look()
    broker.repair()
    assert len(broker.pop("q")) == 1
    broker.passes(1, -HOUR)
    broker.look()
    broker.repair()
    assert broker.ends_in("q") == pytest.approx(59)


@checks("G-TIME-2", "G-ORD-5", level=Level.MODEL)
@pytest.mark.parametrize("options", [{"delayed_processing": 10}, {"window_buffer": 10}])
def test_what_was_pushed_by_a_clock_ahead_is_not_hidden(broker: Clocked, options: dict[str, Any]) -> None:
    broker.perform(model.Configure("q", model.Options(**options)))
    broker.passes(1, HOUR)
    broker.look()
    for number in range(5):
        broker.push("q", number)
        broker.passes(0.1)
    assert broker.pop("q") == [], "which puts the cursor off"
    broker.passes(1, -HOUR)
    broker.push("q", 5)
    broker.look()
    broker.repair()
    assert broker.ends_in("q") <= 10
    broker.push("q", 6)
    broker.passes(10)
    assert len(broker.pop("q")) == 7


@checks("G-TIME-2", level=Level.MODEL)
def test_a_timer_with_a_delay_waits_no_longer_than_that(broker: Clocked) -> None:
    def schedule(key: str, delay: float | None, at_s: float | None) -> None:
        broker.query(
            "SELECT queen.change_timers_v1(ARRAY['schedule'], ARRAY['q'], ARRAY[$1], ARRAY['p'], ARRAY['t'],"
            " ARRAY[$2::float8], ARRAY[$3::timestamptz], ARRAY['{}'], (SELECT version FROM queen.push_options))",
            key, delay, None if at_s is None else at(at_s),
        )  # fmt: skip

    def due_in(key: str) -> float:
        sql = "SELECT extract(EPOCH FROM deliver_at - queen.clock())::float8 AS s FROM queen.timers WHERE key = $1"
        return float(broker.query(sql, key)[0]["s"])

    schedule("before", 100, None)
    broker.passes(1, HOUR)
    broker.look()
    schedule("ahead", 100, None)
    schedule("soon", 1, None)
    schedule("at", None, broker.real + HOUR + 100)
    broker.passes(4, -HOUR)
    broker.look()
    broker.repair()
    broker.repair()
    assert [due_in(key) for key in ("before", "ahead", "soon", "at")] == [
        pytest.approx(95), pytest.approx(96), 0, pytest.approx(HOUR + 96)
    ]  # fmt: skip


@checks("G-TIME-2", level=Level.MODEL)
def test_a_retry_waits_no_longer_than_its_delay(broker: Clocked) -> None:
    broker.perform(model.Configure("q", model.Options(retry_delay=5000)))
    broker.push("q", 1)
    broker.passes(1, HOUR)
    broker.look()
    _, popped = broker.perform(model.Pop(queue="q"))
    assert isinstance(popped, model.Popped)
    [delivery] = popped.deliveries
    broker.perform(
        model.Ack(
            (
                model.AckItem(
                    queue="q",
                    partition="p",
                    transaction_id=delivery.transaction_id,
                    status="failed",
                    lease=popped.lease,
                ),
            )
        )
    )
    assert broker.ends_in("q") == pytest.approx(5)
    broker.passes(1, -HOUR)
    broker.look()
    broker.repair()
    assert broker.ends_in("q") == pytest.approx(4)
