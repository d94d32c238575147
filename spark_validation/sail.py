"""Sail: Spark's queries without Spark and without Java, in this process.

It runs what PySpark sends by the protocol of Spark Connect, with DataFusion (https://docs.lakesail.com). A small query
takes it milliseconds, where Spark plans, compiles and sends tasks for half a second. ADR 71 says what it costs.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from grpc import RpcError
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession as ConnectSession

from .dialect import CORES, FOLDER
from .errors import AuditError, told_by_us


@contextmanager
def started(work: Path, memory: int, cores: int) -> Iterator[SparkSession]:
    """A session. It listens on a loopback port without authentication, as Spark does on one machine.

    Args:
        work: a folder for kept tables, and for what Sail spills.
        memory: for queries, in bytes; one that needs more fails.
        cores: how many tasks run at once.

    Raises:
        AuditError: it cannot be started.
    """
    if found := set(str(work)) & set("*?[]{}"):
        signs = " ".join(sorted(found))
        raise AuditError(f"{work}: Sail would take {signs} for a pattern. Set TMPDIR to a folder without such signs")
    with _environment(
        RUST_LOG="off",
        SAIL_RUNTIME__MEMORY_POOL__TYPE="greedy",
        SAIL_RUNTIME__MEMORY_POOL__GREEDY__MAX_SIZE=str(memory),
        SAIL_RUNTIME__TEMPORARY_FILES__PATHS=json.dumps([str(work)]),
        SAIL_EXECUTION__DEFAULT_PARALLELISM=str(cores),
    ):
        from pysail.spark import SparkConnectServer  # noqa: PLC0415 - it reads the level of its log when it is imported

        try:
            server = SparkConnectServer("127.0.0.1", 0)
            server.start()
        except RuntimeError as problem:
            raise AuditError(f"Sail cannot be started: {problem}") from problem
    try:
        host, port = server.listening_address
        # A proxy of the environment is not for this machine.
        channel = DefaultChannelBuilder(f"sc://{host}:{port}", [("grpc.enable_http_proxy", 0)])
        session = ConnectSession.builder.channelBuilder(channel).create()
        try:
            # In one process, what fails once fails again.
            session.client.set_retry_policies([])
            session.conf.set("spark.sql.session.timeZone", "UTC")
            session.conf.set(FOLDER, str(work))
            session.conf.set(CORES, str(cores))
            # Both kinds of session have the same methods.
            yield cast("SparkSession", session)
        finally:
            session.stop()  # the server would wait for it
    finally:
        server.stop()


@contextmanager
def spoken() -> Iterator[None]:
    """While it lasts, PySpark's functions make expressions for Sail, which Spark itself does not know."""
    with _environment(SPARK_CONNECT_MODE_ENABLED="1"):
        yield


def first_line(problem: BaseException) -> str:
    """The text of an error of a query: that of our own task, else the first line."""
    said = problem.details() if isinstance(problem, RpcError) else str(problem)
    return told_by_us(said) or said.strip().partition("\n")[0]


@contextmanager
def _environment(**settings: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
