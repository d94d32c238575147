"""simple-mq and SQS in an engine: their storage, and the counters."""

from uuid import UUID

from msgspec import Struct

from queen.core.placement import SLOT_BITS, slot_of_queue
from queen.engine.context import Context
from queen.postgres.pool import Pool
from queen.simple_mq.outcome_counters import OutcomeCounters
from queen.simple_mq.sqs_storage import SqsAdministrationStore, SqsStore
from queen.simple_mq.sqs_used import UsedQueues
from queen.simple_mq.storage import SimpleMqAdministrationStore, SimpleMqStore


def home_of(context: Context, queue: UUID) -> Context:
    """The context of the database of a queue, which its number names."""
    return context.at(slot_of_queue(queue) << SLOT_BITS)


class SimpleMq(Struct, frozen=True):
    """simple-mq as its handlers see it: the procedures for messages, those for administration, and its counters."""

    database: SimpleMqStore
    administration: SimpleMqAdministrationStore
    outcomes: OutcomeCounters

    @staticmethod
    def over(hot: Pool, cold: Pool) -> "SimpleMq":
        """simple-mq on these connections: those for messages, and those for everything else."""
        administration = SimpleMqAdministrationStore(cold)
        return SimpleMq(SimpleMqStore(hot), administration, OutcomeCounters(administration.count_outcomes))

    @staticmethod
    def of(context: Context) -> "SimpleMq":
        """That of an engine."""
        return context.interface(SimpleMq)


class Sqs(Struct, frozen=True):
    """Queues of SQS, on the storage of simple-mq.

    Attributes:
        database: the procedures for messages.
        administration: those for administration.
        used: the queues that were used, for an outage.
    """

    database: SqsStore
    administration: SqsAdministrationStore
    used: UsedQueues

    @staticmethod
    def over(hot: Pool, cold: Pool) -> "Sqs":
        """Those on these connections: for messages, and for everything else."""
        return Sqs(SqsStore(hot), SqsAdministrationStore(cold), UsedQueues())

    @staticmethod
    def of(context: Context) -> "Sqs":
        """Those of an engine."""
        return context.interface(Sqs)
