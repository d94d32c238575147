"""Progress: what Spark does now, and how it is told without a terminal."""

import threading
import time

from queen.cli import progress
from spark_validation.progress import following, tasks
from tests.support.processes import wait_until


def test_progress_moves_within_a_step(spark):
    """Until its tasks are done, Spark's tracker has their stage."""
    told: list[tuple[int, int, str]] = []

    def slow(number: int) -> int:
        time.sleep(0.5)  # a task that takes its time
        return number

    with following(spark, lambda *step: told.append(step)) as tell:
        tell(3, 28, "attempts rise")
        spark.sparkContext.parallelize(range(8), 8).map(slow).count()
    assert told[0] == (3, 28, "attempts rise")
    assert any(text.startswith("attempts rise: stage ") and text.endswith(" of 8 tasks") for _, _, text in told)
    assert tasks(spark.sparkContext) == ""
    wait_until(lambda: not [each for each in threading.enumerate() if each.name == "progress"], "the end of its thread")


def test_without_a_terminal_it_is_a_line_a_minute(monkeypatch, capsys):
    with progress.told("starting Spark") as tell:
        tell(0, 28, "reading")
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(progress, "LINE_S", 0.0)
        tell(3, 28, "attempts rise: stage 12, 3 of 8 tasks")
        tell(0, 0, "archiving")
    one, other = capsys.readouterr().err.splitlines()
    assert one.endswith(" 3 of 28, attempts rise: stage 12, 3 of 8 tasks")
    assert other.endswith(" archiving")
