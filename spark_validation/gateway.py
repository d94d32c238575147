"""The Java process of Spark, as PySpark knows it: its errors and its end."""

import signal
import subprocess
from contextlib import suppress

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext

from .errors import told_by_us

JAVA_IS_GONE = (Py4JNetworkError, ConnectionError)
"""The exceptions of calls to Spark after Java has ended."""

_PATIENCE_S = 10
_OUT_OF_MEMORY = 3  # the exit code of Java after -XX:+ExitOnOutOfMemoryError


def _process() -> "subprocess.Popen[bytes] | None":
    return getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - pyspark has no other way to its Java process


def end() -> None:
    """Ends Java, so that the next session has one with options of its own."""
    gateway, process = SparkContext._gateway, _process()  # noqa: SLF001 - as above
    if gateway is None or process is None or process.stdin is None:
        return
    gateway.shutdown()
    process.stdin.close()
    process.wait()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - as above


def kill() -> None:
    """Ends Java at once: it would report each task that an interruption ends, and still write into its folder."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if process := _process():
        process.kill()
        process.wait()


def first_line(problem: BaseException) -> str:
    """The text of an error of Spark, without stack traces: the error of our task, else the first line."""
    # py4j says of an answer that did not come whole what it says of one with a stack, without the stack.
    unanswered = type(problem) is Py4JError and "Trace:" not in str(problem)
    if unanswered or isinstance(problem, JAVA_IS_GONE):
        return f"its Java process {'ran out of memory' if _ended_with() == _OUT_OF_MEMORY else 'has ended'}"
    said = str(problem.java_exception) if isinstance(problem, Py4JJavaError) else str(problem)
    return told_by_us(said) or said.strip().partition("\n")[0]


def _ended_with() -> int | None:
    """The exit code of Java; None if it has not ended."""
    code = None
    if process := _process():
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(_PATIENCE_S)
    return code
