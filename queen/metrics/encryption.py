"""Messages of encrypted queues that could not be delivered in clear."""

from prometheus_client import Counter

from queen.metrics.registry import REGISTRY

DECRYPTION_FAILURES = Counter(
    "queen_decryption_failures",
    "Times that a stored payload could not be decrypted: its key is missing, or it is not what was stored.",
    registry=REGISTRY,
)
