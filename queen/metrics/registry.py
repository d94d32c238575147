"""The metrics of an instance as one text, from any of its workers.

There are two types. Measurements of workers (histograms, with few labels) are metrics of prometheus_client in
``REGISTRY``; its multiprocess mode adds up the workers, also ended ones. Statistics of the database (of queues, which
are created and deleted) are read at each scrape and passed as families.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence

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


def render(families: Iterable[Metric], beginnings: Sequence[str] | None = None) -> bytes:
    """All measurements of the workers of this instance, and the given families.

    Args:
        families: of the database.
        beginnings: only metrics whose name begins with one of these.
    """
    scraped = CollectorRegistry(auto_describe=False)
    found = itertools.chain(_of_workers().collect(), families)
    scraped.register(_Families(found if beginnings is None else _named(found, tuple(beginnings))))
    return generate_latest(scraped)


def _named(families: Iterable[Metric], beginnings: tuple[str, ...]) -> Iterator[Metric]:
    for family in families:
        if any(sample.name.startswith(beginnings) for sample in family.samples[:1]):
            yield family


def measured() -> Iterable[Metric]:
    """All measurements of the workers of this instance."""
    return _of_workers().collect()


def _of_workers() -> CollectorRegistry:
    if not shared():
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry
