"""The guide to pushes with SQL, as a reader does who types what stands there."""

import asyncio
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import asyncpg

from tests.support import django_database
from tests.support.api import Api
from tests.support.guides import code
from tests.support.processes import Server

PAGE = Path(__file__).parents[2] / "docs" / "outbox.md"


def _with_psycopg(dsn: str, program: Callable[[Any], None]) -> None:
    connection = import_module("psycopg").connect(dsn)
    program(connection)
    connection.close()


def _with_sqlalchemy(dsn: str, program: Callable[[Any], None]) -> None:
    psycopg = import_module("psycopg")
    engine = import_module("sqlalchemy").create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    program(engine)
    engine.dispose()


def _run(dsn: str, names: dict[str, Any]) -> None:
    _with_psycopg(dsn, names["order_milk"])
    _with_sqlalchemy(dsn, names["order_rice"])
    names["order_bread"]()
    import_module("django.db").connections.close_all()


async def test_the_guide_works(server: Server, api: Api, database: "asyncpg.Connection[Any]") -> None:
    await api.configure("orders")
    django_database.use(server.dsn)
    names: dict[str, Any] = {}
    try:
        for script in code(PAGE, "sql"):
            await database.execute(script)
        for program in code(PAGE, "python"):
            exec(program, names)
        await names["order_cocoa"](database)
        await asyncio.to_thread(_run, server.dsn, names)
        found: list[Any] = []
        headers: list[Any] = []
        while len(found) < 14:
            messages = (await api.pop("orders", batch=10, partitions=10, wait=True, timeout=30_000)).messages
            found += [(message["partition"], message["data"]) for message in messages]
            headers += [message["headers"] for message in messages if "headers" in message]
            await api.ack(messages)
    finally:
        await database.execute("DROP TABLE shop_orders; DROP FUNCTION tell_of_order")
        await database.execute("DROP ROLE shop_producer")
        await api.http.delete("/api/v1/resources/queues/orders")
    assert headers == [{"type": "order", "tenant": "7"}]
    items = {4: "coffee", 5: "cocoa", 6: "milk", 7: "rice", 8: "bread"}
    assert sorted(found, key=json.dumps) == sorted(
        [
            ("alice", {"id": 1, "item": "tea"}), ("alice", {"id": 2}), ("bob", {"id": 3}),
            *[("shop", {"id": number, "item": item}) for number, item in items.items()],
            *[("Default", {"id": number}) for number in (5, 6, 7, 8, 9, 10)],
        ],
        key=json.dumps,
    )  # fmt: skip
