"""What Sail does otherwise than Spark: each case still fails, so that ``dialect.py`` can go when it no longer does."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from grpc import RpcError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from queen.log.ids import parse_message_id
from spark_validation import sail
from spark_validation.dialect import first_rows, of_arrow, read_parquet, stacked
from spark_validation.run import run
from spark_validation.tables.columns import offset_in
from tests.audit.conftest import inputs
from tests.audit.faults import FAULTS, Scene, ordinary
from tests.support.runs import Tables


@pytest.fixture
def files(sail_session: SparkSession, tmp_path) -> str:
    """A table with lists."""
    with sail.spoken():
        rows = sail_session.createDataFrame([(1, [1, 2]), (2, [3])], "id bigint, list array<bigint>")
        rows.write.parquet(f"{tmp_path}/rows")
    return f"{tmp_path}/rows"


def _with_a_two(rows: DataFrame) -> list[int]:
    return [row.id for row in rows.where(F.exists("list", lambda each: each == 2)).collect()]


def _after_a_fall(session: SparkSession) -> DataFrame:
    rows = session.createDataFrame([(1, 2, 3), (1, 3, 4), (2, 1, 1), (2, 2, 0)], "lane int, time int, offset int")
    times = rows.groupBy("lane", "time").agg(F.max("offset").alias("high"))
    falls = times.withColumn("below", F.lag("high").over(Window.partitionBy("lane").orderBy("time")))
    return falls.where(F.col("high") < F.col("below")).select("lane").distinct()


def _fails(ask: Callable[[], object]) -> None:
    with sail.spoken(), pytest.raises((PySparkException, RpcError)):
        ask()


def test_a_filter_with_a_lambda_is_kept_from_the_reader(sail_session, files):
    _fails(lambda: _with_a_two(sail_session.read.parquet(files)))
    with sail.spoken():
        assert _with_a_two(read_parquet(sail_session, [files])) == [1]


def test_a_limit_is_kept_from_an_aggregation(sail_session):
    _fails(lambda: _after_a_fall(sail_session).limit(5).collect())
    with sail.spoken():
        assert [row.lane for row in first_rows(_after_a_fall(sail_session), 5).collect()] == [2]


def test_many_rows_are_no_part_of_a_query(sail_session):
    rows = pa.table({"n": np.arange(17 << 20)})
    _fails(lambda: sail_session.createDataFrame(rows).count())
    with sail.spoken():
        assert of_arrow(sail_session, rows).where("n % 2 = 0").count() == len(rows) / 2


def test_a_window_is_not_ordered_by_a_struct(sail_session):
    def greatest() -> DataFrame:
        rows = sail_session.range(2).select(F.struct("id").alias("s"), F.lit(1).alias("k"))
        return rows.select(F.max("s").over(Window.partitionBy("k").orderBy("s")))

    _fails(lambda: greatest().collect())


def test_what_a_part_lacks_has_the_type_of_the_other(sail_session):
    def parts() -> tuple[DataFrame, DataFrame]:
        return tuple(sail_session.createDataFrame([(1,)], f"{name} bigint") for name in "ab")

    with sail.spoken():
        one, other = parts()
        assert one.unionByName(other, allowMissingColumns=True).schema["b"].dataType.typeName() == "void"
        rows = stacked(one, other)
        assert rows.groupBy().agg(F.sum("a"), F.sum("b")).collect() == [(1, 1)]


@pytest.mark.parametrize(
    ("id_", "offset"),
    [
        ("00000000-0001-8001-8000-000000000012", 18),
        ("00000000-0001-8001-8000-00000000001G", None),
        ("00000000-0001-8001-8000--00000000012", None),
        ("00000000-0001-8001-8000-00000000001A", None),
        ("ü0000000-0001-8001-8000-000000000012", None),
        ("00000000-0001-8001-8000-0000000000120", None),
    ],
)
def test_what_only_looks_like_a_message_id_has_no_offset(engine, id_, offset):
    """For the server it is any other transaction id."""
    assert (parse_message_id(id_) or (1, None))[1] == offset
    [row] = engine.createDataFrame([(id_,)], "id string").select(offset_in(F.col("id")).alias("offset")).collect()
    assert row.offset == offset


@pytest.mark.timeout(1800)
def test_spark_and_sail_say_the_same(spark, sail_session):
    """Of some faults, with the same words. All are judged by each of them at night (``test_audits.py``)."""
    rows = Tables()
    for number, change in enumerate([None, *list(FAULTS)[::8]]):
        scene = Scene(*ordinary(f"run{number}", 100 * number + 1))
        if change:
            change(scene, FAULTS[change][0])
        rows.add(scene.renumbered())
    of_spark = run(inputs(spark, rows), max_evidence=10_000)
    with sail.spoken():
        of_sail = run(inputs(sail_session, rows), max_evidence=10_000)

    def said(verdicts):
        return {
            v.audit: (v.result, v.text, sorted((e.queue, e.offset or 0, e.text) for e in v.evidence)) for v in verdicts
        }

    assert sum(each.violations for each in of_sail) > 5
    assert said(of_sail) == said(of_spark)
