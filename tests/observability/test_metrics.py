"""The metrics of the database, as others want them: ``prometheus_client``, OTLP."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.core.management import CommandError, call_command
from django.db import DEFAULT_DB_ALIAS, connection
from django.test.utils import CaptureQueriesContext
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from django_ojs import clock
from django_ojs.api import enqueue, new_id
from django_ojs.domain import exposition
from django_ojs.models import RateLimit, RateLimitPlace
from django_ojs.observability import otel_metrics, prometheus
from django_ojs.services import metrics, totals
from django_ojs.services.totals import Increments, Key, Metric
from tests.observability.collector import Collector, collecting, plain


@pytest.fixture
def counted(ojs_db: None) -> None:
    """A job that waits, three that completed, and a timeout."""
    enqueue("a.job", queue="mail")
    increments = Increments()
    increments[Key(Metric.COMPLETED, "mail", "a.job")].add(3)
    increments[Key(Metric.TIMEOUT, "mail", "a.job", "execution")].add(1)
    for place, count, ran_ms in ((0, 2, 6), (8, 1, 450)):
        increments[Key(Metric.EXECUTION, "mail", "a.job", "completed")].add_to(place, count, ran_ms)
    totals.store(increments, using=DEFAULT_DB_ALIAS)


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector of OTLP."""
    with collecting() as found:
        yield found


def samples(text: str) -> set[tuple[str, frozenset[tuple[str, str]], float]]:
    """All samples of an exposition but those that are ages."""
    return {
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "_age_" not in sample.name and "_wait_seconds" not in sample.name
    }


@pytest.mark.usefixtures("counted")
def test_a_registry_tells_what_the_page_tells() -> None:
    registry = CollectorRegistry()
    registry.register(prometheus.collector())
    found = samples(generate_latest(registry).decode())
    assert found == samples(exposition.render(metrics.collect()))
    labels = {("timeout_kind", "execution"), ("queue", "mail"), ("job_type", "a.job")}
    assert ("ojs_job_timeout_count_total", frozenset(labels), 1.0) in found
    labels = {("queue", "mail"), ("job_type", "a.job"), ("outcome", "completed"), ("le", "+Inf")}
    assert ("ojs_job_execution_duration_seconds_bucket", frozenset(labels), 3.0) in found


@pytest.mark.usefixtures("ojs_db")
def test_registering_asks_the_database_nothing() -> None:
    with CaptureQueriesContext(connection) as asked:
        CollectorRegistry().register(prometheus.collector())
    assert len(asked) == 0


@pytest.mark.every_database
@pytest.mark.usefixtures("counted")
def test_a_scrape_takes_eleven_statements_however_many_keys_are_full() -> None:
    keys = [f"key-{number}" for number in range(20)]
    RateLimit.objects.bulk_create([RateLimit(key=key, exceeded=True) for key in keys])
    status, now = RateLimitPlace.Status, clock.now(DEFAULT_DB_ALIAS)
    standing = [status.WAITING] * 3 + [status.RUNNING, status.ENDING, status.ADMITTED, status.IDLE]
    RateLimitPlace.objects.bulk_create(
        [
            RateLimitPlace(key=key, status=one, enqueued_at=now, job_id=new_id(), queue="mail")
            for key in keys
            for one in standing
        ]
    )
    with CaptureQueriesContext(connection) as asked:
        found = {family.name: family.values for family in metrics.collect()}
    assert len(asked) == 11
    assert found["ojs_rate_limit_waiting"] == {(key,): 3 for key in keys}
    assert found["ojs_rate_limit_running"] == {(key,): 2 for key in keys}


@pytest.mark.slow
@pytest.mark.usefixtures("counted")
def test_otlp_has_the_names_of_the_specification(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.base)
    call_command("ojs", "metrics", "--otlp")
    found = collector.metrics
    assert capsys.readouterr().out == f"metrics sent: {len(found)}\n"
    seeded = {"timeout.count", "execution.duration", "heartbeat.age", "enqueue.wait_time"}
    assert {f"ojs.job.{name}" for name in seeded} <= set(found)
    (timeout,) = found["ojs.job.timeout.count"].sum.data_points
    assert (timeout.as_int, plain(timeout.attributes)) == (
        1,
        {"timeout_kind": "execution", "queue": "mail", "job_type": "a.job"},
    )
    assert found["ojs.job.timeout.count"].sum.is_monotonic
    duration = found["ojs.job.execution.duration"]
    assert duration.unit == "s"
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert duration.histogram.aggregation_temporality == cumulative
    (point,) = duration.histogram.data_points
    assert (point.count, point.sum, point.bucket_counts[0]) == (3, 0.456, 2)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert sum(point.bucket_counts) == 3
    (depth,) = [
        point.as_int
        for point in found["ojs.queue.depth"].gauge.data_points
        if plain(point.attributes) == {"queue": "mail", "state": "available"}
    ]
    assert depth == 1


@pytest.mark.usefixtures("counted")
def test_names_have_dots_and_no_units() -> None:
    names = [otel_metrics.name_of(family) for family in metrics.collect()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"ojs(\.[a-z]+)+(_wait|_time)?", name) for name in names), names


@pytest.mark.usefixtures("ojs_db")
def test_a_collector_that_does_not_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    with pytest.raises(CommandError, match="--otlp: the exporter could not deliver the metrics"):
        call_command("ojs", "metrics", "--otlp")
