"""What Sail 0.7 does otherwise than Spark.

Each function does the same on both. ``tests/audit/test_dialect.py`` tells which of them Sail no longer needs. What no
function can hide, audits avoid:

* among structs, one with a null in a field is the greatest for Sail and the least for Spark: they compare none;
* structs are equal for Sail if the fields of one name are: they compare structs of the same form;
* ``array_contains``, for a list with nulls and without the value, is false for Sail, null for Spark: none have nulls;
* sums and products beyond 64 bits are wrong for Sail, and an error for Spark: times are not multiplied;
* windows are not ordered by a struct; the alternatives of a ``when``, and structs in lists, have the same types.
"""

from collections.abc import Iterable
from functools import reduce
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

FOLDER, CORES = "queen.folder", "queen.cores"
"""The settings of a session of Sail that name its folder and the number of its tasks."""

_LITERAL_BYTES = 1 << 20

_numbers = count()


def is_sail() -> bool:
    """Whether queries are for Sail."""
    return bool(is_remote())


def read_parquet(spark: SparkSession, places: Iterable[str], schema: StructType | str | None = None) -> DataFrame:
    """The rows of files. Sail cannot bring a filter with a lambda into their reader, so it must not get there."""
    reader = spark.read if schema is None else spark.read.schema(schema)
    rows = reader.parquet(*places)
    return rows.repartition(int(spark.conf.get(CORES) or 1)) if is_sail() else rows


def of_arrow(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows of this process. For Sail they would be a part of each query, of at most 128 MiB: many are a file."""
    if not is_sail() or rows.nbytes <= _LITERAL_BYTES:
        return spark.createDataFrame(rows)
    place = _place(spark)
    pq.write_table(rows, place)
    return read_parquet(spark, [place])


def written(table: DataFrame) -> DataFrame:
    """The table, computed once: Sail keeps none, so that it is written as files into the folder of its session."""
    spark = table.sparkSession
    place = _place(spark)
    table.write.parquet(place)
    # There is no file of a table without rows. Of columns with literals, Sail may think that they are narrower.
    return read_parquet(spark, [place], None if any(Path(place).glob("*.parquet")) else table.schema)


def _place(spark: SparkSession) -> str:
    return f"{spark.conf.get(FOLDER)}/table-{next(_numbers)}"


def first_rows(rows: DataFrame, most: int) -> DataFrame:
    """Some of the rows. In Sail, a limit right above some aggregations fails; here what gathers them lies between."""
    return (rows.coalesce(1) if is_sail() else rows).limit(most)


def stacked(*parts: DataFrame) -> DataFrame:
    """The rows of all parts; a column that a part lacks is null there.

    Sail gives a column that the first part lacks no type, and its union fails where a column is not used afterwards.
    """
    types = {each.name: each.dataType for part in reversed(parts) for each in part.schema}
    columns = [
        [F.col(name) if name in part.columns else F.lit(None).cast(type_).alias(name) for name, type_ in types.items()]
        for part in parts
    ]
    return reduce(DataFrame.unionByName, [part.select(*names) for part, names in zip(parts, columns, strict=True)])
