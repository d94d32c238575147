"""Errors that become values hold nothing of the calls that failed."""

import asyncio
import gc
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest

from queen.core.errors import QueenError, forget_frames
from queen.spool.format import Record
from queen.spool.spool import Entry
from queen.spool.writer import Order, SpoolWriter


class Request:
    """What a failed call had in its frames."""


@pytest.fixture
def without_collections() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def fail(request: Request, kept: list[QueenError]) -> None:
    """An error with a cause, whose frame holds the error and the request."""
    cause = OSError(str(request))
    kept.append(problem := QueenError("it failed"))
    raise problem from cause


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("circle", [False, True])
def test_the_frames_of_a_failed_call_are_freed_while_its_error_is_kept(circle: bool) -> None:
    request, kept = Request(), list[QueenError]()
    gone = weakref.ref(request)
    with suppress(QueenError):
        fail(request, kept)
    [problem] = kept
    assert problem.__cause__ is not None
    if circle:
        problem.__cause__.__context__ = problem
    del request
    assert gone() is not None
    forget_frames(problem)
    assert gone() is None
    problem.__cause__ = None


class Refuses:
    """A spool whose disk fails."""

    def append(self, _entries: Sequence[Entry], *, insist: bool) -> bool:
        raise OSError(f"no space left, {insist=}")


@pytest.mark.usefixtures("without_collections")
async def test_the_records_of_a_failed_append_to_the_spool_are_freed() -> None:
    spool: Any = Refuses()
    writer = SpoolWriter(spool)
    appends = [writer.append(Record(uuid4(), None, 1.0, []), insist=False) for _ in range(3)]
    assert {type(outcome) for outcome in await asyncio.gather(*appends, return_exceptions=True)} == {OSError}
    writer.close()
    del appends
    assert [each for each in gc.get_objects() if isinstance(each, Order)] == []
