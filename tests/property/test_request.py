"""Bodies of requests, as they are read from a connection."""

import gc
import weakref
from collections.abc import Iterator

import falcon.testing
import pytest

from queen.core.errors import BadRequestError, BodyTooLargeError
from queen.http.request import Event, QueenRequest, read_body

BYTES_MAX = 10


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def request(*pieces: bytes, length: int | None = None) -> QueenRequest:
    """A request whose body comes in pieces; what follows the last one is the end of the connection."""
    headers = {"Content-Length": str(length)} if length is not None else {}
    events: list[Event] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    coming = iter(events)

    async def receive() -> Event:
        return next(coming, {"type": "http.disconnect"})

    opening = next(coming)
    opening["more_body"] = len(pieces) > 1 or (length or 0) > len(pieces[0])
    events[-1]["more_body"] = length is not None and length > sum(map(len, pieces))
    return QueenRequest(falcon.testing.create_scope(method="POST", headers=headers), receive, opening)


@pytest.mark.parametrize("pieces", [(b"0123456789",), (b"01234", b"", b"56789")])
async def test_a_body_of_the_limit_is_read_whole(pieces: tuple[bytes, ...]) -> None:
    assert await read_body(request(*pieces), BYTES_MAX) == b"0123456789"


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    "refused",
    [request(b"0123456789a"), request(b"0", length=11), request(b"01234", b"56789", b"a"), request(b"", length=10**15)],
)
async def test_a_larger_body_is_refused_and_nothing_of_it_is_kept_for_the_collector(refused: QueenRequest) -> None:
    """The collector runs rarely: bodies in a cycle would be the way to fill the memory."""
    text, ended = "", None
    try:
        await read_body(refused, BYTES_MAX)
    except BodyTooLargeError as problem:
        text, ended = str(problem), weakref.ref(problem)
    assert ended is not None
    assert "larger than 10 bytes" in text
    assert ended() is None


async def test_a_body_that_breaks_off_and_one_that_is_empty_are_refused() -> None:
    with pytest.raises(BadRequestError, match="closed before the whole body arrived"):
        await read_body(request(b"01", length=5), BYTES_MAX)
    with pytest.raises(BadRequestError, match="Empty request body"):
        await read_body(request(b""), BYTES_MAX)
