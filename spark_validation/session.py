"""The Spark session of an audit."""

import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from . import gateway
from .errors import AuditError
from .java import java_home
from .journal.files import WORK

_LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
appender.stderr.layout.alwaysWriteExceptions = false
# With a level of its own it does not say that it sets one.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# The error of a query says of its tasks what these say; the live audit goes on after some.
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.stream.name = org.apache.spark.sql.execution.streaming
logger.stream.level = off
"""
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark keeps a thousand finished plans with their texts for its web pages, which is 100 MB of the heap.
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.sql.session.timeZone": "UTC",
    # For each expression, Spark would note the line of Python that made it, with several calls to Java.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "32m",
    # Tables that are kept lie on disk. To find the best encoding of each of their columns costs more CPU than all
    # else that is done with them; LZ4 for whatever is written costs little, and makes them about as small.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.rdd.compress": "true",
    # A row of a journal is a call with thousands of messages; Spark would have 4,096 of them in memory at once.
    "spark.sql.parquet.columnarReaderBatchSize": "32",
    # Tables of messages lie by lane and hash: joins by lane, group and hash need not move them.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}
# Without this, Java would continue after a failed allocation, and end later with another error; or say so on standard
# output.
_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError -XX:+UnlockDiagnosticVMOptions -XX:-DisplayVMOutput"
# On one machine, a late heartbeat means that the machine is busy, not that an executor is lost.
_LOCAL = {"spark.network.timeout": "1h", "spark.executor.heartbeatInterval": "5min"}

PACKAGES = ("pyspark_queen", "spark_validation", "spec")
"""Packages that tasks import."""

LEAST_MEMORY_MIB = 512
"""Minimum memory for Spark."""

_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?|yarn|spark://[^/:,]+:\d+(,[^/:,]+:\d+)*|k8s://(https?://)?[^/:]+(:\d+)?(/.*)?"
)
_PLACE = re.compile(r"([^/:,]+):(\d+)")
_MEMORY = re.compile(r"(\d+)([kmgt])b?")
_MEMORY_UNITS = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
_PATIENCE_S = 10
_ROWS_A_PARTITION, _FEW_ROWS_A_PARTITION = 750_000, 1_500_000
MANY_ROWS = 1_000_000
"""From how many rows on it is worth while to compile and plan well."""
# With few rows, most of the CPU goes into planning queries, and into compiling code that hardly runs. So Java collects
# its garbage without threads of their own, and does not use its second compiler (C2). Spark plans a query once, not at
# each stage.
_JAVA_OF_FEW_ROWS = (
    "-XX:+UseSerialGC -XX:NewRatio=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=512m -XX:TieredStopAtLevel=1"
)
_SETTINGS_OF_FEW_ROWS = {
    # Half of the heap is for short-lived objects: what Spark holds must fit into the other half.
    "spark.memory.fraction": "0.4",
    "spark.sql.constraintPropagation.enabled": "false",
    # Each table that is hashed, of a join or an aggregation, begins with a page: by default, of 64 MB.
    "spark.buffer.pageSize": "1m",
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.default.parallelism": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
}


def is_local(master: str) -> bool:
    """Whether all work is done on this machine, whose files are seen."""
    return master.startswith("local")


def cores_of(master: str) -> int:
    """How many tasks run at once on this machine: N of ``local[N]``, all cores for ``local[*]``."""
    number = re.match(r"local\[(\*|\d+)", master)
    return 1 if number is None else (os.cpu_count() or 1) if number[1] == "*" else int(number[1])


def set_python(master: str) -> None:
    """Tasks on this machine run our Python; on other machines its path may differ, and PYSPARK_PYTHON sets it."""
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def check_master(master: str) -> None:
    """Checks the name of a master, and that it listens: Spark itself takes minutes to find out.

    Raises:
        AuditError: the name is invalid, or the master is unreachable.
    """
    if master.startswith("sc://"):
        raise AuditError(
            f"--master {master}: audits do not work with Spark Connect (docs/audit.md says why). Give the "
            "master that this server uses, as spark://host:port"
        )
    if not _MASTER.fullmatch(master):
        raise AuditError(
            f"--master {master}: not a Spark master. Give local[*], local[2], spark://host:port, "
            "k8s://https://host:port or yarn"
        )
    places = [(host, int(port)) for host, port in _PLACE.findall(master.partition("://")[2])]
    problems = [problem for place in places if (problem := _unreachable(*place))]
    if places and len(problems) == len(places):
        raise AuditError(f"--master {master}: no connection ({'; '.join(problems)}). Is the master running?")


def _unreachable(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), _PATIENCE_S).close()
    except (OSError, OverflowError) as problem:
        return str(problem)
    return None


def memory_mib(memory: str) -> int:
    """The size of a heap, in mebibytes.

    Raises:
        AuditError: it is not a size, or too small.
    """
    found = _MEMORY.fullmatch(memory.lower())
    if not found:
        raise AuditError(f"--driver-memory {memory}: not a size. Give a number and a unit, such as 2g or 1500m")
    size = int(int(found[1]) * _MEMORY_UNITS[found[2]])
    if size < LEAST_MEMORY_MIB:
        raise AuditError(f"--driver-memory {memory}: {LEAST_MEMORY_MIB}m is the least")
    return size


def partitions_of(rows: int, *, few: bool = False) -> int:
    """Number of partitions for this many rows, so that each fits into memory: larger ones if few tasks run at once."""
    return max(1, -(-rows // (_FEW_ROWS_A_PARTITION if few else _ROWS_A_PARTITION)))


def start(
    master: str,
    work: Path,
    *,
    driver_memory: str = "2g",
    rows: int = MANY_ROWS,
    options: Mapping[str, str] = MappingProxyType({}),
) -> SparkSession:
    """A session on the master; ``work`` is a folder of this process for data that Spark spills.

    Args:
        master: ``local[*]``, ``spark://host:port``, ``k8s://…``.
        work: a folder that is deleted with the session.
        driver_memory: heap of the driver, which in local mode does all the work.
        rows: about how many there are in all tables together; without a number, many.
        options: additional settings of Spark.

    Raises:
        JavaError: no Java was found.
        AuditError: the session cannot be started.
    """
    local = is_local(master)
    few = rows < MANY_ROWS
    parts = str(partitions_of(rows, few=few))
    os.environ["JAVA_HOME"] = str(java_home())
    set_python(master)
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    log4j = work / "log4j2.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    own = {
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": (
            f'"-Dlog4j2.configurationFile={log4j}" "-Djava.io.tmpdir={work}" {_WITHOUT_MEMORY} '
            f"{f'{_JAVA_OF_FEW_ROWS} -Xms{driver_memory}' if few else ''}"
        ),
        "spark.local.dir": str(work),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.shuffle.partitions": parts,
        # What an audit has found is looked for in all partitions at once.
        "spark.sql.limit.initialNumPartitions": parts,
        **({**_SETTINGS_OF_FEW_ROWS, "spark.sql.files.minPartitionNum": parts} if few else {}),
    }
    builder = SparkSession.builder.appName("queen audit").master(master)
    for name, value in {**_SETTINGS, **(_LOCAL if local else {}), **own, **options}.items():
        builder = builder.config(name, value)
    logging.getLogger().addFilter(_is_news)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # its errors are raised, too
    # PySpark's own handler of SIGINT would replace that of the command.
    before = signal.getsignal(signal.SIGINT)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, RuntimeError, OSError) as problem:
        raise AuditError(f"Spark cannot be started on {master}: {gateway.first_line(problem)}") from problem
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
    if not local:
        session.sparkContext.addPyFile(str(package(work)))
    return session


def _is_news(record: logging.LogRecord) -> bool:
    """Not what py4j says, with a traceback, of a call that was interrupted or lost Java: the command's line says it."""
    return not record.getMessage().startswith(("KeyboardInterrupt while", "Exception while sending command"))


def package(folder: Path) -> Path:
    """The packages for tasks as one archive, made from the installed ones, so that executors need not have them."""
    archive = folder / "spark_validation.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name in PACKAGES:
            root = Path(str(__import__(name).__file__)).parent
            for path in sorted(root.rglob("*.py")):
                file.write(path, Path(name) / path.relative_to(root))
    return archive


def work_folder(inside: Path | None = None) -> "tempfile.TemporaryDirectory[str]":
    """A folder for spilled and converted data, in the temporary folder or in another one."""
    return tempfile.TemporaryDirectory(prefix=WORK, dir=inside)
