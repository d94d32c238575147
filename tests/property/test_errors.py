"""Errors that become values hold nothing of the calls that failed."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest

from queen.core.errors import QueenError, forget_frames


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
