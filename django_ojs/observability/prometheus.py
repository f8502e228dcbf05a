"""The metrics of the database for a registry of ``prometheus_client``: for who exposes one already.

Without one, ``/metrics`` needs no library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from django_ojs.domain.exposition import Family, Histogram, number_text
from django_ojs.services import metrics


def collector(*, using: str | None = None) -> Collector:
    """A collector of what ``/metrics`` tells, to be registered: ``registry.register(collector())``.

    The database is read when the registry is collected, and not before. ``using`` is the database
    alias, by default ``OJS["DATABASE"]``. In multiprocess mode ``prometheus_client`` reads files and
    no collectors: register it with the registry that the view makes.
    """
    return _DatabaseCollector(using)


class _DatabaseCollector(Collector):
    def __init__(self, using: str | None) -> None:
        self._using = using

    def describe(self) -> Sequence[Metric]:
        """Nothing: a registry would ask the database for the names when it is set up."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Read the database."""
        return map(_metric, metrics.collect(using=self._using))


def _metric(family: Family) -> Metric:
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for values, value in sorted(family.values.items()):
            assert isinstance(value, Histogram)
            bounds = [(number_text(bound), float(count)) for bound, count in value.below]
            histogram.add_metric(values, [*bounds, ("+Inf", float(value.count))], value.sum)
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    plain = kind(family.name, family.help, labels=family.labels)
    for values, value in sorted(family.values.items()):
        assert not isinstance(value, Histogram)
        plain.add_metric(values, value)
    return plain
