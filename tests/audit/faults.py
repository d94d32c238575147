"""Faults to plant in a valid run: each changes its rows, and says which audits must find it, and at which offset."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from queen.log.ids import transaction_hash
from spark_validation.inputs import Cursor, DeadLetter, Deleted, Flaw, Head, IdSum, LogRow, Offsets
from spark_validation.journal.schema import QUEUE_MODE, Call, PushItem
from spark_validation.log.flaws import QUERIES
from spec.model import MessageId
from tests.support.runs import LEASE_S, Run, Tables

MESSAGES = 6
HOUR = 3_600_000_000
Expected = dict[str, int | None]


def ordinary(name: str, part_ids: int) -> tuple[Run, Tables]:
    """A run in which everything that is allowed happens, and nothing else."""
    run = Run(name, part_ids)
    for number in range(MESSAGES):
        for partition in ("a", "b"):
            run.push((partition, f"{name} {partition}{number}"))
    run.push(("c", f"{name} c0"), ("c", f"{name} c1"), ("c", None), ("c", f"{name} c3"))
    run.push(("b", f"{name} b0"))
    run.push(("c", f"{name} unknown, not stored"), answered=False, happens=False)
    run.push(("d", f"{name} d0"), ("d", f"{name} d1"), answered=False)
    run.push(("d", f"{name} d0"), ("d", f"{name} d1"))
    for partition in ("a", "b"):
        for _ in range(MESSAGES):
            run.ack(run.pop(None, 1, partition=partition))
    run.pop("g", 3, answered=False)
    run.wait(2 * LEASE_S)
    popped = run.pop("g", 3)
    run.ack(popped, "retry", "completed", "completed")
    run.ack(run.pop("g", 3), answered=False)
    run.ack(run.pop("g", 3), answered=False, happens=False)
    for _ in range(3):
        run.ack(run.pop("f", 1, partition="a"), "failed")
    run.ack(run.pop("late", 1, partition="a"), "completed")
    late = run.pop("late", 1, partition="a")
    run.wait(2 * LEASE_S)
    run.ack(late, "completed")
    for number in range(3):
        run.transact(run.pop("t", 1, partition="a"), [f"{name} o{number}", f"{name} p{number}"], answered=number != 1)
    run.push_in_sql(*(("s", f"{name} s{number}") for number in range(2)))
    run.push_in_sql(("s", f"{name} s2"), ("t", f"{name} t2"))
    run.push_in_sql(("s", f"{name} rolled back"), outcome="fail", happens=False)
    run.push_in_sql(("t", f"{name} t3"), ("t", f"{name} t4"), outcome="unknown")
    run.push_in_sql(("t", f"{name} lost"), ("s", f"{name} lost"), outcome="unknown", happens=False)
    for group in (None, "g", "f"):
        run.drain(group)
    run.drain(None, run.out)
    run.end()
    return run, run.tables()


@dataclass
class Scene:
    """A run with its tables, to be changed."""

    run: Run
    tables: Tables

    def of_group(self, partition: str, group: str = QUEUE_MODE) -> list[int]:
        """The places of the pops that brought a group something of a partition."""
        return [
            place
            for place, call in enumerate(self.tables.calls)
            if call.kind == "pop"
            and call.group == group
            and call.queue == self.run.queue
            and any(each.partition == partition for each in call.deliveries)
        ]

    def pushes(self, partition: str) -> list[int]:
        """The places of the pushes to a partition."""
        return [
            n
            for n, call in enumerate(self.tables.calls)
            if call.kind == "push" and call.pushes[0].partition == partition
        ]

    def ack_behind(self, place: int) -> int:
        """The place of the ack that follows a pop."""
        return next(n for n in range(place, len(self.tables.calls)) if self.tables.calls[n].kind == "ack")

    def change(self, place: int, **fields: object) -> None:
        self.tables.calls[place] = replace(self.tables.calls[place], **fields)

    def item(self, place: int, items: str, number: int = 0, **fields: object) -> None:
        """Changes one item of a call."""
        old = getattr(self.tables.calls[place], items)
        self.change(place, **{items: (*old[:number], replace(old[number], **fields), *old[number + 1 :])})

    def insert(self, place: int, call: Call, after: int = 100) -> None:
        """A call that begins so many microseconds after the one before it was answered."""
        sent = (self.tables.calls[place].answered or self.tables.calls[place].sent) + after
        self.tables.calls.insert(place + 1, replace(call, sent=sent, answered=sent + 50))

    def forget(self, kind: str) -> None:
        """Removes the rows of a kind."""
        self.tables.calls = [call for call in self.tables.calls if call.kind != kind]

    def part(self, partition: str) -> int:
        return self.run.part_id(self.run.queue, partition)

    def row(self, partition: str, offset: int) -> int:
        """The place of a row of the log."""
        return next(
            n for n, row in enumerate(self.tables.log) if row.part_id == self.part(partition) and row.offset == offset
        )

    def head(self, partition: str, **fields: object) -> Head:
        """Changes a head."""
        place = next(n for n, head in enumerate(self.tables.heads) if head.part_id == self.part(partition))
        self.tables.heads[place] = replace(self.tables.heads[place], **fields)
        return self.tables.heads[place]

    def cursor(self, partition: str, group: str = QUEUE_MODE, **fields: object) -> Cursor:
        """Changes a cursor."""
        place = next(
            n
            for n, each in enumerate(self.tables.cursors)
            if (each.queue, each.partition, each.group) == (self.run.queue, partition, group)
        )
        self.tables.cursors[place] = replace(self.tables.cursors[place], **fields)
        return self.tables.cursors[place]

    def renumbered(self) -> Tables:
        """The tables; rows that were removed or added leave no hole."""
        self.tables.calls = [replace(call, number=number) for number, call in enumerate(self.tables.calls)]
        return self.tables


def swapped_deliveries(scene: Scene, place: int) -> Expected:
    pops = scene.of_group("a")
    one, other = pops[place], pops[place + 1]
    for items, (first, second) in (
        ("deliveries", (one, other)),
        ("acks", (scene.ack_behind(one), scene.ack_behind(other))),
    ):
        a, b = getattr(scene.tables.calls[first], items)[0], getattr(scene.tables.calls[second], items)[0]
        lease = {} if items == "deliveries" else {"lease": a.lease}
        scene.change(first, **{items: (replace(b, **lease),)})
        scene.change(second, **{items: (replace(a, **({} if items == "deliveries" else {"lease": b.lease})),)})
    return {"first_deliveries_in_offset_order": place}


def disorder_in_an_answer(scene: Scene, place: int) -> Expected:
    at = next(
        n
        for n in scene.of_group("a", "g")
        if sum(each.partition == "a" for each in scene.tables.calls[n].deliveries) > 1
    )
    first, second, *rest = scene.tables.calls[at].deliveries
    scene.change(at, deliveries=(second, first, *rest))
    return {"first_deliveries_in_offset_order": 0}


def skipped_delivery(scene: Scene, place: int) -> Expected:
    scene.change(scene.of_group("a")[place], deliveries=())
    acked = {"only_leases_that_were_given_can_ack": None}
    if place in (0, MESSAGES - 1):
        first = {} if place else {"groups_begin_at_the_beginning": 1}
        return {"every_group_gets_every_message": place} | first | acked
    scene.forget("drained")
    return {"deliveries_leave_no_gap": place + 1} | acked


def hole_in_the_log(scene: Scene, place: int) -> Expected:
    scene.tables.heads.append(Head(scene.part("x"), scene.run.queue, "x", MESSAGES, 0))
    rows = [LogRow(scene.part("x"), offset, 1, 1000 + offset) for offset in range(MESSAGES)]
    del rows[place]
    scene.tables.log += rows
    return {"the_log_has_no_gap": place + 1}


def lost_push(scene: Scene, place: int) -> Expected:
    partition = "ab"[place]
    del scene.tables.log[scene.row(partition, MESSAGES - 1)]
    scene.head(partition, next_offset=MESSAGES - 1)
    return {"answered_pushes_are_in_the_log": MESSAGES - 1}


def strange_message(scene: Scene, place: int) -> Expected:
    partition = "ab"[place]
    scene.tables.log.append(LogRow(scene.part(partition), MESSAGES, (1 << 51), 12345))
    scene.head(partition, next_offset=MESSAGES + 1)
    return {"the_log_holds_what_was_pushed": MESSAGES}


def stored_twice(scene: Scene, place: int) -> Expected:
    row = scene.tables.log[scene.row("a", place)]
    scene.tables.log.append(replace(row, offset=MESSAGES, created_at=1 << 51))
    scene.head("a", next_offset=MESSAGES + 1)
    return {"a_transaction_id_is_stored_once": place}


def queued_twice(scene: Scene, place: int) -> Expected:
    at = scene.pushes("a")[place]
    scene.insert(at, scene.tables.calls[at])
    return {"a_transaction_id_is_stored_once": place}


def duplicate_of_nothing(scene: Scene, place: int) -> Expected:
    """One push, or several of the same."""
    item = PushItem(scene.run.queue, "a", "never", "ok", duplicate=True)
    call = replace(scene.tables.calls[scene.pushes("a")[0]], pushes=(item,), answered=1 << 52)
    for _ in range(place + 1):
        scene.tables.calls.insert(-1, replace(call, sent=scene.tables.calls[-1].sent))
    return {"a_duplicate_has_an_original_in_its_partition": None, "answered_pushes_are_in_the_log": None}


def two_leases(scene: Scene, place: int) -> Expected:
    at = scene.of_group("a")[place]
    call, ack = scene.tables.calls[at], scene.ack_behind(at)
    scene.item(ack, "acks", lease=f"another of {scene.run.name}")
    scene.change(at, lease_seconds=0.0035)
    scene.insert(
        at, replace(call, lease=f"another of {scene.run.name}", deliveries=(replace(call.deliveries[0], attempt=2),))
    )
    return {"a_lease_excludes_all_others": None}


def late_ack(scene: Scene, place: int) -> Expected:
    late = next(
        n
        for n, call in enumerate(scene.tables.calls)
        if call.kind == "ack" and call.acks[0].error == "Invalid or expired lease"
    )
    scene.item(late, "acks", outcome="ok", error=None)
    scene.cursor("a", "late", acked=1)
    return {"an_ended_lease_acks_nothing": None}


def wrong_attempt(scene: Scene, place: int) -> Expected:
    scene.item(scene.of_group("a")[place], "deliveries", attempt=2)
    return {"attempts_rise": place}


def delivered_twice_at_once(scene: Scene, place: int) -> Expected:
    """To a pop with a lease and to one with autoAck, which were under way together: one cannot be the first."""
    at = scene.of_group("a")[place]
    call = scene.tables.calls[at]
    scene.tables.calls.insert(at + 1, replace(call, lease=None, auto_ack=True))
    return {"attempts_rise": place}


def redelivery(scene: Scene, place: int) -> Expected:
    at = scene.of_group("a")[place]
    call = scene.tables.calls[at]
    last = len(scene.tables.calls) - 2
    scene.insert(
        last, replace(call, lease=f"again of {scene.run.name}", deliveries=(replace(call.deliveries[0], attempt=2),))
    )
    return {"what_is_done_does_not_come_again": place}


def cursor_set_back(scene: Scene, place: int) -> Expected:
    scene.cursor("ab"[place], acked=MESSAGES - 2)
    return {"answered_acks_are_below_the_cursor": MESSAGES - 1}


def passed_over(scene: Scene, place: int) -> Expected:
    scene.item(scene.ack_behind(scene.of_group("b")[place]), "acks", status="retry")
    return {"cursors_pass_only_what_is_done": place, "what_was_delivered_is_done_in_the_end": place}


def finished_ahead(scene: Scene, place: int) -> Expected:
    """A message that no consumer finished counts as done ahead of the cursor, like those after it."""
    scene.cursor("b", acked=place - 1, ahead=(Offsets(place, MESSAGES - 1),))
    return passed_over(scene, place)


def _limit(scene: Scene, limit: int) -> None:
    scene.tables.queues = [replace(each, retry_limit=limit) for each in scene.tables.queues]
    for place, call in enumerate(scene.tables.calls):
        if call.kind == "configured":
            scene.change(place, retry_limit=limit)


def early_dead_letter(scene: Scene, place: int) -> Expected:
    _limit(scene, 3)
    return {"dead_letters_come_in_time": None}


def late_dead_letter(scene: Scene, place: int) -> Expected:
    _limit(scene, 1)
    return {"dead_letters_come_in_time": None}


def dead_twice(scene: Scene, place: int) -> Expected:
    at = next(n for n, call in enumerate(scene.tables.calls) if call.kind == "ack" and call.acks[0].dead)
    scene.insert(at, scene.tables.calls[at])
    return {"dead_letters_come_in_time": None}


def lost_dead_letter(scene: Scene, place: int) -> Expected:
    scene.tables.dead_letters = []
    return {"answered_dead_letters_are_kept": 0}


def dead_letter_kept_twice(scene: Scene, place: int) -> Expected:
    letter: DeadLetter = scene.tables.dead_letters[0]
    scene.tables.dead_letters.append(letter)
    return {"answered_dead_letters_are_kept": 0}


def half_a_transaction(scene: Scene, place: int) -> Expected:
    """The second, which has no answer, loses its first or its second output."""
    lost = f"{scene.run.name} {'op'[place]}1"
    part = scene.run.part_id(scene.run.out, lost)
    scene.tables.log = [row for row in scene.tables.log if row.part_id != part]
    scene.tables.heads = [head for head in scene.tables.heads if head.part_id != part]
    for n, call in enumerate(scene.tables.calls):
        for items in ("deliveries", "acks"):
            if call.kind in ("pop", "ack"):
                scene.change(
                    n,
                    **{items: tuple(each for each in getattr(scene.tables.calls[n], items) if each.partition != lost)},
                )
    return {"a_transaction_happens_whole_or_not_at_all": None}


def input_left(scene: Scene, place: int) -> Expected:
    """The input of the second, which has no answer, is not done, although its outputs are there."""
    scene.cursor("a", "t", acked=place, ahead=(Offsets(place + 2, place + 2),))
    return {"a_transaction_happens_whole_or_not_at_all": None}


def input_twice(scene: Scene, place: int) -> Expected:
    at = [n for n, call in enumerate(scene.tables.calls) if call.kind == "transaction"][place]
    scene.insert(at, replace(scene.tables.calls[at], pushes=(), outcome="ok"))
    scene.item(at + 1, "acks", outcome="ok")
    return {"each_input_makes_its_output_once": None}


def changed_payload(scene: Scene, place: int) -> Expected:
    scene.item(scene.of_group("a")[place], "deliveries", payload_hash=1)
    return {"deliveries_are_what_was_pushed": place}


def payload_of_a_duplicate(scene: Scene, place: int) -> Expected:
    """What was pushed again with another payload is in the log, or was delivered."""
    scene.item(scene.pushes("b")[-1], "pushes", payload_hash=1)
    if place:
        scene.item(scene.of_group("b")[0], "deliveries", payload_hash=1)
        return {"deliveries_are_what_was_pushed": 0}
    at = scene.row("b", 0)
    scene.tables.log[at] = replace(scene.tables.log[at], payload_hash=1)
    return {"the_log_has_the_pushed_payloads": 0}


_ASTRAY: Expected = {"pops_keep_to_their_limits": None, "only_leases_that_were_given_can_ack": None}


def misrouted(scene: Scene, place: int) -> Expected:
    """One delivery says another partition than the message has."""
    at = scene.of_group("a")[place]
    scene.item(at, "deliveries", partition="b")
    scene.forget("drained")
    return {"deliveries_are_what_was_pushed": None, "deliveries_leave_no_gap": place + 1, **_ASTRAY}


def unreadable_segment(scene: Scene, place: int) -> Expected:
    at = scene.row("a", place)
    scene.tables.log[at] = replace(scene.tables.log[at], hash=None, damage="it is damaged")
    return {"every_segment_can_be_read": place}


def never_pushed(scene: Scene, place: int) -> Expected:
    del scene.tables.calls[scene.pushes("a")[place]]
    return {"deliveries_are_what_was_pushed": place, "the_log_holds_what_was_pushed": place}


def pushes_swapped(scene: Scene, place: int) -> Expected:
    pushes = scene.pushes("a")
    one, other = (scene.tables.calls[pushes[n]].pushes for n in (place, place + 1))
    scene.change(pushes[place], pushes=other)
    scene.change(pushes[place + 1], pushes=one)
    return {"pushes_keep_their_order": place}


def request_disordered(scene: Scene, place: int) -> Expected:
    at = scene.pushes("c")[0]
    items = list(scene.tables.calls[at].pushes)
    items[place], items[place + 1] = items[place + 1], items[place]
    scene.change(at, pushes=tuple(items))
    return {"a_request_keeps_its_order": place}


def time_that_falls(scene: Scene, place: int) -> Expected:
    for n, call in enumerate(scene.tables.calls):
        if call.kind == "pop":
            items = tuple(
                replace(each, created_at=each.created_at + HOUR)
                if (each.queue, each.partition, each.offset) == (scene.run.queue, "a", place)
                else each
                for each in call.deliveries
            )
            scene.change(n, deliveries=items)
    return {"delivered_times_never_fall": place + 1, "delivered_times_are_those_of_the_log": place}


def logged_time_that_falls(scene: Scene, place: int) -> Expected:
    at = scene.row("a", place)
    scene.tables.log[at] = replace(scene.tables.log[at], created_at=scene.tables.log[at].created_at + HOUR)
    return {"logged_times_never_fall": place + 1, "delivered_times_are_those_of_the_log": place}


def removed_too_early(scene: Scene, place: int) -> Expected:
    scene.tables.log = [row for row in scene.tables.log if row.part_id != scene.part("a") or row.offset > place]
    scene.head("a", oldest_offset=place + 1)
    return {"only_what_may_go_is_gone": place + 1}


REMOVES = ("retention_seconds", "ttl_seconds")


def removed_too_young(scene: Scene, place: int) -> Expected:
    scene.tables.queues = [replace(each, **{REMOVES[place]: 1 << 40}) for each in scene.tables.queues]
    scene.tables.log = [row for row in scene.tables.log if row.part_id != scene.part("a") or row.offset > 0]
    scene.head("a", oldest_offset=1)
    return {"only_what_may_go_is_gone": 0}


def removed_where_it_is_only_given_up(scene: Scene, place: int) -> Expected:
    scene.tables.queues = [replace(each, max_wait_seconds=1) for each in scene.tables.queues]
    return removed_too_early(scene, place)


def pushed_again_as_another(scene: Scene, place: int) -> Expected:
    """The id of a message of another partition is a transaction id like any other, and here it is lost."""
    item = PushItem(scene.run.queue, "a", scene.run.message_id(MessageId(scene.run.out, "o0", place)), "ok")
    call = replace(
        scene.tables.calls[scene.pushes("a")[0]], pushes=(item,), sent=scene.tables.calls[-1].sent, answered=1 << 52
    )
    scene.tables.calls.insert(-1, call)
    return {"answered_pushes_are_in_the_log": None}


def lost_in_the_spool(scene: Scene, place: int) -> Expected:
    item = PushItem(scene.run.queue, "a", "spooled", "ok", spooled=True)
    call = replace(
        scene.tables.calls[scene.pushes("a")[0]], pushes=(item,), sent=scene.tables.calls[-1].sent, answered=1 << 52
    )
    scene.tables.calls.insert(-1, call)
    return {"spooled_messages_are_stored_once": None, "answered_pushes_are_in_the_log": None}


def half_a_request(scene: Scene, place: int) -> Expected:
    """The messages of a push without an answer were pushed again; one of them is missing."""
    at = scene.pushes("a")[place]
    scene.change(at, answered=None, outcome="unknown")
    scene.item(at, "pushes", outcome="unknown")
    extra = replace(scene.tables.calls[at].pushes[0], transaction_id="not stored", message_id=None)
    scene.change(at, pushes=(*scene.tables.calls[at].pushes, extra))
    return {"a_request_is_stored_whole_or_not_at_all": None}


def too_much(scene: Scene, place: int) -> Expected:
    scene.change(scene.of_group("a")[place], batch=0)
    return {"pops_keep_to_their_limits": None}


def from_elsewhere(scene: Scene, place: int) -> Expected:
    scene.change(scene.of_group("a")[place], partition="b")
    return {"pops_keep_to_their_limits": None}


def noop_that_was_none(scene: Scene, place: int) -> Expected:
    at = next(n for n, call in enumerate(scene.tables.calls) if call.kind == "ack" and call.acks[0].status == "retry")
    scene.item(at, "acks", noop=True)
    return {"answers_do_not_contradict_themselves": None}


def duplicate_of_another(scene: Scene, place: int) -> Expected:
    at = next(n for n in scene.pushes("b") if scene.tables.calls[n].pushes[0].duplicate)
    scene.item(at, "pushes", message_id=scene.run.message_id(MessageId(scene.run.queue, "b", 1 + place)))
    return {"a_duplicate_names_the_stored_message": 0}


def pushed_elsewhere(scene: Scene, place: int) -> Expected:
    """A push is answered with the id of a message of another partition."""
    id_ = scene.run.message_id(MessageId(scene.run.queue, "b", place))
    scene.item(scene.pushes("a")[place], "pushes", message_id=id_)
    return {"answers_do_not_contradict_themselves": None}


def partition_that_never_was(scene: Scene, place: int) -> Expected:
    """A delivery has an id of a partition that there cannot have been: that in the database is older."""
    scene.head("a", created_at=1)
    at = scene.of_group("a")[place]
    id_ = scene.tables.calls[at].deliveries[0].message_id
    assert id_ is not None
    scene.item(at, "deliveries", message_id=f"0fff{id_[4:]}")
    scene.forget("drained")
    lost = {"deliveries_leave_no_gap": place + 1, "only_leases_that_were_given_can_ack": None}
    return {"deliveries_are_what_was_pushed": None, **lost}


def lease_of_nobody(scene: Scene, place: int) -> Expected:
    at = max(n for n, c in enumerate(scene.tables.calls) if c.kind == "ack" and c.acks[0].group == "f")
    scene.item(at, "acks", lease="of nobody")
    return {"only_leases_that_were_given_can_ack": None}


def revived_lease(scene: Scene, place: int) -> Expected:
    pop = scene.tables.calls[scene.of_group("a")[place]]
    call = replace(pop, kind="renew", queue=None, group=None, deliveries=())
    scene.insert(len(scene.tables.calls) - 2, call)
    return {"a_renewal_revives_no_lease": None}


def too_many_attempts(scene: Scene, place: int) -> Expected:
    scene.item(scene.of_group("a", "f")[2], "deliveries", attempt=500)
    return {"attempts_are_at_most_the_deliveries": 0}


def forgotten_group(scene: Scene, place: int) -> Expected:
    for name in ("groups", "cursors"):
        setattr(scene.tables, name, [each for each in getattr(scene.tables, name) if each.group != "late"])
    return {"no_group_is_forgotten": None}


def other_time_of_a_delivery(scene: Scene, place: int) -> Expected:
    at = scene.of_group("a")[LAST]
    created = scene.tables.calls[at].deliveries[0].created_at
    scene.item(at, "deliveries", created_at=(created or 0) + HOUR)
    return {"delivered_times_are_those_of_the_log": LAST}


def pushed_at_another_time(scene: Scene, place: int) -> Expected:
    """Its agent knows how far its clock is from that of PostgreSQL."""
    at = scene.pushes("a")[LAST]
    push = scene.tables.calls[at]
    later = 5_000 if place else -5_000
    scene.change(at, sent=push.sent + later, answered=(push.answered or 0) + later)
    clock = replace(push, kind="clock", pushes=(), sent=push.sent, answered=push.sent, server_time=push.sent)
    scene.tables.calls.insert(at + 1, replace(clock, server_precision=1))
    return {"messages_have_the_time_of_their_push": LAST}


def delivery_that_no_cursor_knows(scene: Scene, place: int) -> Expected:
    scene.cursor("a", "late", seen=0, upto=1)
    return {"cursors_know_what_was_delivered": 1}


def other_payload_in_the_log(scene: Scene, place: int) -> Expected:
    at = scene.row("a", place)
    scene.tables.log[at] = replace(scene.tables.log[at], payload_hash=1)
    return {"the_log_has_the_pushed_payloads": place}


def other_id_in_the_log(scene: Scene, place: int) -> Expected:
    at = scene.row("a", place)
    scene.tables.log[at] = replace(scene.tables.log[at], id_differs=True)
    return {"transaction_ids_are_those_of_the_log": place}


def transaction_id_of_nothing(scene: Scene, place: int) -> Expected:
    scene.tables.id_sums.append(IdSum(scene.part("a"), 1, 5))
    return {"transaction_ids_are_those_of_the_log": None}


FLAWED = tuple(QUERIES)


def flaw(scene: Scene, place: int) -> Expected:
    """What PostgreSQL says of its tables; ``test_damages`` plants it there."""
    scene.tables.flaws.append(Flaw(FLAWED[place], scene.run.queue, "a", "g", 3, "is damaged"))
    return {FLAWED[place]: 3}


def _sql(scene: Scene) -> list[int]:
    """The places of the transactions of SQL."""
    return [place for place, call in enumerate(scene.tables.calls) if call.kind == "sql"]


def committed_in_vain(scene: Scene, place: int) -> Expected:
    """A transaction of SQL committed, and one of its messages is neither in the log nor in the outbox."""
    at = _sql(scene)[place]
    call = scene.tables.calls[at]
    scene.change(at, pushes=(*call.pushes, replace(call.pushes[0], transaction_id="lost by the mover")))
    return {"pushes_with_sql_commit_with_their_transaction": None}


def rolled_back_and_stored(scene: Scene, place: int) -> Expected:
    at = _sql(scene)[place]
    scene.change(at, outcome="fail")
    scene.item(at, "pushes", outcome="fail")
    found = scene.tables.calls[at].pushes
    scene.change(at, pushes=found[:1])
    scene.insert(
        at, replace(scene.tables.calls[at], outcome="ok", pushes=tuple(replace(e, outcome="ok") for e in found[1:]))
    )
    at = 2 * place
    return {"pushes_with_sql_commit_with_their_transaction": at, "answers_do_not_contradict_themselves": at}


def half_a_transaction_of_sql(scene: Scene, place: int) -> Expected:
    """Its outcome is unknown; it counts as committed, because something of it is there."""
    at = _sql(scene)[3]
    call = scene.tables.calls[at]
    item = replace(call.pushes[0], transaction_id="the other half")
    scene.change(at, pushes=(item, *call.pushes) if place else (*call.pushes, item))
    return {"pushes_with_sql_commit_with_their_transaction": None}


def moved_twice(scene: Scene, place: int) -> Expected:
    row = scene.tables.log[scene.row("s", place)]
    scene.tables.log.append(replace(row, offset=3, created_at=1 << 51))
    scene.head("s", next_offset=4)
    return {"a_transaction_id_is_stored_once": place, "pushes_with_sql_commit_with_their_transaction": 3}


def transactions_swapped(scene: Scene, place: int) -> Expected:
    """A transaction began after another had committed, and its messages are before those of it."""
    first, second, *_ = _sql(scene)
    (one, two), (three, other) = scene.tables.calls[first].pushes, scene.tables.calls[second].pushes
    scene.change(first, pushes=(one, three))
    scene.change(second, pushes=(two, other))
    return {"pushes_with_sql_keep_their_order": place}


def transaction_disordered(scene: Scene, place: int) -> Expected:
    at = _sql(scene)[place]
    scene.change(at, pushes=scene.tables.calls[at].pushes[::-1])
    return {"pushes_with_sql_keep_their_order": 0 if place == 0 else 1}


FIRST, MIDDLE, LAST = 0, 2, MESSAGES - 1


def no_client_was_told_an_id(scene: Scene, place: int) -> Expected:
    """No fault: of a message without a transaction id the answer was lost, or it was "buffered"."""
    [push] = [n for n in scene.pushes("c") if len(scene.tables.calls[n].pushes) == 4]
    if place:
        scene.change(push, answered=None, outcome="unknown")
        for number in range(4):
            scene.item(push, "pushes", number, outcome="unknown", offset=None, message_id=None)
        scene.item(push, "pushes", 2, transaction_id=None)
    else:
        scene.item(push, "pushes", 2, spooled=True, transaction_id=None, offset=None, message_id=None)
    return {}


def buffered_and_pushed_again(scene: Scene, place: int) -> Expected:
    """No fault: of two pushes of a message one was stored, and the other, "buffered", was found to be a duplicate."""
    call = scene.tables.calls[scene.pushes("a")[place]]
    item = replace(call.pushes[0], spooled=True, offset=None, message_id=None)
    scene.tables.calls.insert(-1, replace(call, pushes=(item,), sent=scene.tables.calls[-1].sent, answered=1 << 52))
    return {}


FAULTS: dict[Callable[[Scene, int], Expected], tuple[int, ...]] = {
    swapped_deliveries: (FIRST, MIDDLE, LAST - 1),
    disorder_in_an_answer: (0,),
    buffered_and_pushed_again: (FIRST, LAST),
    skipped_delivery: (FIRST, 1, MIDDLE, LAST - 1, LAST),
    hole_in_the_log: (FIRST, MIDDLE, LAST),
    lost_push: (0, 1),
    strange_message: (0, 1),
    stored_twice: (FIRST, MIDDLE, LAST),
    queued_twice: (FIRST, MIDDLE, LAST),
    duplicate_of_nothing: (0, 1),
    two_leases: (FIRST, MIDDLE, LAST),
    late_ack: (0,),
    wrong_attempt: (FIRST, MIDDLE, LAST),
    redelivery: (FIRST, MIDDLE, LAST),
    delivered_twice_at_once: (FIRST, LAST),
    cursor_set_back: (0, 1),
    passed_over: (FIRST, MIDDLE, LAST),
    finished_ahead: (FIRST, MIDDLE, LAST),
    early_dead_letter: (0,),
    late_dead_letter: (0,),
    dead_twice: (0,),
    lost_dead_letter: (0,),
    dead_letter_kept_twice: (0,),
    half_a_transaction: (0, 1),
    input_twice: (0, 1, 2),
    input_left: (0,),
    changed_payload: (FIRST, MIDDLE, LAST),
    payload_of_a_duplicate: (0, 1),
    misrouted: (MIDDLE,),
    unreadable_segment: (FIRST, LAST),
    never_pushed: (FIRST, MIDDLE, LAST),
    pushes_swapped: (FIRST, MIDDLE, LAST - 1),
    request_disordered: (0, 1, 2),
    time_that_falls: (FIRST, MIDDLE, LAST - 1),
    logged_time_that_falls: (FIRST, MIDDLE, LAST - 1),
    removed_too_early: (FIRST, MIDDLE, LAST - 1),
    removed_too_young: (0, 1),
    removed_where_it_is_only_given_up: (FIRST,),
    pushed_again_as_another: (0, MESSAGES - 1, MESSAGES),
    lost_in_the_spool: (0,),
    half_a_request: (FIRST, MIDDLE, LAST),
    flaw: tuple(range(len(FLAWED))),
    other_payload_in_the_log: (FIRST, LAST),
    other_id_in_the_log: (MIDDLE,),
    transaction_id_of_nothing: (0,),
    too_much: (FIRST, LAST),
    from_elsewhere: (FIRST,),
    noop_that_was_none: (0,),
    duplicate_of_another: (0, 1),
    pushed_elsewhere: (FIRST, LAST),
    partition_that_never_was: (MIDDLE,),
    lease_of_nobody: (0,),
    revived_lease: (FIRST,),
    too_many_attempts: (0,),
    forgotten_group: (0,),
    other_time_of_a_delivery: (0,),
    pushed_at_another_time: (1,),
    delivery_that_no_cursor_knows: (0,),
    no_client_was_told_an_id: (0, 1),
    committed_in_vain: (0, 1),
    rolled_back_and_stored: (0, 1),
    half_a_transaction_of_sql: (0, 1),
    moved_twice: (0, 2),
    transactions_swapped: (1,),
    transaction_disordered: (0, 3),
}
"""Each fault with the positions at which it is planted."""


def cut_short(scene: Scene, place: int) -> None:
    """The agent was killed: what it did afterwards, and perhaps the answer to its last calls, is not in its journal."""
    scene.tables.calls = scene.tables.calls[:place]


def killed_amid_an_ack(scene: Scene, place: int) -> None:
    """One client's ack has no row, for its agent was killed, although much that another client did later is known."""
    popped = scene.of_group("a")[place]
    for n, call in enumerate(scene.tables.calls):
        scene.change(n, client="one" if n == popped and call.kind == "pop" else "other")
    del scene.tables.calls[scene.ack_behind(popped)]
    scene.forget("end")


