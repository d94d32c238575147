"""Errors that become values hold nothing of the calls that failed."""

import gc
import weakref
from collections.abc import Iterator

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
    try:
        raise OSError(str(request))
    except OSError as cause:
        problem = QueenError("it failed")
        kept.append(problem)
        raise problem from cause


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("circle", [False, True])
def test_the_frames_of_a_failed_call_are_freed_while_its_error_is_kept(circle: bool) -> None:
    request, kept = Request(), list[QueenError]()
    gone = weakref.ref(request)
    try:
        fail(request, kept)
    except QueenError as problem:
        assert problem.__cause__ is not None
        if circle:
            problem.__cause__.__context__ = problem
        forget_frames(problem)
    del request
    assert gone() is None
    assert [str(problem) for problem in kept] == ["it failed"]
    kept[0].__cause__ = None
