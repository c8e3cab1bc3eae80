"""Scrapes the metrics of a session, as Prometheus does."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.request import Request, urlopen

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from connector.metrics.definitions import ALL, PREFIX, Kind

OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TIMEOUT: Final = 10.0  # seconds
SUFFIXES: Final = {Kind.COUNTER: ("_total",), Kind.GAUGE: ("",), Kind.HISTOGRAM: ("_bucket", "_count", "_sum")}
SAMPLES: Final = {metric.name + suffix for metric in ALL for suffix in SUFFIXES[metric.kind]}


@dataclass(frozen=True)
class Scraped:
    """All samples of a scrape."""

    samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples of this name that have these labels."""
        return sum(value for value in self.values(name, **labels).values())

    def values(self, name: str, **labels: str) -> Mapping[frozenset[tuple[str, str]], float]:
        assert name in SAMPLES, name  # a misspelt name has no samples, and so the sum 0
        return {
            given: value
            for (sample, given), value in self.samples.items()
            if sample == PREFIX + name and given >= labels.items()
        }

    @property
    def labels(self) -> set[str]:
        return {name for _, given in self.samples for name, _ in given}


def scrape(address: str) -> Scraped:
    """Scrape in OpenMetrics, whose parser accepts nothing that the format forbids."""
    families = read_openmetrics(scrape_text(address, OPENMETRICS))  # type: ignore[no-untyped-call]
    return _gather(families)


def scrape_text(address: str, accept: str = "") -> str:
    with urlopen(Request(f"http://{address}/metrics", headers={"Accept": accept}), timeout=TIMEOUT) as answer:
        return str(answer.read().decode())


def read_file(text: str) -> Scraped:
    """Read the format that node-exporter reads."""
    return _gather(read_text(text))


def _gather(families: Iterable[Metric]) -> Scraped:
    return Scraped(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }
    )
