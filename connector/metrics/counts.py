"""The current values of all metrics, by label. Any thread may change or read them."""

import threading
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from connector.metrics.definitions import Kind, Metric

MAX_TABLES: Final = 100
OTHER_TABLES: Final = "other"

Labels: TypeAlias = tuple[str, ...]


@dataclass
class Distribution:
    """The values of one histogram: how many fall below each bucket's bound, and their sum."""

    counts: list[int]  # one more than there are bounds: the last one has no bound
    sum: float = 0.0


@dataclass
class MetricValues:
    """All values of one metric."""

    metric: Metric
    values: dict[Labels, float] = field(default_factory=dict)
    distributions: dict[Labels, Distribution] = field(default_factory=dict)


class Counts:
    """The values of all metrics since the process has started."""

    def __init__(self) -> None:
        self._values: dict[Metric, MetricValues] = {}
        self._lock = threading.Lock()

    def add(self, metric: Metric, amount: float, *labels: str) -> None:
        """Let a counter grow. An amount of 0 makes it appear."""
        with self._lock:
            values = self._find(metric).values
            values[labels] = values.get(labels, 0) + amount

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            self._find(metric).values[labels] = value

    def replace(self, metric: Metric, values: dict[Labels, float]) -> None:
        """Set all values of a gauge. Others of the same gauge disappear."""
        with self._lock:
            self._find(metric).values = values

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Count a value in a histogram."""
        with self._lock:
            found = self._find_distribution(metric, labels)
            found.counts[bisect_left(metric.buckets, value)] += 1
            found.sum += value

    def begin(self, metric: Metric, *labels: str) -> None:
        """Let a counter or a histogram appear with 0. Otherwise a rate would miss the first change."""
        if metric.kind is Kind.COUNTER:
            self.add(metric, 0, *labels)
        else:
            with self._lock:
                self._find_distribution(metric, labels)

    def read(self) -> list[MetricValues]:
        """Return a copy of all values."""
        with self._lock:
            return [
                MetricValues(
                    each.metric,
                    dict(each.values),
                    {labels: Distribution(list(of.counts), of.sum) for labels, of in each.distributions.items()},
                )
                for each in self._values.values()
            ]

    def _find(self, metric: Metric) -> MetricValues:
        return self._values.setdefault(metric, MetricValues(metric))

    def _find_distribution(self, metric: Metric, labels: Labels) -> Distribution:
        empty = Distribution([0] * (len(metric.buckets) + 1))
        return self._find(metric).distributions.setdefault(labels, empty)


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
