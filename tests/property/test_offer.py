"""What a push gives to waiting long polls: which messages each has got, and which are still to be told."""

import asyncio
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from queen.core.job_type import JobType
from queen.engine.job import Job
from queen.engine.metadata_cache import MetadataCache
from queen.engine.offer import Offer
from queen.engine.ports import Database, Given, PartitionName, Subscription
from queen.log.append import AppendBatch, Appended, lay_out
from queen.log.requests import QUEUE_MODE, Claim, PartitionBatch, Pop, Popped, Push
from queen.log.segment import decode_entries, encode_plain, plain_length
from spec.guarantees import Level, checks

NOW = datetime(2026, 11, 25, tzinfo=UTC)
PAYLOADS = [b"1", b"22", b"333"]


class Groups(MetadataCache):
    """Has been told of a group what PostgreSQL answers: by default that it exists, with all its cursors."""

    def __init__(self, told: Subscription = Subscription(1, 7, True, None), group: str = QUEUE_MODE) -> None:  # noqa: B008
        super().__init__(cast("Database", None), 10)
        self._remember_group("q", group, told)


def job(pop: Pop) -> Job:
    return Job(JobType.POP, pop, asyncio.get_running_loop().create_future())


def batch() -> AppendBatch:
    pushed = PartitionBatch("q", "p", range(3), encode_plain(PAYLOADS), [plain_length(each) for each in PAYLOADS], None)
    return lay_out(uuid4(), [Push([pushed], 3)], {("q", "p"): 5})


def popped(messages: int) -> Popped:
    return Popped(uuid4(), [Claim(5, "q", "p", messages - 1, frozenset(), -1, 1, [])])


@checks("G-WAIT-1", level=Level.MODEL)
async def test_a_group_has_got_all_when_its_pops_have_got_all() -> None:
    first, second, other = job(Pop("q", batch=2)), job(Pop("q", batch=2)), job(Pop("q", group="g", batch=9))
    offer = Offer([first, second, other], {"q": 3})
    assert offer.groups("q", 3) == ()
    offer.answer(first, popped(2), 2)
    offer.answer(other, popped(3), 3)
    assert offer.groups("q", 3) == ("g",)
    assert (offer.leaves_more(first), offer.leaves_more(other)) == (True, False)
    offer.answer(second, popped(1), 1)
    assert set(offer.groups("q", 3)) == {"__QUEUE_MODE__", "g"}
    assert offer.groups("r", 3) == ()
    assert not offer.jobs


@checks("G-DUR-3", level=Level.MODEL)
@pytest.mark.parametrize("messages", [1, 2, 3])
async def test_a_served_long_poll_gets_the_pushed_bytes(messages: int) -> None:
    one = job(Pop("q", batch=messages))
    offer, pushed = Offer([one], {"q": 3}), batch()
    columns = offer.columns(Groups())
    assert columns is not None
    assert (columns.grp, columns.batch, columns.parts) == ([7], [messages], [1])
    given = Given(1, 5, 10, 10 + messages - 1, -1, 1)
    names = {5: PartitionName(5, 1, "q", "p")}
    offer.serve([given], pushed, [Appended(5, 10, NOW, None, None)], names)
    [(served, answer)] = offer.served
    assert (served, answer.lease) == (one, columns.lease[0])
    [piece] = answer.claims[0].slices
    assert (piece.first, piece.created_at) == (10, NOW)
    assert decode_entries(piece.data, piece.ends, piece.start) == PAYLOADS[:messages]


@pytest.mark.parametrize(
    "told", [Subscription(1, None, None, None), Subscription(1, 7, False, None), Subscription(1, 7, True, 5.0)]
)
async def test_nothing_is_offered_to_a_group_that_has_not_begun(told: Subscription) -> None:
    for pop in (Pop("q", group="g"), Pop("q"), Pop("", namespace="n", group="g")):
        assert Offer([job(pop)], {"q": 1}).columns(Groups(told, "g")) is None


async def test_a_push_that_is_sent_again_serves_no_long_poll() -> None:
    offer = Offer([job(Pop("q"))], {"q": 1})
    assert offer.columns(Groups()) is not None
    assert offer.columns(Groups()) is None


async def test_leases_that_a_lost_call_may_have_given_are_known() -> None:
    offer = Offer([job(Pop("q")), job(Pop("q", auto_ack=True))], {"q": 2})
    columns: Any = offer.columns(Groups())
    lease, none = columns.lease
    assert isinstance(lease, UUID)
    assert none is None
    assert [(each.lease, each.queue) for each in offer.lose()] == [(lease, "q")]


@checks("G-GRP-1", level=Level.MODEL)
async def test_a_lost_call_may_have_acked_messages_for_the_auto_ack_pops_that_were_sent_with_it() -> None:
    leased, auto, late = job(Pop("q")), job(Pop("q", auto_ack=True)), job(Pop("q", auto_ack=True))
    offer = Offer([leased, auto], {"q": 2})
    assert offer.columns(Groups()) is not None
    assert not offer.may_have_acked(auto)
    offer.lose()
    assert [offer.may_have_acked(each) for each in (leased, auto, late)] == [False, True, False]
