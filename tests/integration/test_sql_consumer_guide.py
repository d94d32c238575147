"""The guide to pops with SQL, as a reader does who types what stands there."""

import json
import textwrap
from pathlib import Path
from typing import Any

from spec.guarantees import Level, checks
from tests.support.api import Api
from tests.support.guides import code
from tests.support.locks import Connection

PAGE = Path(__file__).parents[2] / "docs" / "sql-consumer.md"


async def run(program: str, **names: Any) -> None:
    exec(f"async def program():\n{textwrap.indent(program, '    ')}", names)
    await names["program"]()


@checks("G-SQL-1", level=Level.LIVE)
async def test_the_guide_works(api: Api, database: Connection) -> None:
    await api.configure("payments", retryLimit=0)
    making, consuming, roles = code(PAGE, "sql")
    plain, careful = code(PAGE, "python")
    try:
        await database.execute(making)
        await api.push(
            "payments", {"account": "a", "amount": 1}, {"account": "b", "amount": 2}, {"account": "a", "amount": 3}
        )
        await run(plain, connection=database, json=json)
        await api.push("payments", {"account": "a", "amount": 4}, {"account": "b", "amount": 5})
        for _ in range(3):
            await database.execute(consuming)
        assert [tuple(row) for row in await database.fetch("SELECT * FROM balances ORDER BY account")] == [
            ("a", 8), ("b", 7),
        ]  # fmt: skip
        reports = []

        async def report(payload: str) -> None:
            await database.execute("DELETE FROM balances")
            reports.append(json.loads(payload)["amount"])
            if len(reports) == 1:
                raise ValueError("no paper")

        for _ in range(3):
            await run(careful, connection=database, report=report)
        assert reports == [1, 2, 3]
        assert (
            await database.fetchval("SELECT error FROM queen.dead_letter_queue WHERE consumer_group = 'reports'")
            == "no paper"
        )
        await database.execute(roles)
    finally:
        await database.execute("DROP TABLE IF EXISTS balances; DROP OWNED BY shop_consumer; DROP ROLE shop_consumer")
        await api.http.delete("/api/v1/resources/queues/payments")