def rows_lost(scene: Scene, place: int) -> None:
    """Rows in the middle are missing, and their numbers with them."""
    del scene.tables.calls[place : place + 3]


def first_push_lost(scene: Scene, place: int) -> None:
    """The same, and a later push of the first message, whose id was free again, is known."""
    id_used_again(scene, 0)
    scene.renumbered()
    del scene.tables.calls[place : place + 3]


def clock_ahead(scene: Scene, place: int) -> None:
    """The agent's clock is so many seconds ahead of the server's, and it compared the two by times in whole seconds."""
    second = 1_000_000
    ahead = place * second
    calls = [
        replace(call, sent=call.sent + ahead, answered=None if call.answered is None else call.answered + ahead)
        for call in scene.tables.calls
    ]
    compared = [
        replace(call, kind="clock", outcome="ok", server_time=true.sent // second * second, server_precision=second,
                pushes=(), deliveries=(), acks=())
        for call, true in zip(calls, scene.tables.calls, strict=True) if call.answered is not None
    ]  # fmt: skip
    scene.tables.calls = [*calls[:-1], *compared, calls[-1]]


def not_given(scene: Scene, offset: int, *groups: str) -> LogRow:
    """A message that these groups were not given, and said nothing of; its row of the log."""
    row = scene.tables.log[scene.row("a", offset)]
    name = f"{scene.run.name} a{offset}"
    for n, call in enumerate(scene.tables.calls):
        if call.kind != "pop" or call.group in groups:
            told = [each for each in call.deliveries if (each.partition, each.transaction_id) != ("a", name)]
            scene.change(n, deliveries=tuple(told))
        said = [each for each in call.acks if each.group not in groups or each.transaction_id != name]
        scene.change(n, acks=tuple(said))
    return row


