"""A Spark session with what audits need."""

import os
import re
import socket
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

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
"""
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What ended is kept for pages that nobody looks at: a thousand plans with their texts, 100 MB of the heap.
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.sql.session.timeZone": "UTC",
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
# What goes on without the memory it asked for ends later, and says something else.
_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
# Nobody vanishes on one machine: where a heartbeat is late, it is busy.
_LOCAL = {"spark.network.timeout": "1h", "spark.executor.heartbeatInterval": "5min"}

JAVA_IS_GONE = (Py4JNetworkError, ConnectionError)
"""What is raised by whatever is asked of Spark when Java has ended."""

PACKAGES = ("queen_audit", "queen_spec")
"""What tasks import."""

LEAST_MEMORY_MIB = 512
"""Below this Spark does not start."""

_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?|yarn|spark://[^/:,]+:\d+(,[^/:,]+:\d+)*|k8s://(https?://)?[^/:]+(:\d+)?(/.*)?"
)
_PLACE = re.compile(r"([^/:,]+):(\d+)")
_MEMORY = re.compile(r"(\d+)([kmgt])b?")
_MEMORY_UNITS = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
_PATIENCE_S = 10
_ROWS_A_PARTITION = 750_000
_OURS = re.compile(r"^queen_audit\.errors\.\w+: (.+)", re.MULTILINE)


def is_local(master: str) -> bool:
    """Whether all work is done by this process's own Java, which sees the files of this machine."""
    return master.startswith("local")


def set_python(master: str) -> None:
    """Tasks on this machine run our Python; on others it may lie elsewhere, and PYSPARK_PYTHON says where."""
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def check_master(master: str) -> None:
    """Looks at the name of a master, and whether somebody listens there: Spark itself finds that out in minutes.

    Raises:
        AuditError: Spark knows no such master, or nobody is there.
    """
    if master.startswith("sc://"):
        raise AuditError(
            f"--master {master}: audits do not work through Spark Connect (docs/audit.md says why). Give the master "
            "that this server uses, as spark://host:port"
        )
    if not _MASTER.fullmatch(master):
        raise AuditError(
            f"--master {master}: Spark knows no such master. Give local[*], local[2], spark://host:port, "
            "k8s://https://host:port or yarn"
        )
    places = [(host, int(port)) for host, port in _PLACE.findall(master.partition("://")[2])]
    problems = [problem for place in places if (problem := _unreachable(*place))]
    if places and len(problems) == len(places):
        raise AuditError(f"--master {master}: nobody answers there ({'; '.join(problems)}). Is the master running?")


def _unreachable(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), _PATIENCE_S).close()
    except (OSError, OverflowError) as problem:
        return str(problem)
    return None


def check_memory(memory: str) -> None:
    """Looks at the size of a heap.

    Raises:
        AuditError: it is no size, or Spark does not start with so little.
    """
    found = _MEMORY.fullmatch(memory.lower())
    if not found:
        raise AuditError(f"--driver-memory {memory}: no size. Give a number and a unit, as 2g or 1500m")
    if int(found[1]) * _MEMORY_UNITS[found[2]] < LEAST_MEMORY_MIB:
        raise AuditError(f"--driver-memory {memory}: Spark needs {LEAST_MEMORY_MIB}m or more")


def partitions_of(rows: int) -> int:
    """Into how many parts so many rows are dealt, that each fits into memory: four a core, or more for large runs."""
    return max(4 * (os.cpu_count() or 1), rows // _ROWS_A_PARTITION)


def start(
    master: str,
    work: Path,
    *,
    driver_memory: str = "2g",
    partitions: int | None = None,
    java_options: str = "",
    options: Mapping[str, str] = MappingProxyType({}),
) -> SparkSession:
    """A session on the master; ``work`` is a folder of this process for what Spark spills.

    Args:
        master: ``local[*]``, ``spark://host:port``, ``k8s://…``.
        work: a folder that is deleted with the session.
        driver_memory: heap of the driver, which in local mode does all the work.
        partitions: of shuffles; by default those of a small run.
        java_options: more options for the driver's Java.
        options: more of Spark's settings; those here are added to what a session needs anyway.

    Raises:
        JavaError: no Java was found.
        AuditError: the session cannot be started.
    """
    local = is_local(master)
    os.environ["JAVA_HOME"] = str(java_home())
    set_python(master)
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    log4j = work / "log4j2.properties"
    log4j.write_text(_LOG4J, encoding="utf-8")
    own = {
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={log4j}" {_WITHOUT_MEMORY} {java_options}',
        "spark.local.dir": str(work),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.shuffle.partitions": str(partitions or partitions_of(0)),
    }
    builder = SparkSession.builder.appName("queen audit").master(master)
    for name, value in {**_SETTINGS, **(_LOCAL if local else {}), **own, **options}.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, RuntimeError, OSError) as problem:
        raise AuditError(f"Spark cannot be started on {master}: {first_line(problem)}") from problem
    if not local:
        session.sparkContext.addPyFile(str(package(work)))
    return session


def first_line(problem: BaseException) -> str:
    """What an error of Spark says, without the stacks around it: what a task of ours said, else its first line."""
    # py4j says of an answer that did not come whole what it says of one with a stack, without the stack.
    unanswered = type(problem) is Py4JError and "Trace:" not in str(problem)
    if unanswered or isinstance(problem, JAVA_IS_GONE):
        return "its Java process has ended"
    said = str(problem.java_exception) if isinstance(problem, Py4JJavaError) else str(problem)
    ours = _OURS.search(said)
    return ours[1] if ours else said.strip().partition("\n")[0]


def package(folder: Path) -> Path:
    """The packages that tasks need as one archive, made from where they are installed: executors need not have them."""
    archive = folder / "queen_audit.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name in PACKAGES:
            root = Path(str(__import__(name).__file__)).parent
            for path in sorted(root.rglob("*.py")):
                file.write(path, Path(name) / path.relative_to(root))
    return archive


def work_folder(inside: Path | None = None) -> "tempfile.TemporaryDirectory[str]":
    """A folder for what Spark spills and what is converted; in that for temporary files, or inside of another."""
    return tempfile.TemporaryDirectory(prefix=WORK, dir=inside)
