"""Servers that keep their promises and are late: what a checker must not accuse."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType

from tests.mutants.mutant import Mutant, mutant
from tests.mutants.run import mutated, serving_copy
from tests.support.processes import open_folder, serving
from tests.support.stubs import Proxy, stub

_LATE_S = 0.1
_CLAIM, _PUSH = "sql/internal/045_claim.sql", "sql/internal/030_push.sql"
_CURSOR, _PREFETCH = "sql/internal/040_cursor.sql", "sql/internal/046_prefetch.sql"
_WAITERS, _SUBSCRIBE = "sql/procedures/push_to_waiters.sql", "sql/procedures/subscribe.sql"

#: No mutant that is to be found: every pop sees a message from 70 ms after it was stored.
SHOWS_LATE: Mutant = mutant(
    "G-POP-3",
    "messages are shown 70 ms after they were stored",
    (
        _CURSOR,
        "IF p_delay > 0 AND v_segment.created_at + make_interval(secs => p_delay) > p_now THEN",
        "IF v_segment.created_at + make_interval(secs => p_delay + 0.07) > p_now THEN",
    ),
    (
        _CURSOR,
        "THEN v_segment.created_at + make_interval(secs => p_delay) END",
        "THEN v_segment.created_at + make_interval(secs => p_delay + 0.07) END",
    ),
    (
        _PUSH,
        "secs => greatest(q.delayed_processing, q.window_buffer))",
        "secs => greatest(q.delayed_processing, q.window_buffer) + 0.07)",
    ),
    (_WAITERS, "make_interval(secs => v_cursor.delay)", "make_interval(secs => v_cursor.delay + 0.07)"),
    # The ways that ask for nothing hidden.
    (_WAITERS, "IF v_cursor.delay = 0 AND v_cursor.whole AND NOT v_cursor.paused THEN", "IF false THEN"),
    (_PREFETCH, "WHERE q.delayed_processing = 0 AND", "WHERE false AND"),
    (_CLAIM, "AND q.window_buffer = 0 AS plain", "AND false AS plain"),
    (_SUBSCRIBE, "(q.delayed_processing > 0 OR q.window_buffer > 0)", "true"),
)


class _AnswersLate(Proxy):
    """Each answer comes up to 0.1 s late."""

    def answer(self, body: bytes, status: int = 200) -> None:
        time.sleep(random.uniform(0, _LATE_S))
        super().answer(body, status)


@contextmanager
def answering_late() -> Iterator[str]:
    """The URL of a server whose answers come 0 to 100 ms late."""
    with (
        open_folder() as place,
        serving(place / "data", "--workers", "2") as server,
        stub(_AnswersLate, upstream=server.port) as (url, _),
    ):
        yield url


@contextmanager
def showing_late(fault: Mutant = SHOWS_LATE) -> Iterator[str]:
    """The URL of a server that shows messages 70 ms after they were pushed, or has more faults besides."""
    with (
        open_folder() as place,
        mutated(fault) as tree,
        serving_copy(tree, place / "data", "--workers", "2") as server,
    ):
        yield f"http://127.0.0.1:{server.port}"


#: Each of them, by name.
LATE: Mapping[str, Callable[[], AbstractContextManager[str]]] = MappingProxyType(
    {"answers": answering_late, "shows": showing_late}
)
