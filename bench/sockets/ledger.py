"""The stored and delivered messages: recorded during the load, judged afterwards."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from bench.load.generator import Outcome
from bench.load.results import Latency, Moment

_MS = 1e6
_FIGURES = ("median", "p90", "p95", "p99", "p999")
_PARTS = (0.5, 0.9, 0.95, 0.99, 0.999)


class Ledger:
    """Times are nanoseconds of a monotonic clock.

    Attributes:
        stored: numbers of messages by the unit of order: a partition, or a queue.
        came: of each delivery the lane in which messages keep their order (a partition, or a consumer), the message's
            position there, its number, when it was due, and when it came.
        pushes: when each push was due, and when it was answered.
        acks: when each ack was sent, and when it was answered; empty if acks have no answers.
        acked: messages whose ack was answered, or sent if there are no answers.
        problems: errors other than lost, duplicate or reordered messages.
    """

    def __init__(self) -> None:
        self.stored: dict[str, list[int]] = defaultdict(list)
        self.came: list[tuple[str, int, int, int, int]] = []
        self.pushes: list[tuple[int, int]] = []
        self.acks: list[tuple[int, int]] = []
        self.prepared = self.acked = 0
        self.problems: Counter[str] = Counter()
        self.began = self.ended = 0

    @property
    def delivered(self) -> int:
        """The delivered messages."""
        return len(self.came)

    def crossed(self, *, all_of_them: bool, ordered: bool) -> list[str]:
        """The violations.

        Args:
            all_of_them: every stored message must be delivered; else those stored before the last delivered one.
            ordered: messages were stored in the order of their numbers in every partition.
        """
        found = Counter(number for _, _, number, _, _ in self.came)
        stored = {number for numbers in self.stored.values() for number in numbers}
        counts = {
            "lost": sum(1 for number in self._wanted(found, all_of_them=all_of_them) if number not in found),
            "delivered twice": found.total() - len(found),
            "delivered but never stored": len(found.keys() - stored),
            "not in order": self._disorder(ordered=ordered),
        }
        texts = [f"messages {what}: {count:,}" for what, count in counts.items() if count]
        return texts + [f"{text}: {count:,}" for text, count in self.problems.items()]

    def _wanted(self, found: Counter[int], *, all_of_them: bool) -> Iterator[int]:
        for numbers in self.stored.values():
            last = next((n for n in range(len(numbers), 0, -1) if numbers[n - 1] in found), 0)
            yield from numbers if all_of_them else numbers[:last]

    def _disorder(self, *, ordered: bool) -> int:
        lanes: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for lane, position, number, _, _ in self.came:
            lanes[lane].append((position, number))
        return sum(
            1
            for places in lanes.values()
            for before, after in pairwise(places)
            if after[0] <= before[0] or (ordered and after[1] <= before[1])
        )

    def outcome(self, crossed: Sequence[str], period_s: int, wall_ns: int, *, live: bool) -> Outcome:
        """The figures.

        Args:
            crossed: thresholds that did not hold.
            period_s: seconds per point of a plot.
            wall_ns: offset from times of the clock to times since 1970.
            live: messages were due at certain times, so latency is meaningful.
        """
        spans = {"push": self.pushes, "ack": self.acks}
        if live:
            spans["end_to_end"] = [(due, now) for _, _, _, due, now in self.came]
        return Outcome(
            pushed=len(self.pushes), prepared=self.prepared, delivered=self.delivered, acked=self.acked, dropped=0,
            began_ms=(self.began + wall_ns) / _MS, ended_ms=(self.ended + wall_ns) / _MS,
            latency={name: latency(some) for name, some in spans.items() if some},
            moments=[each for name, some in spans.items() for each in moments(name, some, self.began, period_s)],
            crossed=crossed,
        )  # fmt: skip


def latency(spans: Iterable[tuple[int, int]]) -> Latency:
    """Percentiles of times between two moments."""
    times = sorted((end - begin) / _MS for begin, end in spans)
    figures = {name: times[int(part * (len(times) - 1))] for name, part in zip(_FIGURES, _PARTS, strict=True)}
    return Latency(len(times), longest=times[-1], **figures)


def moments(operation: str, spans: Iterable[tuple[int, int]], began: int, period_s: int) -> Iterator[Moment]:
    """The same for each period, by the time at which a span ends."""
    periods: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for span in spans:
        periods[(span[1] - began) // (period_s * 1_000_000_000)].append(span)
    for number, some in sorted(periods.items()):
        found = latency(some)
        yield Moment(float(number * period_s), operation, found.median, found.p99)
