"""The metrics of an instance as one text, whichever worker is asked.

Two kinds. What a worker measures itself (histograms, with labels of which there are few) is a metric of
prometheus_client in ``REGISTRY``; its multiprocess mode adds the workers up, also those that have died. What the
database knows better than any worker (figures of queues, which come and go) is asked for when it is scraped and
handed over as families.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from queen.metrics.directory import shared

REGISTRY = CollectorRegistry()
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def render(families: Iterable[Metric]) -> bytes:
    """Everything that the workers of this instance have measured, and these families."""
    scraped = CollectorRegistry(auto_describe=False)
    scraped.register(_Families(families))
    return generate_latest(_of_workers()) + generate_latest(scraped)


def measured() -> Iterable[Metric]:
    """Everything that the workers of this instance have measured."""
    return _of_workers().collect()


def _of_workers() -> CollectorRegistry:
    if not shared():
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry
