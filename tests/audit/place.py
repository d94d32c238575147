"""A server whose queues the data source reads and writes."""

import asyncio
from typing import Any, NamedTuple

import asyncpg
import httpx
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_validation.gateway import first_line

KEY = "5f" * 32
PUSHES, A_PUSH = 6, 10
TRACE = "00000000-0000-0000-0000-{:012}"


class Place(NamedTuple):
    """A server and its database."""

    dsn: str
    http: httpx.Client

    def push(self, queue: str, partition: str, payloads: list[Any], **fields: Any) -> None:
        items = [{"queue": queue, "partition": partition, "payload": payload, **fields} for payload in payloads]
        answers = self.http.post("/api/v1/push", json={"items": items}).raise_for_status().json()
        assert {each["status"] for each in answers} == {"queued"}

    def ask(self, query: str, *arguments: object) -> list[Any]:
        async def fetch() -> list[Any]:
            connection = await asyncpg.connect(self.dsn)
            try:
                return await connection.fetch(query, *arguments)
            finally:
                await connection.close()

        return asyncio.run(fetch())


def table(spark: SparkSession, place: Place, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("queen").options(**{"dsn": place.dsn, **options})
    return (reader.schema(schema) if schema else reader).load()


def offsets(rows: DataFrame, partition: str = "alice") -> list[int]:
    return sorted(row.offset for row in rows.where(F.col("partition") == partition).select("offset").collect())


def said(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    return first_line(caught.value)
