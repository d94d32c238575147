"""The data source ``queen`` of Spark."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from . import columns, options
from .batch import QueenReader

NAME = "queen"


class QueenSource(DataSource):
    """Reads the log of Queen from PostgreSQL (``docs/spark.md``)."""

    @classmethod
    def name(cls) -> str:
        """The name of the source in queries."""
        return NAME

    def schema(self) -> str:
        """All columns of a message; a query that needs few names them in a schema of its own."""
        options.read_options(self.options)
        return columns.DEFAULT

    def reader(self, schema: StructType) -> QueenReader:
        """Reads a table."""
        return QueenReader(options.read_options(self.options, options.BATCH), columns.wanted(schema))
