"""Reading what a server tells Prometheus."""

import re
from collections.abc import Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scrape(http: httpx.AsyncClient) -> Samples:
    """All samples, by name and labels."""
    response = await http.get("/metrics/prometheus")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    return samples_of(response.text)


def samples_of(text: str) -> Samples:
    """The samples of a page."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def families(http: httpx.AsyncClient) -> set[str]:
    """The names of all metrics, as the lines of their types have them."""
    text = (await http.get("/metrics/prometheus")).text
    return set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """The sample with exactly these labels."""
    return samples.get((name, frozenset(labels.items())))


def total(samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float:
    """The sum of all samples that have at least these labels."""
    return sum(
        number for (own, held), number in samples.items() if own == name and labels.items() <= dict(held).items()
    )
