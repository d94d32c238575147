"""A standalone cluster on loopback: executors get the package from the driver, and nothing from a shared folder."""

import asyncio
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import psutil
import pyspark
import pytest

from bench.generated_log import load
from spark_validation.java import java_home
from spark_validation.journal.files import write_lines
from tests.audit.faults import ordinary
from tests.support.processes import clean_environment, free_port, run, wait_until
from tests.support.servers import create_database, drop_database

#: All of it takes minutes.
pytestmark = pytest.mark.nightly

PATIENCE_S = 300.0
PROGRAM = Path(pyspark.__path__[0]) / "bin" / "spark-class"


@pytest.fixture
def master(tmp_path):
    """A master and two workers of one core each."""
    port, page = free_port(), free_port()
    environment = clean_environment(JAVA_HOME=str(java_home()), SPARK_LOCAL_IP="127.0.0.1")
    with (tmp_path / "cluster.log").open("wb") as log, ExitStack() as stack:

        def start(kind, *arguments):
            command = [PROGRAM, f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *arguments]
            process = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=log, stderr=log)
            stack.callback(end, process)

        def workers():
            try:
                return len(httpx.get(f"http://127.0.0.1:{page}/json/", trust_env=False).json()["workers"])
            except (httpx.TransportError, ValueError):  # the port is closed, or the page is not there yet
                return -1

        url = f"spark://127.0.0.1:{port}"
        start("master.Master", "--port", str(port), "--webui-port", str(page))
        wait_until(lambda: workers() == 0, "a master", PATIENCE_S)
        for _ in range(2):
            size = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
            start("worker.Worker", *size, "--work-dir", str(tmp_path / "work"), url)
        wait_until(lambda: workers() == 2, "two workers", PATIENCE_S)
        yield url


def end(process):
    """Ends a process and what it has started."""
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.terminate()
    process.terminate()
    process.wait(PATIENCE_S)


WHERE = """
import sys
from contextlib import ExitStack
from pathlib import Path
from spark_validation.session import start

def place(_):
    import pyspark_queen.source
    return pyspark_queen.source.__file__

session = start(sys.argv[1], Path(sys.argv[2]), rows=0)
print(*session.sparkContext.parallelize(range(4), 4).map(place).collect())
session.stop()
"""


@pytest.mark.timeout(2400)
def test_executors_run_the_package_that_the_driver_sends(tmp_path, master):
    work = tmp_path / "driver"
    work.mkdir()
    environment = clean_environment(JAVA_HOME=str(java_home()))
    ended = subprocess.run(
        [sys.executable, "-c", WHERE, master, str(work)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    places = ended.stdout.split()
    assert len(places) == 4
    # The one that is installed would have an absolute path.
    assert set(places) == {"./spark_validation.zip/pyspark_queen/source.py"}


STREAM = """
import sys
from pathlib import Path
from spark_validation.session import start

master, work, dsn, lake = sys.argv[1:]
session = start(master, Path(work), rows=0)
stream = session.readStream.format("queen").schema("partition string, offset bigint, payload string")
stream = stream.options(dsn=dsn, startingOffsets="earliest", maxRecordsPerPartition=100).load()
writer = stream.writeStream.format("parquet").option("path", lake).option("checkpointLocation", lake + ".state")
query = writer.trigger(availableNow=True).start()
query.awaitTermination()
table = session.read.format("queen").option("dsn", dsn).schema("partition string, offset bigint").load()
print(table.distinct().count(), session.read.parquet(lake).count())
session.stop()
"""


@pytest.mark.timeout(2400)
def test_a_stream_and_a_table_on_a_cluster_read_each_message_once(tmp_path, master, postgres):
    url = asyncio.run(create_database(postgres))
    try:
        for run_number, messages in enumerate((400, 300)):
            asyncio.run(load(url, messages, 3, 20, seed=run_number))
            work = tmp_path / f"driver{run_number}"
            work.mkdir()
            ended = subprocess.run(
                [sys.executable, "-c", STREAM, master, str(work), url, str(tmp_path / "lake")],
                cwd=tmp_path,
                env=clean_environment(JAVA_HOME=str(java_home())),
                capture_output=True,
                text=True,
                check=False,
            )
            assert ended.returncode == 0, ended.stderr
            there = (400, 700)[run_number]
            assert ended.stdout.split() == [str(there), str(there)]
    finally:
        asyncio.run(drop_database(postgres, url))


@pytest.mark.timeout(2400)
def test_an_audit_on_a_cluster_judges_journal_and_log(tmp_path, master, postgres):
    journal = tmp_path / "journal"
    journal.mkdir()
    write_lines(journal / "a.jsonl", ordinary("q", 1)[1].calls)
    url = asyncio.run(create_database(postgres))
    try:
        asyncio.run(load(url, 400, 3, 20))
        asked = ("--guarantee", "G-ORD-2", "--guarantee", "G-ACK-2")
        ended = run("audit", "--journal", str(journal), "--dsn", url, "--master", master, *asked, patience=1500)
    finally:
        asyncio.run(drop_database(postgres, url))
    assert ended.returncode == 0, ended.stderr + (tmp_path / "cluster.log").read_text()[-3000:]
    # The database does not have the queue of the journal, so that messages between two may have been removed.
    assert "3 audits valid, 0 invalid, 1 unknown" in ended.stdout