def deleted(scene: Scene, place: int) -> None:
    """Somebody deleted a message before anybody was given it, and then its producer sent it again."""
    row = not_given(scene, place, QUEUE_MODE, "g", "f", "late", "t")
    scene.tables.deleted.append(Deleted(row.part_id, place, place))
    scene.tables.dead_letters = [each for each in scene.tables.dead_letters if each.offset != place]
    end = len(scene.tables.calls) - 2
    scene.insert(end, scene.tables.calls[scene.pushes("a")[place]])
    scene.item(end + 1, "pushes", message_id=None, offset=MESSAGES)
    scene.tables.log.append(replace(row, offset=MESSAGES, created_at=1 << 51))
    scene.head("a", next_offset=MESSAGES + 1)


def deleted_later(scene: Scene, place: int) -> None:
    """Somebody deleted a message that everybody had been given."""
    row = scene.tables.log[scene.row("a", place)]
    scene.tables.deleted.append(Deleted(row.part_id, place, place))
    scene.tables.dead_letters = [each for each in scene.tables.dead_letters if each.offset != place]


def waited_too_long(scene: Scene, place: int) -> None:
    """A group gave a message up that it was never given, with a dead letter."""
    not_given(scene, place, "g")
    scene.tables.dead_letters.append(DeadLetter(scene.run.queue, "a", "g", place, 0))


