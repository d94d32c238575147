"""The low-water marks that a worker remembers and gives to its pops."""

from typing import Any

from queen.engine.ports import PopColumns
from queen.postgres.store import Store


class Calls:
    """Stands for the pool: keeps the arguments, and answers with these rows."""

    def __init__(self) -> None:
        self.given: list[tuple[list[int], list[str | None]]] = []
        self.rows: list[tuple[Any, ...]] = []

    async def fetch(self, _sql: str, *arguments: Any, limit_s: float | None = None) -> list[tuple[Any, ...]]:
        self.given.append(arguments[-2:])  # type: ignore[arg-type]
        return self.rows


def told(grp_id: int, mark: str) -> tuple[Any, ...]:
    return (None, grp_id, *[None] * 12, mark)


async def test_a_pop_is_given_the_mark_that_was_told_last_and_no_two_for_one_place() -> None:
    calls = Calls()
    store = Store(calls)  # type: ignore[arg-type]
    columns = PopColumns([1], [1], [None], [None], [1, 1, 1, 1], [7, 8, 1008, 9], [None, None, None, 5])
    calls.rows = [told(7, "a"), told(1008, "b")]
    assert await store.pop(columns) == ([], [])
    calls.rows = [told(7, "c")]
    await store.pop(columns)
    await store.pop(columns)
    assert calls.given == [([7, 1008], [None, None]), ([7, 1008], ["a", "b"]), ([7, 1008], ["c", "b"])]


async def test_a_worker_caches_marks_of_a_bounded_number_of_groups() -> None:
    calls = Calls()
    store = Store(calls)  # type: ignore[arg-type]
    calls.rows = [told(grp_id, "m") for grp_id in range(10_001)]
    await store.pop(PopColumns())
    calls.rows = []
    await store.pop(PopColumns([], [], [], [], [1, 1], [0, 1], [None, None]))
    assert calls.given[-1] == ([0, 1], [None, "m"])
