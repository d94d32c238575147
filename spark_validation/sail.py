"""Sail: Spark's queries without Spark and without Java, in this process.

It runs what PySpark sends by the protocol of Spark Connect, with DataFusion (https://docs.lakesail.com). A small query
takes it milliseconds, where Spark plans, compiles and sends tasks for half a second. ADR 71 says what it costs.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from .dialect import FOLDER


@contextmanager
def started(work: Path, memory: int) -> Iterator[SparkSession]:
    """A session. It listens on the loopback device, without authentication, as Spark does on one machine.

    Args:
        work: a folder for kept tables, and for what Sail spills.
        memory: for queries, in bytes; one that needs more fails.
    """
    with _environment(
        RUST_LOG="off",
        SAIL_RUNTIME__MEMORY_POOL__TYPE="greedy",
        SAIL_RUNTIME__MEMORY_POOL__GREEDY__MAX_SIZE=str(memory),
        SAIL_RUNTIME__TEMPORARY_FILES__PATHS=f'["{work}"]',
    ):
        from pysail.spark import SparkConnectServer  # noqa: PLC0415 - it reads the level of its log when it is imported

        server = SparkConnectServer("127.0.0.1", 0)
        server.start()
    try:
        host, port = server.listening_address
        session = ConnectSession.builder.remote(f"sc://{host}:{port}").create()
        try:
            # In one process, what fails once fails again.
            session.client.set_retry_policies([])
            session.conf.set("spark.sql.session.timeZone", "UTC")
            session.conf.set(FOLDER, str(work))
            _keep_signals()
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


@contextmanager
def _environment(**settings: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _keep_signals() -> None:
    """By its first answer the server has begun to end at SIGINT; but the command ends its query first."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
