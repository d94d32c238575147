"""simple-mq in an engine: its storage and its counters."""

from msgspec import Struct

from queen.engine.context import Context
from queen.postgres.pool import Pool
from queen.simple_mq.outcome_counters import OutcomeCounters
from queen.simple_mq.sqs_storage import SqsAdministrationStore, SqsStore
from queen.simple_mq.storage import SimpleMqAdministrationStore, SimpleMqStore


class SimpleMq(Struct, frozen=True):
    """simple-mq as its handlers see it: the procedures for messages, those for administration, and its counters.

    Attributes:
        sqs, sqs_administration: the procedures of queues of SQS, which have the same storage.
    """

    database: SimpleMqStore
    administration: SimpleMqAdministrationStore
    outcomes: OutcomeCounters
    sqs: SqsStore
    sqs_administration: SqsAdministrationStore

    @staticmethod
    def over(hot: Pool, cold: Pool) -> "SimpleMq":
        """simple-mq on these connections: those for messages, and those for everything else."""
        administration = SimpleMqAdministrationStore(cold)
        outcomes = OutcomeCounters(administration.count_outcomes)
        return SimpleMq(SimpleMqStore(hot), administration, outcomes, SqsStore(hot), SqsAdministrationStore(cold))

    @staticmethod
    def of(context: Context) -> "SimpleMq":
        """That of an engine."""
        return context.interface(SimpleMq)
