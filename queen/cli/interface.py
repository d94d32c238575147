"""The interfaces of a server, as values of options."""

from enum import StrEnum


class Interface(StrEnum):
    """Queen's, simple-mq's, or SQS's."""

    queen = "queen"
    simple_mq = "simple-mq"
    sqs = "sqs"
