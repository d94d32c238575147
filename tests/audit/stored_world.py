"""The tables of a database as audits get them, without Spark; and damages to a database that are taken back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pyarrow as pa
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType, TimestampType

from pyspark_queen.batch import QueenReader
from pyspark_queen.columns import wanted
from pyspark_queen.options import read_options
from spark_validation.inputs import LogRow
from spark_validation.journal.schema import Call
from spark_validation.log.snapshot import Snapshot
from tests.audit.damages import Damage, applied, columns
from tests.support.runs import Tables

_COLUMNS = {
    "partitionNumber": LongType(), "offset": LongType(), "createdAt": TimestampType(), "transactionHash": LongType(),
    "damage": StringType(), "payloadHash": LongType(), "sortedHash": LongType(), "idKey": LongType(),
    "idDiffers": BooleanType(),
}  # fmt: skip


def read(dsn: str, calls: list[Call]) -> tuple[Tables, int]:
    """All rows under one snapshot, and when it was taken."""
    with Snapshot(dsn) as snapshot:
        state = snapshot.state()
        options = read_options(
            {"dsn": dsn, "snapshot": snapshot.id, "failOnDataLoss": "false", "includeDeleted": "true"}
        )
        schema = StructType([StructField(name, type_) for name, type_ in _COLUMNS.items()])
        reader = QueenReader(options, wanted(schema))
        log = [row for task in reader.partitions() for batch in reader.read(task) for row in _rows(batch)]
        tables = Tables(calls=calls, log=log, flaws=snapshot.flaws(), id_sums=snapshot.id_sums())
        for name in ("heads", "cursors", "dead_letters", "queues", "groups", "deleted", "retired", "waiting"):
            setattr(tables, name, getattr(state, name))
        return tables, state.taken_at


def _rows(batch: pa.RecordBatch) -> list[LogRow]:
    columns = {name: batch[name] for name in _COLUMNS}
    columns["createdAt"] = batch["createdAt"].cast("int64")
    return [LogRow(*row) for row in zip(*(column.to_pylist() for column in columns.values()), strict=True)]


class Damaged:
    """A database of which copies are kept, so that each damage can be taken back."""

    def __init__(self, connection: asyncpg.Connection, found: list[tuple[str, str, str]]) -> None:
        self._connection, self.columns = connection, found

    async def keep(self) -> None:
        """Copies all tables."""
        await self._connection.execute("CREATE SCHEMA kept")
        for table in {table for table, _, _ in self.columns}:
            await self._connection.execute(f'CREATE TABLE kept."{table}" AS TABLE {table}')

    async def do(self, damage: Damage) -> bool:
        """Does it, committed; false if that is not possible."""
        return await applied(self._connection, damage)

    async def undo(self, damage: Damage) -> None:
        """Puts its table back."""
        names = ", ".join(f'"{column}"' for table, column, _ in self.columns if table == damage.table)
        async with self._connection.transaction():
            await self._connection.execute("SET LOCAL session_replication_role = replica")
            await self._connection.execute(f"DELETE FROM {damage.table}")
            await self._connection.execute(
                f"INSERT INTO {damage.table} ({names}) OVERRIDING SYSTEM VALUE"
                f' SELECT {names} FROM kept."{damage.table}"'
            )


@asynccontextmanager
async def damaging(dsn: str) -> AsyncIterator[Damaged]:
    """The database, to be damaged."""
    connection = await asyncpg.connect(dsn)
    try:
        found = Damaged(connection, [each for each in await columns(connection) if not each[0].startswith("kept")])
        await found.keep()
        yield found
    finally:
        await connection.execute("DROP SCHEMA IF EXISTS kept CASCADE")
        await connection.close()
