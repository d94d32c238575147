"""The guide to pushes with SQL, as a reader does who types what stands there."""

import textwrap
from pathlib import Path
from typing import Any

import asyncpg

from tests.support.api import Api
from tests.support.guides import code

PAGE = Path(__file__).parents[2] / "docs" / "outbox.md"


async def test_the_guide_works(api: Api, database: "asyncpg.Connection[Any]") -> None:
    await api.configure("orders")
    scripts, [program] = code(PAGE, "sql"), code(PAGE, "python")
    try:
        for script in scripts:
            await database.execute(script)
        names: dict[str, Any] = {}
        exec(f"async def program(connection):\n{textwrap.indent(program, '    ')}", names)
        await names["program"](database)
        found: list[Any] = []
        while len(found) < 6:
            messages = (await api.pop("orders", batch=10, partitions=10, wait=True, timeout=30_000)).messages
            found += [(message["partition"], message["data"]) for message in messages]
            await api.ack(messages)
    finally:
        await database.execute("DROP TABLE shop_orders; DROP FUNCTION tell_of_order")
        await database.execute("DROP ROLE shop_producer")
        await api.http.delete("/api/v1/resources/queues/orders")
    assert sorted(found, key=str) == sorted(
        [
            ("alice", {"id": 1, "item": "tea"}), ("alice", {"id": 2}), ("bob", {"id": 3}),
            ("shop", {"id": 4, "item": "coffee"}), ("shop", {"id": 5, "item": "cocoa"}), ("Default", {"id": 5}),
        ],
        key=str,
    )  # fmt: skip
