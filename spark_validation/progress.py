"""Progress of Spark's work, from its status tracker."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from .gateway import JAVA_IS_GONE
from .run import Progress

_INTERVAL_S = 1.0
_PATIENCE_S = 5.0


class Told:
    """What is done now: the audit, as the caller says, and the stages and tasks of it, as Spark says."""

    def __init__(self, spark: SparkSession, progress: Progress) -> None:
        self._context, self._progress = spark.sparkContext, progress
        self._step: tuple[int, int, str] = (0, 0, "reading")
        self._ended = threading.Event()

    def __call__(self, done: int, total: int, name: str) -> None:
        """A step begins."""
        self._step = (done, total, name)
        self._progress(done, total, name)

    def follow(self) -> None:
        """Tells Spark's tasks, until it is ended."""
        while not self._ended.wait(_INTERVAL_S):
            with suppress(Py4JError, *JAVA_IS_GONE):
                if text := tasks(self._context):
                    done, total, name = self._step
                    self._progress(done, total, f"{name}: {text}")

    def end(self) -> None:
        """Ends it."""
        self._ended.set()


def tasks(context: SparkContext) -> str:
    """The stages that run now, and how many of their tasks are done; empty if none runs."""
    tracker = context.statusTracker()
    infos = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
    if not infos:
        return ""
    stages = ", ".join(str(info.stageId) for info in infos)
    done, all_ = sum(info.numCompletedTasks for info in infos), sum(info.numTasks for info in infos)
    return f"stage {stages}, {done} of {all_} tasks"


@contextmanager
def following(spark: SparkSession, progress: Progress) -> Iterator[Progress]:
    """Progress that moves within a step, too."""
    told = Told(spark, progress)
    thread = threading.Thread(target=told.follow, name="progress", daemon=True)
    thread.start()
    try:
        yield told
    finally:
        told.end()
        # A call to a Java that ends may not come back.
        thread.join(_PATIENCE_S)
