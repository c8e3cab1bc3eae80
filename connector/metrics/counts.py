"""The current values of all metrics, as objects of prometheus_client. Any thread may change or read them."""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.metrics_core import Metric as PrintedMetric
from prometheus_client.registry import Collector

from connector.metrics.definitions import PREFIX, Kind, Metric

MAX_TABLES: Final = 100
OTHER_TABLES: Final = "other"

Labels: TypeAlias = tuple[str, ...]
_Measured: TypeAlias = Counter | Gauge | Histogram

# A further time series for each counter says when it began.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Counts:
    """The values of all metrics since the process has started. Each gets the labels `of_session`."""

    def __init__(self, of_session: Mapping[str, str]) -> None:
        self._of_session = dict(of_session)
        self._metrics: dict[Metric, _Measured] = {}  # a metric appears with its first value
        self._replaced: dict[Metric, set[Labels]] = {}  # the labels that `replace` has set last
        self._lock = threading.Lock()

    def add(self, metric: Metric, amount: float, *labels: str) -> None:
        """Let a counter grow. An amount of 0 makes it appear."""
        counter = self._find(metric, labels)
        assert isinstance(counter, Counter)
        counter.inc(amount)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        gauge = self._find(metric, labels)
        assert isinstance(gauge, Gauge)
        gauge.set(value)

    def replace(self, metric: Metric, values: Mapping[Labels, float]) -> None:
        """Set all values of a gauge. Others of the same gauge disappear."""
        for labels, value in values.items():
            self.set(metric, value, *labels)
        with self._lock:
            gone, self._replaced[metric] = self._replaced.get(metric, set()) - values.keys(), set(values)
            for labels in gone:
                self._metrics[metric].remove(*self._of_session.values(), *labels)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Count a value in a histogram."""
        histogram = self._find(metric, labels)
        assert isinstance(histogram, Histogram)
        histogram.observe(value)

    def begin(self, metric: Metric, *labels: str) -> None:
        """Let a counter or a histogram appear with 0. Otherwise a rate would miss the first change."""
        self._find(metric, labels)

    def make_registry(self, refresh: Callable[[], None]) -> CollectorRegistry:
        """Return a registry with these metrics, and no others. `refresh` is called before each reading."""
        registry = CollectorRegistry()
        registry.register(_CountsCollector(self, refresh))
        return registry

    def read(self) -> Iterator[PrintedMetric]:
        """Yield each metric with its values."""
        with self._lock:
            metrics = list(self._metrics.values())
        for metric in metrics:
            yield from metric.collect()

    def _find(self, metric: Metric, labels: Labels) -> _Measured:
        """Return what has the value with these labels."""
        with self._lock:
            if metric not in self._metrics:
                self._metrics[metric] = _make(metric, [*self._of_session, *metric.labels])
            return self._metrics[metric].labels(*self._of_session.values(), *labels)


def _make(metric: Metric, labels: list[str]) -> _Measured:
    name = PREFIX + metric.name
    match metric.kind:
        case Kind.COUNTER:
            return Counter(name, metric.meaning, labels, unit=metric.unit, registry=None)
        case Kind.GAUGE:
            return Gauge(name, metric.meaning, labels, unit=metric.unit, registry=None)
        case Kind.HISTOGRAM:
            return Histogram(name, metric.meaning, labels, unit=metric.unit, registry=None, buckets=metric.buckets)


class _CountsCollector(Collector):
    def __init__(self, counts: Counts, refresh: Callable[[], None]) -> None:
        self._counts, self._refresh = counts, refresh

    def collect(self) -> Iterator[PrintedMetric]:
        """Yield each metric with its values."""
        self._refresh()
        return self._counts.read()


class TableLabels:
    """The tables that have a label: the first ones, up to a limit. All others share a label, so that a task with
    thousands of tables does not flood Prometheus."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tables: set[str] = set()
        self._has_others = False

    def admit(self, table: str) -> bool:
        """Note a table. Return whether its label is new."""
        if table in self._tables:
            return False
        if len(self._tables) < self._limit:
            self._tables.add(table)
            return True
        is_first, self._has_others = not self._has_others, True
        return is_first

    def find(self, table: str) -> str:
        """Return the label of a table."""
        return table if table in self._tables else OTHER_TABLES
