"""Counters, gauges and histograms as plain values that a snapshot can keep."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.utils import floatToGoString

from resilin.runtime.metrics_catalogue import METRICS, Metric, constant_labels

__all__ = ["Histogram", "Numbers", "families"]

_BY_NAME = {metric.name: metric for metric in METRICS}
_SEPARATOR = "\t"  # no identifier and no label of the catalogue holds one


@dataclass(slots=True)
class Histogram:
    """How often a value fell into each bucket, the last one open, and the sum of all."""

    counts: list[int]
    sum: float = 0.0


@dataclass(slots=True)
class Numbers:
    """The values of some metrics, by the metric's name and its labels' values.

    Attributes:
        values: Counters and gauges.
        histograms: Histograms.
    """

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    histograms: dict[str, dict[str, Histogram]] = field(default_factory=dict)

    def begin(self, metrics: Iterable[Metric]) -> None:
        """Let what is known beforehand be there, at zero; what is there already stays."""
        for metric in metrics:
            for labels in metric.start:
                if metric.kind == "histogram":
                    self._histogram(metric.name, labels)
                else:
                    self.values.setdefault(metric.name, {}).setdefault(_key(labels), 0.0)

    def add(self, name: str, *labels: str, by: float = 1.0) -> None:
        """Count something."""
        series = self.values.setdefault(name, {})
        key = _key(labels)
        series[key] = series.get(key, 0.0) + by

    def put(self, name: str, *labels: str, value: float) -> None:
        """Say how much there is of something."""
        self.values.setdefault(name, {})[_key(labels)] = value

    def observe(self, name: str, *labels: str, value: float) -> None:
        """Add a value to a histogram."""
        histogram = self._histogram(name, labels)
        # A bucket holds what is less than or equal to its bound.
        histogram.counts[bisect_left(_BY_NAME[name].buckets, value)] += 1
        histogram.sum += value

    def _histogram(self, name: str, labels: tuple[str, ...]) -> Histogram:
        series = self.histograms.setdefault(name, {})
        key = _key(labels)
        found = series.get(key)
        if found is None:
            found = series[key] = Histogram([0] * (len(_BY_NAME[name].buckets) + 1))
        return found

    def value(self, name: str, *labels: str) -> float:
        """Return a counter or gauge; 0 for one that has no value."""
        return self.values.get(name, {}).get(_key(labels), 0.0)

    def total(self, name: str) -> float:
        """Return the sum of a counter or gauge over its labels."""
        return sum(self.values.get(name, {}).values())


def _key(labels: tuple[str, ...]) -> str:
    return _SEPARATOR.join(labels)


def families(
    metrics: Iterable[Metric], numbers: Numbers, constants: tuple[str, ...]
) -> Iterator[Family]:
    """Yield metrics as Prometheus' client takes them.

    Args:
        metrics: Which ones, all of owners with the same constant labels.
        numbers: Their values.
        constants: The values of the constant labels.
    """
    for metric in metrics:
        names = [*constant_labels(metric.owner), *metric.labels]
        if metric.kind == "histogram":
            yield _histogram_family(metric, names, numbers, constants)
            continue
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=names)
        for key, value in numbers.values.get(metric.name, {}).items():
            family.add_metric([*constants, *_labels(metric, key)], value)
        yield family


def _histogram_family(
    metric: Metric, names: list[str], numbers: Numbers, constants: tuple[str, ...]
) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=names)
    bounds = [*map(floatToGoString, metric.buckets), "+Inf"]
    for key, histogram in numbers.histograms.get(metric.name, {}).items():
        buckets = list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
        family.add_metric([*constants, *_labels(metric, key)], buckets, histogram.sum)
    return family


def _labels(metric: Metric, key: str) -> list[str]:
    return key.split(_SEPARATOR) if metric.labels else []
