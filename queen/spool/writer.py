"""The thread that appends to the spool: records that arrive during a sync share the next one."""

import asyncio
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from msgspec import Struct

from queen.core.errors import forget_frames
from queen.spool.format import Record
from queen.spool.spool import Entry, Spool, entry_of

#: Maximum of bytes per sync, exceeded by at most one record.
_GROUP_BYTES = 16 << 20


class Order(Struct, frozen=True):
    """A record to append, and the future of its result."""

    entry: Entry
    insist: bool
    future: "asyncio.Future[bool]"


class SpoolWriter:
    """Appends for one event loop. The thread starts with the first record.

    Attributes:
        refused: whether the last append failed.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.refused = False
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def append(self, record: Record, *, insist: bool) -> bool:
        """Returns when the record is durable; arguments, result and errors as of ``Spool.append``."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="queen-spool", daemon=True)
            self._thread.start()
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._orders.put(Order(entry_of(record), insist, future))
        return await future

    def close(self) -> None:
        """Ends the thread after its pending records."""
        if self._thread is not None:
            self._orders.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (first := self._orders.get()) is not None:
            orders, over = self._gather(first)
            outcome = self._append(orders)
            # The spool may have ended for only some of them.
            alone = outcome is False and len(orders) > 1
            for part in [[order] for order in orders] if alone else [orders]:
                result = self._append(part) if alone else outcome
                part[0].future.get_loop().call_soon_threadsafe(_deliver, part, result)
            if over:
                return

    def _append(self, orders: Sequence[Order]) -> bool | Exception:
        try:
            outcome = self._spool.append(
                [order.entry for order in orders], insist=any(order.insist for order in orders)
            )
        except Exception as problem:
            self.refused = True
            forget_frames(problem)
            return problem
        self.refused = False
        return outcome

    def _gather(self, first: Order) -> tuple[list[Order], bool]:
        """The pending records, as many as one sync takes, and whether the end was requested."""
        orders, size = [first], len(first.entry.frame)
        while size < _GROUP_BYTES:
            try:
                order = self._orders.get_nowait()
            except Empty:
                break
            if order is None:
                return orders, True
            orders.append(order)
            size += len(order.entry.frame)
        return orders, False


def _deliver(orders: Sequence[Order], outcome: bool | Exception) -> None:
    for order in orders:
        if order.future.done():
            continue
        if isinstance(outcome, Exception):
            order.future.set_exception(outcome)
        else:
            order.future.set_result(outcome)
