"""The settings of the load, from its environment, like those of the k6 scripts."""

from collections.abc import Mapping

from msgspec import Struct

#: The settings for users, by type of load.
KNOWN: Mapping[str, frozenset[str]] = {
    "take-ack": frozenset({"BACKLOG", "SOCKETS", "CREDIT", "PARTITIONS", "QUEEN_TOKEN", "KEEP"}),
    "latency": frozenset({"RATE", "SOCKETS", "CREDIT", "PARTITIONS", "QUEEN_TOKEN", "KEEP"}),
}
_SMOKE_S = 2


class SettingError(Exception):
    """A setting is invalid."""


class Settings(Struct, frozen=True):
    """All of them.

    Attributes:
        url: of Queen, or as ``amqp://…`` of RabbitMQ.
        prefix: of the name of the queue.
        sockets, credit: consumers, and the credit of each; for RabbitMQ connections and prefetch.
        partitions: of the queue; RabbitMQ has none.
        backlog: messages at the beginning.
        rate: messages per second.
        in_time_ms: limit of the 99th percentile; very high in a smoke run, because machines may be busy.
        period_s: seconds per point of a plot.
        journal: whether every call is recorded.
        keep: whether the queue is kept.
        summary: file for the result.
    """

    url: str
    token: str
    prefix: str
    seconds: int
    sockets: int
    credit: int
    partitions: int
    backlog: int
    rate: int
    in_time_ms: int
    period_s: int
    journal: bool
    keep: bool
    summary: str

    @property
    def queue(self) -> str:
        """Its name."""
        return f"{self.prefix}-sockets"


def of_environment(variables: Mapping[str, str]) -> Settings:
    """The settings from the driver.

    Raises:
        SettingError: one is not a number, or too small.
    """
    smoke = variables.get("SMOKE") == "1"

    def number(name: str, usual: int, small: int, least: int = 1) -> int:
        return small if smoke else _number(name, variables.get(name) or str(usual), least)

    return Settings(
        url=variables["QUEEN_URL"], token=variables.get("QUEEN_TOKEN", ""), prefix=variables.get("PREFIX", "sockets"),
        seconds=_SMOKE_S if smoke else _number("DURATION", variables["DURATION"].removesuffix("s"), 1),
        sockets=number("SOCKETS", 8, 2), credit=number("CREDIT", 100, 10), partitions=number("PARTITIONS", 16, 4),
        backlog=number("BACKLOG", 400_000, 2000), rate=number("RATE", 1000, 50),
        in_time_ms=60_000 if smoke else 2000,
        period_s=_number("PERIOD_S", variables.get("PERIOD_S", "1"), 1), journal=variables.get("JOURNAL") == "1",
        keep=variables.get("KEEP") == "1", summary=variables["SUMMARY"],
    )  # fmt: skip


def _number(name: str, text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise SettingError(f"{name}={text}: expected is a whole number of {least} or more")
    return int(text)
