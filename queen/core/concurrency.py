"""How many calls of a type may be in flight: a fixed number, or as many as the database takes without queueing.

``Vegas`` carries the idea of TCP Vegas (L. S. Brakmo and L. L. Peterson, "TCP Vegas: End to End Congestion Avoidance on
a Global Internet", IEEE Journal on Selected Areas in Communications 13(8), 1995) from packets to calls, as Netflix's
library concurrency-limits does: a call that takes longer than the fastest ones has queued, and the difference says how
many calls queue.

    queued share = 1 - fastest / now

Three things differ from the paper, because the load differs:

- Calls carry batches, and a batch of 500 takes longer than one of 1 even without a queue. Times are only compared
  between batches of about the same size (powers of two).
- Times of a database scatter. The lower quartiles of windows of times are compared, not single times. "Fastest" is the
  quartile of a window with few calls in flight, not the least time ever, which would be an outlier.
- While the limit is reached, the fastest time cannot be measured again, and a database that became slower permanently
  would look like a queue forever. So the limit is halved for one window from time to time, to measure again.

Pure: time is an argument.
"""

from dataclasses import dataclass
from typing import Protocol


class Limiter(Protocol):
    """Says how many calls may be in flight, and learns from their times."""

    @property
    def limit(self) -> int:
        """Calls that may be in flight; at least 1."""

    @property
    def rtt_ms(self) -> float | None:
        """The time of a recent window of calls, in milliseconds; ``None`` before the first."""

    def sample(self, rtt_ms: float, size: int, in_flight: int, now: float) -> None:
        """Records the time of a call that succeeded.

        Args:
            rtt_ms: its duration, in milliseconds.
            size: number of its jobs.
            in_flight: calls of its type in flight when it began, itself included.
            now: the time, in seconds.
        """


class Static:
    """A fixed limit."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._rtt_ms: float | None = None

    @property
    def limit(self) -> int:
        """The cap."""
        return self._cap

    @property
    def rtt_ms(self) -> float | None:
        """A moving average of the times, in milliseconds."""
        return self._rtt_ms

    def sample(self, rtt_ms: float, size: int, in_flight: int, now: float) -> None:  # noqa: ARG002 - part of the protocol
        """Only records the time, for metrics."""
        self._rtt_ms = rtt_ms if self._rtt_ms is None else self._rtt_ms + (rtt_ms - self._rtt_ms) / 16


@dataclass(frozen=True, slots=True)
class VegasSettings:
    """The parameters of Vegas.

    Attributes:
        floor: minimum of the limit.
        alpha: the limit grows while less than this percentage of it queues.
        beta: the limit shrinks while more than this percentage of it queues.
        window: number of calls whose times are evaluated together.
        refresh_s: how long the fastest time is valid, in seconds.
    """

    floor: int = 1
    alpha: float = 3.0
    beta: float = 12.0
    window: int = 50
    refresh_s: float = 30.0


class Vegas:
    """Grows by one while almost nothing queues, shrinks by one while too much does.

    Args:
        cap: maximum of the limit.
        settings: the parameters.
    """

    def __init__(self, cap: int, settings: VegasSettings) -> None:
        self._cap, self._settings = cap, settings
        self._floor = min(settings.floor, cap)
        self._limit = max(self._floor, min(cap, _FIRST_LIMIT))
        self._before_probe: int | None = None
        self._window_begin: float | None = None
        self._fresh_until = 0.0
        self._windows: dict[int, list[float]] = {}
        self._fastest: dict[int, float] = {}
        self._busiest = 0
        self._rtt_ms: float | None = None

    @property
    def limit(self) -> int:
        """Between floor and cap."""
        return self._limit

    @property
    def rtt_ms(self) -> float | None:
        """The lower quartile of the last full window, in milliseconds."""
        return self._rtt_ms

    def sample(self, rtt_ms: float, size: int, in_flight: int, now: float) -> None:
        """Records a call; a full window changes the limit."""
        if self._window_begin is None:
            self._window_begin, self._fresh_until = now, now + self._settings.refresh_s
        if self._before_probe is not None and in_flight > self._limit:
            return  # it began before the limit was halved
        self._busiest = max(self._busiest, in_flight)
        kind = size.bit_length()
        window = self._windows.setdefault(kind, [])
        window.append(rtt_ms)
        # The fastest time serves for a long time, so it is measured with more calls.
        wanted = self._settings.window * (1 if self._fastest and self._before_probe is None else _CARE)
        if len(window) >= wanted and now - self._window_begin >= _WINDOW_S:
            self._learn(kind, now)
            self._windows.clear()
            self._window_begin, self._busiest = now, 0

    def _learn(self, kind: int, now: float) -> None:
        rtt_ms = self._rtt_ms = _lower_quartile(self._windows[kind])
        if self._before_probe is not None:
            self._end_probe(now)
        elif now >= self._fresh_until:
            self._begin_probe(now)
        else:
            self._move(rtt_ms, self._fastest.setdefault(kind, rtt_ms))
            if rtt_ms < _CLEARLY_FASTER * self._fastest[kind]:
                self._fastest[kind] = rtt_ms

    def _move(self, rtt_ms: float, fastest: float) -> None:
        queued = 100.0 * (1.0 - fastest / rtt_ms) if rtt_ms > 0 else 0.0
        if queued > self._settings.beta:
            self._limit = max(self._floor, self._limit - 1)
        elif queued < self._settings.alpha and self._busiest >= self._limit:
            self._limit = min(self._cap, self._limit + 1)

    def _begin_probe(self, now: float) -> None:
        half = max(self._floor, self._limit // 2)
        self._before_probe, self._limit = self._limit, half
        if self._busiest <= half:
            self._end_probe(now)

    def _end_probe(self, now: float) -> None:
        if self._before_probe is not None:
            self._limit, self._before_probe = self._before_probe, None
        enough = self._settings.window // 4
        self._fastest = {kind: _lower_quartile(rtts) for kind, rtts in self._windows.items() if len(rtts) > enough}
        self._fresh_until = now + self._settings.refresh_s


#: The initial limit: any PostgreSQL can take this many calls.
_FIRST_LIMIT = 4
#: Minimum duration of a window: with a fast database it has more calls, and its quartile scatters less.
_WINDOW_S = 0.1
#: Number of windows for the fastest time: if times scatter by a fifth, the quartile of 50 has a standard error of 4
#: percent, more than alpha tolerates; that of 200 has half of it.
_CARE = 4
#: A time below this part of the fastest one means that the database became faster; a smaller difference is scatter.
_CLEARLY_FASTER = 0.85


def _lower_quartile(values: list[float]) -> float:
    return sorted(values)[len(values) // 4]
