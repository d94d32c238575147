"""A million pushes with SQL while PostgreSQL is killed: python -m tests.chaos.outbox_million [--journal FOLDER].

Clients write orders and push messages about them in one transaction. Some roll back, some die, some stay open for
seconds. Then the log must have exactly what the table of orders has. The journal is for `queen audit`, which judges
all of it (``G-OUT-1``, ``G-OUT-2``).
"""

import argparse
import asyncio
import itertools
import random
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from spark_validation.journal.schema import Call, Outcome, PushItem
from tests.chaos.test_kill import kill_postmaster
from tests.chaos.test_outbox import BROKEN, is_moved
from tests.support.clock import eventually
from tests.support.processes import Server, open_folder, serving

_LANES, _BATCH = 8, 100
_PATIENCE_S = 1800.0
#: Shares of transactions that roll back, whose connection dies, and that stay open for up to so many seconds.
_ROLLS_BACK, _DIES, _STAYS_OPEN, _OPEN_S = 0.1, 0.05, 0.02, 3.0
_COMPARE = """
WITH log AS MATERIALIZED (
    SELECT partition, off, (payload->>'n')::int AS n FROM queen.messages WHERE queue = 'shop'
), wanted AS MATERIALIZED (
    SELECT 'p' || o.lane AS partition, n
    FROM orders AS o CROSS JOIN generate_series(o.first, o.first + o.count - 1) AS n
)
SELECT (SELECT count(*) FROM log) AS stored, (SELECT count(DISTINCT (partition, n)) FROM log) AS different,
    (SELECT count(*) FROM wanted) AS wanted,
    (SELECT count(*) FROM (SELECT partition, n FROM wanted EXCEPT SELECT partition, n FROM log) AS l) AS lost,
    (SELECT count(*) FROM (SELECT partition, n FROM log EXCEPT SELECT partition, n FROM wanted) AS s) AS strange,
    (SELECT count(*) FROM (
        SELECT n, lag(n) OVER (PARTITION BY partition ORDER BY off) AS before FROM log
    ) AS w WHERE n < before) AS disorder
"""


class Journal:
    """The rows of one agent, as JSON lines; nowhere without a folder."""

    def __init__(self, folder: Path | None) -> None:
        self._file = (folder / "outbox.jsonl").open("wb") if folder else None
        self._numbers = itertools.count()

    def write(self, **row: Any) -> None:
        """Appends a row."""
        if self._file is not None:
            call = Call(run="outbox", agent="outbox", number=next(self._numbers), **row)
            self._file.write(msgspec.json.encode(call) + b"\n")

    def close(self) -> None:
        """The last row."""
        self.write(kind="end", sent=_now())
        if self._file is not None:
            self._file.close()


def _now() -> int:
    return int(time.time() * 1_000_000)


