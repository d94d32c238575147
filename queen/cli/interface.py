"""The interfaces that a server speaks, as options name them."""

from enum import StrEnum


class Interface(StrEnum):
    """Queen's, or simple-mq's."""

    queen = "queen"
    simple_mq = "simple-mq"
