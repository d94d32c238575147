"""The guide to timers: its SQL, as a reader does who types what stands there."""

from pathlib import Path
from typing import Any

import asyncpg

from tests.support.api import Api
from tests.support.guides import code

PAGE = Path(__file__).parents[2] / "docs" / "timers.md"


async def test_the_sql_of_the_guide_works(api: Api, database: "asyncpg.Connection[Any]") -> None:
    await api.configure("reminders")
    for script in code(PAGE, "sql"):
        await database.execute(script)
    rows = await database.fetch(
        "SELECT message::json #>> '{payload,order}' AS n, deliver_at - now() > '29 m' AS later FROM queen.timers"
        " WHERE queue_id = (SELECT id FROM queen.queues WHERE name = 'reminders') ORDER BY deliver_at, seq"
    )
    assert [tuple(row) for row in rows] == [("3", True), ("4", True), ("5", True)]
    await api.http.delete("/api/v1/resources/queues/reminders")
