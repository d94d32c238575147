"""The interfaces of a server, as values of options."""

from enum import StrEnum


class Interface(StrEnum):
    """Queen's, or simple-mq's."""

    queen = "queen"
    simple_mq = "simple-mq"
