"""The data source ``queen`` of Spark."""

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from . import columns, options, write
from .batch import QueenReader
from .errors import OptionError
from .group import GroupReader
from .stream import QueenStreamReader
from .write import QueenStreamWriter, QueenWriter

NAME = "queen"


class QueenSource(DataSource):
    """Reads the log of Queen from PostgreSQL, and pushes over HTTP or with SQL (``docs/spark.md``)."""

    @classmethod
    def name(cls) -> str:
        """The name of the source in queries."""
        return NAME

    def schema(self) -> str:
        """All columns of a message; a query that needs few names them in a schema of its own."""
        if options.of_group(self.options):
            options.group_options(self.options)
        else:
            options.read_options(self.options)
        return columns.DEFAULT

    def reader(self, schema: StructType) -> QueenReader:
        """Reads a table."""
        if options.of_group(self.options):
            raise OptionError("a consumer group is read as a stream, which may end: trigger(availableNow=True)")
        return QueenReader(options.read_options(self.options, options.BATCH), columns.wanted(_of_spark(schema)))

    def streamReader(self, schema: StructType) -> QueenStreamReader | GroupReader:  # noqa: N802 - Spark's name
        """Reads a stream: of the log, or as a consumer group."""
        if options.of_group(self.options):
            return GroupReader(options.group_options(self.options), schema)
        return QueenStreamReader(options.read_options(self.options, options.STREAM), columns.wanted(schema))

    def writer(self, schema: StructType, overwrite: bool) -> QueenWriter:
        """Writes a table."""
        return QueenWriter(self._write_options(schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueenStreamWriter:  # noqa: N802 - as above
        """Writes a stream."""
        return QueenStreamWriter(self._write_options(schema, overwrite=overwrite))

    def _write_options(self, schema: StructType, *, overwrite: bool) -> options.WriteOptions:
        given = options.write_options(self.options)
        write.check(schema, given, overwrite=overwrite)
        return given


def _of_spark(schema: StructType | pa.Schema) -> StructType:
    """Sail gives the schema as Arrow has it."""
    if isinstance(schema, StructType):
        return schema
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - imports pandas

    return from_arrow_schema(schema)
