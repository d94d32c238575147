"""Traces: records of consumers about messages."""

from queen.core.administration import PAGE_BYTES, MessageKey, Trace, TraceNameRow, TraceRow
from queen.postgres.messages import address
from queen.postgres.pool import Pool
from queen.postgres.statement import call

_RECORD = "SELECT queen.record_trace_v1($1, $2, $3, $4, $5, $6, $7, $8) AS id"
_LIST = call("list_traces_v1", 7)
_NAMES = call("list_trace_names_v1", 5)
_COUNT = "SELECT queen.count_traces_v1($1, $2) AS n"
_COUNT_NAMES = "SELECT queen.count_trace_names_v1($1, $2) AS n"

#: The list of names examines this many of the newest traces.
SCAN_MAX = 100_000
#: Maximum of counted traces per name in a list.
_COUNT_MAX = 10_000


class TraceStore:
    """Implements ``queen.engine.administration.Traces``."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def record(self, trace: Trace) -> int | None:
        """Records a trace; returns its number, or ``None`` if there is no such message."""
        t = trace
        [row] = await self._pool.fetch(_RECORD, *address(t.key), t.group, t.event, t.data, t.worker, list(t.names))
        number: int | None = row["id"]
        return number

    async def of_message(self, key: MessageKey, limit: int, offset: int) -> list[TraceRow]:
        """Traces of a message, oldest first."""
        return [TraceRow(*row) for row in await self._pool.fetch(_LIST, *address(key), None, limit, offset, PAGE_BYTES)]

    async def of_name(self, name: str, limit: int, offset: int) -> list[TraceRow]:
        """Traces of a name, oldest first."""
        rows = await self._pool.fetch(_LIST, None, None, None, name, limit, offset, PAGE_BYTES)
        return [TraceRow(*row) for row in rows]

    async def names(self, search: str | None, limit: int, offset: int) -> list[TraceNameRow]:
        """A page of the names of the newest traces that contain a text (``None``: all), latest first."""
        rows = await self._pool.fetch(_NAMES, search, SCAN_MAX, _COUNT_MAX, limit, offset)
        return [TraceNameRow(*row) for row in rows]

    async def count_names(self, search: str | None) -> int:
        """How many names of the newest traces contain a text (``None``: all)."""
        [row] = await self._pool.fetch(_COUNT_NAMES, search, SCAN_MAX)
        return int(row["n"])

    async def count(self, name: str) -> int:
        """The number of traces of a name."""
        [row] = await self._pool.fetch(_COUNT, name, SCAN_MAX)
        return int(row["n"])
