"""The scenarios: a k6 script, or a type of our own load on sockets, each with settings and a description."""

import re
from collections.abc import Collection, Iterable, Iterator
from importlib.resources import files
from pathlib import Path

from msgspec import Struct

from bench.sockets.settings import KNOWN

SCRIPTS = Path(str(files("bench"))) / "k6"
_SETTING = re.compile(r"(?:__ENV\.|number\('|oneOf\(')([A-Z0-9_]+)")
_IMPORT = re.compile(r"from '(\.[^']+)'")
#: Settings that must not appear in results or on a page.
SECRETS = ("QUEEN_TOKEN", "TOKEN")
#: Settings that only the driver sets.
_DRIVEN = {"QUEEN_URL", "BASE_URL", "SUMMARY", "SCENARIO", "SERVER", "SMOKE", "JOURNAL", "PREFIX", "DURATION"}


class Scenario(Struct, frozen=True):
    """One type of load.

    Attributes:
        script: a file of ``bench/k6``, or a type of load of ``bench/sockets``.
        settings: its environment.
        seconds: default duration of a run.
        restarts: whether PostgreSQL is restarted in the middle.
        share: share of the server's maximum, which is measured before, for the RATE of the script; 0: it has its own.
        server: settings of a server that is started for it.
    """

    name: str
    script: str
    about: str
    settings: dict[str, str] = {}
    seconds: int = 20
    restarts: bool = False
    share: float = 0.0
    server: dict[str, str] = {}

    @property
    def by_k6(self) -> bool:
        """Whether k6 generates the load."""
        return self.script.endswith(".js")

    @property
    def interface(self) -> str:
        """The interface of its calls."""
        return "simple-mq" if self.script.startswith("simple-mq/") else "queen"


#: More than a run consumes, as far as it can be pushed in a few seconds.
_BACKLOGS = {1: 100_000, 10: 1_000_000, 100: 2_000_000, 1000: 2_000_000}


def _pushes() -> Iterator[Scenario]:
    for batch in _BACKLOGS:
        yield Scenario(
            f"push-{batch}", "queen/push.js", f"50 producers, {batch} message(s) per request", {"BATCH": str(batch)}
        )


def _pops() -> Iterator[Scenario]:
    for batch, backlog in _BACKLOGS.items():
        settings = {"BATCH": str(batch), "BACKLOG": str(backlog)}
        yield Scenario(
            f"pop-ack-{batch}", "queen/pop-ack.js", f"8 consumers, pop and ack of {batch} message(s)", settings
        )


_FLOW = "queen/produce-consume.js"

SCENARIOS: tuple[Scenario, ...] = (
    *_pushes(),
    Scenario("push-c1", "queen/push.js", "one producer, one message per request", {"VUS": "1"}),
    Scenario(
        "push-10k-partitions", "queen/push.js", "10 messages per request over 10,000 partitions",
        {"BATCH": "10", "PARTITIONS": "10000"},
    ),
    *_pops(),
    Scenario("flow-1000", _FLOW, "1,000 messages per second, pushed and consumed; end-to-end time", {"RATE": "1000"}),
    Scenario("fan-out-10", _FLOW, "200 messages per second to 10 groups", {"RATE": "200", "GROUPS": "10", "VUS": "2"}),
    Scenario(
        "spike", _FLOW, "500 messages per second, three times that in the middle", {"RATE": "500", "SHAPE": "spike"}
    ),
    Scenario("flow-max", _FLOW, "as many messages as possible, 10 per request", {"BATCH": "10", "SHAPE": "max"}),
    Scenario(
        "soak", _FLOW, "70 % of the maximum for half an hour, 10 messages per request, with retention",
        {"BATCH": "10", "RETENTION_S": "60"}, seconds=1800, share=0.7, server={"RETENTION_INTERVAL": "15000"},
    ),
    Scenario(
        "failover", _FLOW, "500 messages per second while PostgreSQL is restarted",
        {"RATE": "500", "TOLERATE": "1", "PAUSE_S": "30"}, restarts=True,
    ),
    Scenario(
        "audit-all", "queen/audit-all.js", "for --audit: everything that it judges, while PostgreSQL is restarted",
        {"TOLERATE": "1"}, restarts=True,
    ),
    Scenario("transactions", "queen/transactions.js", "8 pipelines: ack and push in one transaction"),
    Scenario(
        "waiters-2000", "queen/waiters.js", "2,000 idle consumers, 50 of them woken per second",
        {"VUS": "2000", "RATE": "50"},
    ),
    Scenario("socket-take-ack", "take-ack", "8 WebSockets take a backlog and ack message by message"),
    Scenario(
        "socket-latency", "latency", "1,000 messages per second, pushed over HTTP and consumed by 8 WebSockets",
        {"PARTITIONS": "20"},
    ),
    Scenario("simple-mq-happy-path", "simple-mq/driven-happy-path.js", "a queue of simple-mq, used and deleted"),
    Scenario("simple-mq-dead-letter", "simple-mq/driven-dlq.js", "a message without an ack becomes a dead letter"),
    Scenario("simple-mq", "simple-mq/driven-load-test.js", "10 users, 15 queues of simple-mq: enqueue, dequeue, ack"),
)  # fmt: skip


def known_settings(scenarios: Iterable[Scenario]) -> set[str]:
    """The variables of the scripts of these scenarios for ``--set``."""
    return {name for scenario in scenarios for name in _read(scenario)} - _DRIVEN


def _read(scenario: Scenario) -> Collection[str]:
    return read_by(SCRIPTS / scenario.script) if scenario.by_k6 else KNOWN[scenario.script]


def read_by(script: Path) -> set[str]:
    """The variables that a script reads."""
    return {name for text in _texts(script) for name in _SETTING.findall(text)}


def _texts(script: Path) -> Iterator[str]:
    """A script and its imports."""
    text = script.read_text(encoding="utf-8")
    yield text
    for name in _IMPORT.findall(text):
        yield from _texts(script.parent / name)


_USUAL = ("push-100", "pop-ack-100", "flow-1000")


def chosen(names: list[str] | None) -> list[Scenario]:
    """The scenarios of these names, which may end in ``*``; by default the usual ones.

    Raises:
        ValueError: a name is unknown; the text lists all scenarios.
    """
    found: dict[str, Scenario] = {}
    for name in names or _USUAL:
        matches = [
            each for each in SCENARIOS if each.name == name or (name[-1:] == "*" and each.name.startswith(name[:-1]))
        ]
        if not matches:
            raise ValueError(
                f"There is no scenario {name}. The scenarios are: {', '.join(each.name for each in SCENARIOS)}"
            )
        found |= {each.name: each for each in matches}
    return list(found.values())