def waited_too_long_in_silence(scene: Scene, place: int) -> None:
    """The same in a queue that keeps no dead letters."""
    not_given(scene, place, "g")
    scene.tables.queues = [replace(each, max_wait_seconds=1, keeps_dead_letters=False) for each in scene.tables.queues]


def everything_of(scene: Scene, queue: str) -> set[int]:
    """Takes a queue out of the database; the numbers of its partitions."""
    parts = {head.part_id for head in scene.tables.heads if head.queue == queue}
    for name in ("log", "heads"):
        setattr(scene.tables, name, [row for row in getattr(scene.tables, name) if row.part_id not in parts])
    for name in ("cursors", "dead_letters", "groups", "queues"):
        setattr(scene.tables, name, [row for row in getattr(scene.tables, name) if row.queue != queue])
    return parts


def queue_deleted(scene: Scene, place: int) -> None:
    """Somebody deleted the queue of the inputs, or that of the outputs, of which a message was only buffered."""
    queue = (scene.run.queue, scene.run.out)[place]
    everything_of(scene, queue)
    item = PushItem(queue, "a", "spooled", "ok", spooled=True)
    scene.insert(len(scene.tables.calls) - 2, replace(scene.tables.calls[scene.pushes("a")[0]], pushes=(item,)))


def queue_made_anew(scene: Scene, place: int) -> None:
    """Somebody deleted it, and made one of the same name, perhaps with a partition of the same name."""
    old = next(each for each in scene.tables.queues if each.queue == scene.run.queue)
    everything_of(scene, scene.run.queue)
    scene.tables.queues.append(replace(old, created_at=scene.tables.calls[-1].sent))
    if place:
        scene.tables.heads.append(Head(scene.part("a") + 50, scene.run.queue, "a", 1, 0))
        scene.tables.log.append(LogRow(scene.part("a") + 50, 0, 1 << 51, 77))


