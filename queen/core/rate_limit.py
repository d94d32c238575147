"""Limits the request rate of each client with a token bucket."""

from collections import OrderedDict
from collections.abc import Hashable


class RateLimit:
    """Token buckets; each holds the requests of one second.

    Args:
        per_s: requests per second.
        clients_max: maximum of buckets; the least recently used one is removed first.
    """

    def __init__(self, per_s: int, clients_max: int = 10_000) -> None:
        self._per_s, self._clients_max = per_s, clients_max
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def admits(self, client: Hashable, now: float) -> bool:
        """Whether a client may send one more request; ``now`` is in seconds of a monotonic clock."""
        content, since = self._buckets.get(client, (float(self._per_s), now))
        content = min(float(self._per_s), content + (now - since) * self._per_s)
        admitted = content >= 1
        self._buckets[client] = (content - admitted, now)
        self._buckets.move_to_end(client)
        if len(self._buckets) > self._clients_max:
            self._buckets.popitem(last=False)
        return admitted
