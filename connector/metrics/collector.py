"""Shows the values of all metrics to prometheus_client, which prints them in the format that a scraper asks for."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as PrintedMetric
from prometheus_client.registry import Collector

from connector.metrics.counts import Counts, Distribution, MetricValues
from connector.metrics.definitions import PREFIX, Kind


class _CountsCollector(Collector):
    """All metrics of a session. Each value gets the labels `of_session`. `refresh` is called before each reading."""

    def __init__(self, counts: Counts, of_session: Mapping[str, str], refresh: Callable[[], None]) -> None:
        self._counts = counts
        self._of_session = dict(of_session)
        self._refresh = refresh

    def collect(self) -> Iterator[PrintedMetric]:
        """Yield each metric with its values."""
        self._refresh()
        names, values = [*self._of_session], [*self._of_session.values()]
        for found in self._counts.read():
            yield _print_metric(found, names, values)


def make_registry(counts: Counts, of_session: Mapping[str, str], refresh: Callable[[], None]) -> CollectorRegistry:
    """Return a registry with these metrics, and no others."""
    registry = CollectorRegistry()
    registry.register(_CountsCollector(counts, of_session, refresh))
    return registry


def _print_metric(found: MetricValues, names: list[str], values: list[str]) -> PrintedMetric:
    metric = found.metric
    name, labels = PREFIX + metric.name, [*names, *metric.labels]
    match metric.kind:
        case Kind.COUNTER:
            counter = CounterMetricFamily(name, metric.meaning, labels=labels, unit=metric.unit)
            for of, value in found.values.items():
                counter.add_metric([*values, *of], value)
            return counter
        case Kind.GAUGE:
            gauge = GaugeMetricFamily(name, metric.meaning, labels=labels, unit=metric.unit)
            for of, value in found.values.items():
                gauge.add_metric([*values, *of], value)
            return gauge
        case Kind.HISTOGRAM:
            histogram = HistogramMetricFamily(name, metric.meaning, labels=labels, unit=metric.unit)
            for of, distribution in found.distributions.items():
                histogram.add_metric([*values, *of], _cumulate(metric.buckets, distribution), distribution.sum)
            return histogram


def _cumulate(bounds: tuple[float, ...], distribution: Distribution) -> list[tuple[str, float]]:
    total, buckets = 0, []
    for bound, count in zip((*map(str, bounds), "+Inf"), distribution.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets
