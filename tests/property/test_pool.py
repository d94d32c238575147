"""What the pool does with connections that break."""

from typing import Any

import pytest

from queen.core.errors import OutcomeUnknownError
from queen.postgres import pool as pool_module
from queen.postgres.dsn import parse
from queen.postgres.pool import Pool


class _Connection:
    """A connection whose calls end as they are told."""

    def __init__(self, *ends: Any) -> None:
        self.ends = list(ends)
        self.terminated = False

    async def fetch(self, _sql: str, *_arguments: object) -> list[Any]:
        end = self.ends.pop(0)
        if isinstance(end, BaseException):
            raise end
        return [end]

    def is_closed(self) -> bool:
        return self.terminated

    def is_in_transaction(self) -> bool:
        return False

    def terminate(self) -> None:
        self.terminated = True


async def test_a_transport_that_is_closed_before_its_connection_knows_is_a_broken_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken, whole = _Connection(RuntimeError("the handler is closed")), _Connection(1)
    made = [broken, whole]

    async def connect(*_arguments: object) -> Any:
        return made.pop(0)

    monkeypatch.setattr(pool_module, "connect", connect)
    pool = Pool(parse("postgresql://nobody@nowhere/x", "queen", 1000), 1, 1.0)
    with pytest.raises(OutcomeUnknownError, match="broke: the handler is closed"):
        await pool.fetch("SELECT 1")
    assert broken.terminated
    assert await pool.fetch("SELECT 1") == [1]
    assert (pool.open, pool.idle) == (1, 1)
    await pool.close()
    assert whole.terminated
