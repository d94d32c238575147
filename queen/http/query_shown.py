"""Queries in log lines and traces: only known parameters are shown; others may contain a token or a password."""

from urllib.parse import unquote_plus

#: The parameters of the interface. None of them is a secret.
SHOWN = frozenset(
    {
        "Action", "after", "autoAck", "autopilot", "batch", "behind", "conflation", "consumerGroup", "cursor",
        "cursorCreatedAt", "cursorMessageId", "database", "deleteMetadata", "error", "from", "group", "hostname",
        "interval", "leaseSeconds", "limit", "minLagSeconds", "name", "namespace", "ns", "offset", "order",
        "partition", "partitions", "queue", "reverse", "search", "status", "subscriptionFrom", "subscriptionMode",
        "task", "timeout", "timestamp", "to", "toBeginning", "toEnd", "txn", "wait", "workerId",
    }
)  # fmt: skip
_HIDDEN = "***"


def query_shown(query: str) -> str:
    """The query, with ``***`` for values of unknown parameters."""
    return "&".join(map(_part_shown, query.split("&")))


def _part_shown(part: str) -> str:
    name, equals, value = part.partition("=")
    if unquote_plus(name) in SHOWN:
        return part
    return f"{name}={_HIDDEN if value else ''}" if equals else _HIDDEN
