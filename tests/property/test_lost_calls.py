"""Calls whose first sending may have been carried out: which of the requests in it can still be answered."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from queen.core.administration import GivenUp, MessageKey
from queen.core.errors import DatabaseUnavailableError, OutcomeUnknownError
from queen.engine.context import Context, ignore_notification
from queen.engine.handlers.give_up import give_up
from queen.engine.handlers.removal import delete_dead_letter
from queen.engine.handlers.renew_lease import renew_lease
from queen.log.requests import Renewed, RenewLease
from queen.simple_mq import handlers as simple_mq
from queen.simple_mq.interface import SimpleMq
from queen.simple_mq.requests import Acknowledge, Acknowledged
from spec.guarantees import Level, checks

ONE, OTHER = UUID(int=1), UUID(int=2)


class Lossy:
    """A database that answers each of its calls as given: with rows, or not at all."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)

    async def call(self, *_arguments: object) -> Any:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    acknowledge = renew_leases = call


def context_of(*answers: object) -> Context:
    """A context over such a database; nothing else of it is there."""
    nothing: Any = SimpleNamespace()
    database: Any = Lossy(*answers)
    outcomes: Any = SimpleNamespace(add=lambda *_: None)
    interfaces = [SimpleMq(database, nothing, outcomes)]
    return Context(database, nothing, nothing, ignore_notification, retry_timeout_s=60, interfaces=interfaces)


LOST, DOWN = OutcomeUnknownError("broken"), DatabaseUnavailableError("down")


def kinds(answers: Sequence[object]) -> list[type]:
    return [type(answer) for answer in answers]


@pytest.mark.parametrize(
    ("lost", "expected"), [((), Acknowledged), ((LOST,), OutcomeUnknownError), ((DOWN,), Acknowledged)]
)
def test_an_ack_that_finds_nothing_is_unknown_only_if_its_own_first_sending_may_have_removed_it(
    lost: tuple[Exception, ...], expected: type
) -> None:
    context = context_of(*lost, [("deleted", False), ("missing", False), ("deleted", False)])
    requests = [Acknowledge(ONE, [ONE]), Acknowledge(ONE, [OTHER, ONE])]
    assert kinds(asyncio.run(simple_mq.acknowledge(context, requests))) == [Acknowledged, expected]


@checks("G-LEASE-4", level=Level.MODEL)
@pytest.mark.parametrize(("lost", "expected"), [((), Renewed), ((LOST,), OutcomeUnknownError), ((DOWN,), Renewed)])
def test_a_lease_that_is_over_is_refused_only_if_no_sending_may_have_renewed_it(
    lost: tuple[Exception, ...], expected: type
) -> None:
    context = context_of(*lost, [(0, None), (2, None)])
    requests = [RenewLease(str(ONE), 1), RenewLease(str(OTHER), 1)]
    assert kinds(asyncio.run(renew_lease(context, requests))) == [expected, Renewed]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ((DOWN, DOWN), DatabaseUnavailableError),
        ((LOST, DOWN), OutcomeUnknownError),
        ((DOWN, LOST), OutcomeUnknownError),
    ],
)
def test_calls_that_may_have_run_are_not_reported_as_unsent(
    answers: tuple[Exception, ...], expected: type[Exception]
) -> None:
    context = context_of(*answers)

    async def try_twice() -> None:
        calls = 0

        async def call(_again: bool) -> None:
            nonlocal calls
            calls += 1
            try:
                await context.database.renew_leases([], [])
            except DatabaseUnavailableError:
                if calls == len(answers):
                    context.failover = away
                raise

        await context.with_retries(call, retries_during_outage=False)

    away: Any = SimpleNamespace(unavailable=True)
    with pytest.raises(DatabaseUnavailableError) as raised:
        asyncio.run(try_twice())
    assert type(raised.value) is expected


def administering(*answers: object) -> Context:
    """A context whose administration answers a delete or a move as given."""
    context = context_of()
    writes = Lossy(*answers)
    stores = SimpleNamespace(delete=writes.call, give_up=writes.call)
    none: Any = SimpleNamespace(without_cursor=lambda _part: _result([]))
    context.administration = SimpleNamespace(dead_letters=stores, messages=stores, consumer_groups=none)  # type: ignore[assignment]
    context.database = SimpleNamespace(  # type: ignore[assignment]
        describe_partitions=lambda _parts: _result([]), prefetched_for=lambda *_: _result(0.0)
    )
    return context


async def _result(value: Any) -> Any:
    return value


@pytest.mark.parametrize(("answers", "expected"), [((False,), False), ((LOST, False), True), ((DOWN, False), False)])
def test_a_dead_letter_that_an_attempt_without_answer_may_have_deleted_is_deleted(
    answers: tuple[object, ...], expected: bool
) -> None:
    assert asyncio.run(delete_dead_letter(administering(*answers), 1)) is expected


def test_a_message_that_an_attempt_without_answer_may_have_moved_is_no_conflict() -> None:
    context = administering(LOST, GivenUp(True, []))
    with pytest.raises(OutcomeUnknownError):
        asyncio.run(give_up(context, MessageKey(1, "t"), None, "on request"))


def test_a_message_that_no_group_waits_for_is_a_conflict() -> None:
    context = administering(DOWN, GivenUp(True, []))
    assert asyncio.run(give_up(context, MessageKey(1, "t"), None, "on request")) == GivenUp(True, [])
