"""The metrics of the database as OpenTelemetry's, under the names of the specification (OJS timeouts
11.2, OJS observability 4).

They are what ``/metrics`` tells: nothing is counted a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from django_ojs import __version__, clock
from django_ojs.domain.exposition import Family, Histogram
from django_ojs.services import metrics

_SPELLED = {
    "ojs_job_enqueue_wait_time_seconds": "ojs.job.enqueue.wait_time",
    "ojs_job_queue_time_seconds": "ojs.job.queue_time",
    "ojs_queue_oldest_wait_seconds": "ojs.queue.oldest_wait",
}
"""Names in which not every underscore is a dot."""
_UNKNOWN = 0
"""The start of what is counted since the first job: OTLP's value for a start that is not known."""


def send(
    exporter: MetricExporter, *, using: str | None = None, resource: Resource | None = None
) -> int:
    """Read the metrics of the database and export them once; returns how many there are.

    One process shall do that, each minute or so. ``resource`` is by default what the environment
    says (``OTEL_SERVICE_NAME``). Raises ``ConnectionError`` if the exporter could not deliver them.
    """
    found = [_metric(family) for family in metrics.collect(using=using)]
    scope = ScopeMetrics(InstrumentationScope("django_ojs", __version__), found, "")
    whole = MetricsData([ResourceMetrics(resource or Resource.create(), [scope], "")])
    if exporter.export(whole) is not MetricExportResult.SUCCESS:
        raise ConnectionError("the exporter could not deliver the metrics")
    return len(found)


def name_of(family: Family) -> str:
    """The name with dots, without the unit, which OpenTelemetry keeps apart."""
    plain = family.name.removesuffix("_total").removesuffix("_seconds")
    return _SPELLED.get(family.name, plain.replace("_", "."))


def _metric(family: Family) -> Metric:
    unit = "s" if family.name.endswith("_seconds") else "1"
    cumulative = AggregationTemporality.CUMULATIVE
    data: Sum | Gauge | export.Histogram
    if family.kind == "histogram":
        data = export.Histogram(list(_histograms(family)), cumulative)
    elif family.kind == "counter":
        data = Sum(list(_numbers(family)), cumulative, is_monotonic=True)
    else:
        data = Gauge(list(_numbers(family)))
    return Metric(name_of(family), family.help, unit, data)


def _numbers(family: Family) -> Iterator[NumberDataPoint]:
    for values, value in sorted(family.values.items()):
        assert not isinstance(value, Histogram)
        yield NumberDataPoint(_labels(family, values), _UNKNOWN, _now(), value)


def _histograms(family: Family) -> Iterator[HistogramDataPoint]:
    for values, value in sorted(family.values.items()):
        assert isinstance(value, Histogram)
        below = [0, *(count for _, count in value.below), value.count]
        yield HistogramDataPoint(
            attributes=_labels(family, values),
            start_time_unix_nano=_UNKNOWN,
            time_unix_nano=_now(),
            count=value.count,
            sum=value.sum,
            bucket_counts=[more - less for less, more in pairwise(below)],
            explicit_bounds=[bound for bound, _ in value.below],
            # Optional in OTLP, and not known.
            min=None,  # type: ignore[arg-type]
            max=None,  # type: ignore[arg-type]
        )


def _labels(family: Family, values: Sequence[str]) -> dict[str, str]:
    return dict(zip(family.labels, values, strict=True))


def _now() -> int:
    return int(clock.host_time().timestamp() * 1e9)