class Producers:
    """Clients of a lane each. A number is used once, also if its transaction rolls back."""

    def __init__(self, server: Server, journal: Journal, goal: int) -> None:
        self._server, self._journal, self._goal = server, journal, goal
        self.pushed, self.outcomes = 0, Counter[str]()

    async def run(self, lane: int) -> None:
        """Pushes until all have pushed so many messages together."""
        choice, first = random.Random(lane), 0
        while self.pushed < self._goal:
            async with self._connected() as connection:
                while connection is not None and self.pushed < self._goal:
                    what = choice.choices(
                        ("commit", "roll back", "die", "stay open"),
                        (1 - _ROLLS_BACK - _DIES - _STAYS_OPEN, _ROLLS_BACK, _DIES, _STAYS_OPEN),
                    )[0]
                    first += _BATCH
                    self.pushed += _BATCH
                    if not await self._transact(connection, lane, first, what, choice.uniform(0, _OPEN_S)):
                        break

    @asynccontextmanager
    async def _connected(self) -> "AsyncIterator[asyncpg.Connection[Any] | None]":
        try:
            connection = await asyncpg.connect(self._server.dsn)
        except BROKEN:
            await asyncio.sleep(0.05)  # PostgreSQL is down
            yield None
            return
        try:
            yield connection
        finally:
            connection.terminate()

    async def _transact(
        self, connection: "asyncpg.Connection[Any]", lane: int, first: int, what: str, open_s: float
    ) -> bool:
        """One transaction; false if the connection is of no use any more."""
        sent, outcome, answered = _now(), "fail", None
        try:
            await connection.execute("BEGIN")
            await connection.execute("INSERT INTO orders VALUES ($1, $2, $3)", lane, first, _BATCH)
            await connection.execute(
                "SELECT queen.push_many('shop', array_agg(jsonb_build_object('n', n) ORDER BY n),"
                " array_agg($2::text ORDER BY n), array_agg(format('%s-%s', $2::text, n) ORDER BY n))"
                " FROM generate_series($1::int, $1 + $3 - 1) AS n",
                first, f"p{lane}", _BATCH,
            )  # fmt: skip
            if what == "die":
                return False
            if what == "stay open":
                await asyncio.sleep(open_s)
            outcome = "fail" if what == "roll back" else "unknown"
            await connection.execute("ROLLBACK" if what == "roll back" else "COMMIT")
            outcome = "fail" if what == "roll back" else "ok"
        except BROKEN:
            return False
        else:
            return True
        finally:
            answered = _now() if outcome != "unknown" else None
            self.outcomes["die" if what == "die" else f"{what}: {outcome}"] += 1
            self._note(lane, first, sent, answered, outcome)

    def _note(self, lane: int, first: int, sent: int, answered: int | None, outcome: Any) -> None:
        told: Outcome = outcome
        items = [PushItem("shop", f"p{lane}", f"p{lane}-{n}", told) for n in range(first, first + _BATCH)]
        self._journal.write(
            kind="sql", client=f"{lane}", sent=sent, answered=answered, outcome=told, pushes=tuple(items)
        )


async def trade(server: Server, pushes: int, kills: int, journal: Journal) -> dict[str, int]:
    """Pushes, kills, and compares; what was found."""
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("CREATE TABLE orders (lane int, first int, count int, PRIMARY KEY (lane, first))")
    await connection.close()
    producers, choice, began = Producers(server, journal, pushes), random.Random(0), time.monotonic()
    async with asyncio.TaskGroup() as clients, asyncio.timeout(_PATIENCE_S):
        for lane in range(_LANES):
            clients.create_task(producers.run(lane))
        for number in range(kills):
            while producers.pushed < (number + 1) * pushes // (kills + 1):
                await asyncio.sleep(0.05)
            await kill_postmaster(server, choice)
    pushed_s = time.monotonic() - began
    await eventually(lambda: is_moved(server.dsn), "an empty outbox", _PATIENCE_S)
    moved_s = time.monotonic() - began
    connection = await asyncpg.connect(server.dsn, command_timeout=_PATIENCE_S)
    [row] = await connection.fetch(_COMPARE)
    await connection.close()
    print(f"{producers.pushed} pushes in {pushed_s:.0f} s, moved after {moved_s:.0f} s; transactions: "
          f"{dict(producers.outcomes)}; killed {kills} times")  # fmt: skip
    return dict(row)


def main() -> None:
    """Runs it on a server of its own; exit code 1: something is lost, doubled, strange, or in another order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pushes", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--journal", type=Path, help="folder for a journal, which `queen audit` judges then")
    arguments = parser.parse_args()
    journal, audited = Journal(arguments.journal), 0
    with open_folder() as folder, serving(folder / "data", "--workers", "2") as server:
        assert server.request("POST", "/api/v1/configure", {"queue": "shop"})[0] == 200
        found = asyncio.run(trade(server, arguments.pushes, arguments.kills, journal))
        journal.close()
        print(found, flush=True)
        if arguments.journal is not None:
            command = ("queen", "audit", "--dsn", server.dsn, "--journal", str(arguments.journal))
            audited = subprocess.run(command, check=False).returncode
    bad = found["lost"] or found["strange"] or found["disorder"] or found["stored"] != found["different"]
    raise SystemExit(1 if bad else audited)


if __name__ == "__main__":
    main()
