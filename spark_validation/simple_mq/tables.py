"""The tables for audits of simple-mq. Messages are identified by their ids, which the server assigns."""

from functools import cached_property
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ..inputs import Inputs
from ..tables import Tables
from .stored import Stored


class SimpleMqTables(Tables):
    """Each table is made at its first use; the parameters of audits name tables."""

    interface: ClassVar[str] = "simple-mq"
    of_database: ClassVar[frozenset[str]] = frozenset({"stored_queues", "stored_messages"})
    counted: ClassVar[tuple[str, ...]] = ("enqueues", "given", "acknowledged", "stored_queues", "stored_messages")
    flow: ClassVar[tuple[str, ...]] = ("enqueue", "dequeue", "acknowledge")
    _OF_JOURNALS: ClassVar[frozenset[str]] = frozenset(
        {"calls", "clocks", "tails", "enqueues", "given", "acknowledged", "settings", "meddled", "requeued", "unseen"}
    )

    def __init__(self, inputs: Inputs, stored: Stored | None) -> None:
        super().__init__(inputs)
        self._stored = stored

    def get(self, name: str) -> DataFrame | None:
        """A table; None if its source was not given, or it does not exist for simple-mq."""
        given = self._stored is not None if name in self.of_database else self._inputs.calls is not None
        if not given or name not in self.of_database | self._OF_JOURNALS:
            return None
        table: DataFrame = getattr(self, name)
        return table

    # ------------------------------------------------------------ journals

    def _told(self, kinds: tuple[str, ...], items: str, *fields: str) -> DataFrame:
        """One row per item, with its message id."""
        rows = self._items(kinds, items)
        columns = ["agent", "number", "position", "kind", "call", "invoked", "completed"]
        fields = ("queue", "message_id", *fields)
        return self._keep(rows.select(*columns, *[F.col(f"item.{name}").alias(name) for name in fields]))

    @cached_property
    def enqueues(self) -> DataFrame:
        """Each enqueued message."""
        return self._told(("enqueue",), "pushes", "outcome", "payload_hash")

    @cached_property
    def given(self) -> DataFrame:
        """Each delivered message of each poll."""
        return self._told(("dequeue",), "deliveries", "attempt", "payload_hash")

    @cached_property
    def acknowledged(self) -> DataFrame:
        """Each ack."""
        return self._told(("acknowledge",), "acks", "outcome")

    @cached_property
    def meddled(self) -> DataFrame:
        """The messages that may have been requeued, or whose visibility timeout may have been changed."""
        rows = self._told(("requeue", "extend"), "acks", "outcome")
        return self._keep(rows.where(F.col("outcome") != "fail").select("message_id").distinct())

    @cached_property
    def requeued(self) -> DataFrame:
        """The messages that may have been requeued, and the queues that the calls named."""
        rows = self._told(("requeue",), "acks", "outcome")
        return self._keep(rows.where(F.col("outcome") != "fail").select("message_id", "queue").distinct())

    @cached_property
    def settings(self) -> DataFrame:
        """By queue: its visibility timeout in seconds and its maximum of deliveries, none for dead-letter queues."""
        told = self.calls.where((F.col("kind") == "configured") & F.col("lease_seconds").isNotNull()).select(
            "queue", F.col("lease_seconds").alias("timeout"), F.col("retry_limit").alias("most")
        )
        if self._stored is not None:
            limit = F.when(F.col("parent").isNull(), F.col("max_deliveries"))
            told = told.unionByName(
                self._stored.queues.select(
                    "queue", F.col("visibility_timeout").cast("double").alias("timeout"), limit.alias("most")
                )
            )
        return self._keep(told.where(F.col("queue").isNotNull()).dropDuplicates(["queue"]))

    @cached_property
    def unseen(self) -> DataFrame:
        """One row if there may have been deliveries that are in no journal."""
        lost = self.calls.where((F.col("kind") == "dequeue") & (F.col("call") == "unknown")).select("agent")
        return self._keep(lost.unionByName(self.tails.select("agent")).limit(1))

    # ------------------------------------------------------------ database

    @cached_property
    def stored_queues(self) -> DataFrame:
        """The queues, dead-letter queues too."""
        assert self._stored is not None  # get() has looked
        return self._stored.queues

    @cached_property
    def stored_messages(self) -> DataFrame:
        """The messages of all queues."""
        assert self._stored is not None
        return self._stored.messages
