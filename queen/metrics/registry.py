"""The metrics of an instance as one text, from any of its workers.

There are two types. Measurements of workers (histograms, with few labels) are metrics of prometheus_client in
``REGISTRY``; its multiprocess mode adds up the workers, also ended ones. Statistics of the database (of queues, which
are created and deleted) are read at each scrape and passed as families.
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
    """All measurements of the workers of this instance, and the given families."""
    scraped = CollectorRegistry(auto_describe=False)
    scraped.register(_Families(families))
    return generate_latest(_of_workers()) + generate_latest(scraped)


def measured() -> Iterable[Metric]:
    """All measurements of the workers of this instance."""
    return _of_workers().collect()


def _of_workers() -> CollectorRegistry:
    if not shared():
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry
