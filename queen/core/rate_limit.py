"""How many requests a client may make: a token bucket for each."""

from collections import OrderedDict
from collections.abc import Hashable


class RateLimit:
    """Buckets that hold one second's worth of requests.

    Args:
        per_s: requests a second.
        clients_max: buckets that are kept; the one that was not used for longest goes first.
    """

    def __init__(self, per_s: int, clients_max: int = 10_000) -> None:
        self._per_s, self._clients_max = per_s, clients_max
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def admits(self, client: Hashable, now: float) -> bool:
        """Whether a client may make one more request; ``now`` is in seconds of a clock that never goes back."""
        content, since = self._buckets.get(client, (float(self._per_s), now))
        content = min(float(self._per_s), content + (now - since) * self._per_s)
        admitted = content >= 1
        self._buckets[client] = (content - admitted, now)
        self._buckets.move_to_end(client)
        if len(self._buckets) > self._clients_max:
            self._buckets.popitem(last=False)
        return admitted
