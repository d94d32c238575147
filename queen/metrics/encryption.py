"""Messages of encrypted queues that could not be decrypted."""

from prometheus_client import Counter

from queen.metrics.registry import REGISTRY

DECRYPTION_FAILURES = Counter(
    "queen_decryption_failures",
    "Stored payloads that could not be decrypted: the key is missing, or the payload is corrupt.",
    registry=REGISTRY,
)
