"""The types of jobs of the engine."""

from enum import Enum


class JobType(Enum):
    """Types of jobs; each has its own queue with a batch policy and a limit of calls in flight."""

    PUSH = "push"
    POP = "pop"
    ACK = "ack"
    TRANSACTION = "transaction"
    RENEW_LEASE = "renew_lease"
    CYCLE = "cycle"
    TIMER = "timer"
    ENQUEUE = "enqueue"
    DEQUEUE = "dequeue"
    ACKNOWLEDGE = "acknowledge"
    EXTEND_VISIBILITY = "extend_visibility"
    SQS_SEND = "sqs_send"
    SQS_RECEIVE = "sqs_receive"
    SQS_DELETE = "sqs_delete"
    SQS_CHANGE_VISIBILITY = "sqs_change_visibility"
    CUSTOM = "custom"

    #: Members are dictionary keys many times per call, and Enum's own hash is Python code.
    __hash__ = object.__hash__
