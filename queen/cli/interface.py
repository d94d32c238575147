"""The interfaces of a server, as values of options."""

from enum import StrEnum


class Audited(StrEnum):
    """Those whose journals and tables are audited."""

    queen = "queen"
    simple_mq = "simple-mq"


class Interface(StrEnum):
    """Queen's, simple-mq's, or SQS's."""

    queen = "queen"
    simple_mq = "simple-mq"
    sqs = "sqs"
