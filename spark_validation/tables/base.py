"""What all tables have in common: the inputs, and the disk where they are kept."""

from typing import ClassVar

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from ..dialect import is_sail, written
from ..inputs import Database, Inputs
from .columns import answers, in_driver, leaf


class Base:
    """Each table is made at its first use."""

    of_database: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._kept: list[DataFrame] = []

    def get(self, name: str) -> DataFrame | None:
        """A table; None if its source was not given."""
        of_database = name in self.of_database
        if self._database is None and of_database:
            return None
        if self._inputs.calls is None and not of_database:
            return None
        table: DataFrame | None = getattr(self, name)
        return table

    def close(self) -> None:
        """Frees the disk space of the cached tables."""
        answers.forget()
        for table in self._kept:
            # Spark that ends while it still removes them shows tracebacks.
            table.unpersist(blocking=True)

    def _keep(self, table: DataFrame) -> DataFrame:
        if is_sail():
            return written(table)
        self._kept.append(table.persist(StorageLevel.DISK_ONLY))
        return leaf(self._kept[-1])

    def _keep_few(self, table: DataFrame) -> DataFrame:
        """A table that has few rows as a rule, which the driver has then."""
        found = in_driver(table)
        return self._keep(table) if found is None else found

    @property
    def _database(self) -> Database | None:
        return self._inputs.database

    def _empty(self, schema: str) -> DataFrame:
        return self._spark.createDataFrame([], schema)

    @property
    def _spark(self) -> SparkSession:
        assert self._inputs.calls is not None
        return self._inputs.calls.sparkSession
