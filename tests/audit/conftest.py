"""One Spark session for all tests: starting it takes longer than any of them."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from queen_audit.session import start

#: A few hundred rows: what costs is planning queries and compiling what is run once.
SMALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    work = tmp_path_factory.mktemp("spark")
    java = "-XX:TieredStopAtLevel=1"
    session = start("local[2]", work, driver_memory="1g", partitions=2, java_options=java, options=SMALL)
    yield session
    session.stop()
