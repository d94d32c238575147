"""Converts the Prometheus metrics to OTLP, with the same names and values.

OpenTelemetry's instruments are not used: metrics would be counted and named twice, and their sums are per process,
while ours are per instance.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

Labels = frozenset[tuple[str, str]]


def metrics_data(
    families: Iterable[Family], resource: Resource, scope: InstrumentationScope, began_ns: int, now_ns: int
) -> MetricsData:
    """An export of metric families, cumulative since ``began_ns``; both times since 1970."""
    metrics = [metric for family in families if (metric := _metric(family, began_ns, now_ns)) is not None]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])


def _metric(family: Family, began_ns: int, now_ns: int) -> Metric | None:
    name = family.name
    data: Sum | Gauge | Histogram | None = None
    match family.type:
        case "counter":
            name += "_total"
            points = [_number(sample, began_ns, now_ns) for sample in family.samples if sample.name == name]
            data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True) if points else None
        case "gauge":
            points = [_number(sample, began_ns, now_ns) for sample in family.samples]
            data = Gauge(points) if points else None
        case "histogram":
            histograms = list(_histograms(family, began_ns, now_ns))
            data = Histogram(histograms, AggregationTemporality.CUMULATIVE) if histograms else None
    return None if data is None else Metric(name, family.documentation, "", data)


def _number(sample: Sample, began_ns: int, now_ns: int) -> NumberDataPoint:
    return NumberDataPoint(dict(sample.labels), began_ns, now_ns, float(sample.value))


def _histograms(family: Family, began_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """Histograms; buckets of Prometheus are cumulative, those of OpenTelemetry are not."""
    upto: defaultdict[Labels, dict[float, float]] = defaultdict(dict)
    sums: dict[Labels, float] = {}
    for sample in family.samples:
        if sample.name == f"{family.name}_bucket":
            upto[_labels(sample.labels)][float(sample.labels["le"])] = sample.value
        elif sample.name == f"{family.name}_sum":
            sums[_labels(sample.labels)] = sample.value
    for labels, buckets in upto.items():
        bounds = sorted(buckets)
        counts = [0.0, *(buckets[bound] for bound in bounds)]
        yield HistogramDataPoint(
            attributes=dict(labels), start_time_unix_nano=began_ns, time_unix_nano=now_ns, count=int(counts[-1]),
            sum=sums.get(labels, 0.0), bucket_counts=[int(after - before) for before, after in pairwise(counts)],
            explicit_bounds=bounds[:-1], min=None, max=None,  # type: ignore[arg-type]  # not measured
        )  # fmt: skip


def _labels(labels: Mapping[str, str]) -> Labels:
    return frozenset((name, value) for name, value in labels.items() if name != "le")