def sent_again_and_queue_deleted(scene: Scene, place: int) -> None:
    """An id was free again, as its message had been removed or deleted, of which the queue took the trace with it."""
    end = len(scene.tables.calls) - 2
    scene.insert(end, scene.tables.calls[scene.pushes("a")[place]])
    scene.item(end + 1, "pushes", message_id=None, offset=MESSAGES)
    everything_of(scene, scene.run.queue)


def removed(scene: Scene, upto: int, archived: bool, **settings: int) -> None:
    """Everything of a partition below an offset is gone from the database, as its settings say."""
    scene.tables.queues = [replace(each, **settings) for each in scene.tables.queues]
    if archived:
        scene.head("a", live_oldest=upto)
        return
    part = scene.part("a")
    scene.tables.log = [row for row in scene.tables.log if row.part_id != part or row.offset >= upto]
    scene.head("a", oldest_offset=upto)


def removed_by_ttl(scene: Scene, place: int) -> None:
    """A queue may remove messages without retention being on."""
    removed(scene, place, archived=False, ttl_seconds=1)


def removed_before_it_was_given(scene: Scene, place: int) -> None:
    """Retention was faster than a group; at the second place an archive has the messages still."""
    for offset in (0, 1):
        not_given(scene, offset, "g")
    removed(scene, 2, archived=bool(place), retention_seconds=1)


def id_used_again(scene: Scene, place: int) -> None:
    """Retention had removed the message of an id, which is free then."""
    row = scene.tables.log[scene.row("a", 0)]
    removed(scene, 1, archived=False, retention_seconds=1)
    end = len(scene.tables.calls) - 2
    scene.insert(end, scene.tables.calls[scene.pushes("a")[0]])
    scene.item(end + 1, "pushes", message_id=None, offset=MESSAGES)
    scene.tables.log.append(replace(row, offset=MESSAGES, created_at=1 << 51))
    scene.head("a", next_offset=MESSAGES + 1)


def id_of_another_partition(scene: Scene, place: int) -> None:
    """A pipeline gives its output the id of its input, which the server made in another partition."""
    name = scene.run.message_id(MessageId(scene.run.queue, "c", place))
    end = len(scene.tables.calls) - 2
    at = scene.pushes("a")[0]
    scene.insert(end, scene.tables.calls[at])
    scene.item(end + 1, "pushes", transaction_id=name, message_id=None, offset=MESSAGES)
    hash_ = int.from_bytes(transaction_hash(name)[:8], "big") >> 4
    scene.tables.log.append(LogRow(scene.part("a"), MESSAGES, 1 << 51, hash_))
    scene.head("a", next_offset=MESSAGES + 1)


HARMLESS: dict[Callable[[Scene, int], None], tuple[int, ...]] = {
    cut_short: (5, 20, 32, 40, 55, 70),
    killed_amid_an_ack: (0, 4),
    rows_lost: (0, 3, 21, 47),
    first_push_lost: (0,),
    clock_ahead: (30, 3_600),
}
"""What happens to journals through no fault of the server."""

GONE: dict[Callable[[Scene, int], None], tuple[int, ...]] = {
    deleted: (FIRST, MIDDLE, LAST),
    deleted_later: (FIRST, MIDDLE),
    waited_too_long: (FIRST, MIDDLE, LAST),
    waited_too_long_in_silence: (MIDDLE,),
    queue_deleted: (0, 1),
    queue_made_anew: (0, 1),
    sent_again_and_queue_deleted: (0,),
    removed_by_ttl: (1, LAST),
    removed_before_it_was_given: (0, 1),
    id_used_again: (0,),
    id_of_another_partition: (0, LAST),
}
"""What is gone from the database through no fault of the server."""
