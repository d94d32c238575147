"""Message counts of the instance. Counts per queue are in the statistics: queues are deleted, but series stay."""

from collections.abc import Iterable

from prometheus_client import Counter

from queen.core.metrics import QueueCounts
from queen.metrics.registry import REGISTRY

MESSAGES = Counter(
    "queen_messages",
    "Messages stored (push), delivered (pop), acknowledged (ack), with a refused ack (ack_refused), and "
    "dead-lettered; updated every STATS_INTERVAL_MS.",
    ("operation",),
    registry=REGISTRY,
)
EMPTY_POPS = Counter("queen_empty_pops", "Pops that returned no messages.", registry=REGISTRY)

_FIELDS = {
    "push": "push_messages",
    "pop": "pop_messages",
    "ack": "ack_success",
    "ack_refused": "ack_failed",
    "dead_letter": "dead_letters",
}
_CHILDREN = {field: MESSAGES.labels(operation) for operation, field in _FIELDS.items()}


def count(counted: Iterable[QueueCounts]) -> None:
    """Adds the counts of queues."""
    for counts in counted:
        for field, child in _CHILDREN.items():
            if number := getattr(counts, field):
                child.inc(number)
        if counts.pop_empty:
            EMPTY_POPS.inc(counts.pop_empty)
