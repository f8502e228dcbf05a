"""Spans in this process: names, attributes, what a job carries."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as contexts
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from django_ojs import Duplicate, api, clock, enqueue, enqueue_many
from django_ojs.handlers import execution
from django_ojs.handlers.context import JobContext
from django_ojs.models import Job
from django_ojs.observability import logs, tracing
from tests.support import not_none

pytestmark = pytest.mark.usefixtures("ojs_db")
CLIENT = f"00-{'a1' * 16}-{'b2' * 8}-01"


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    made = TracerProvider(shutdown_on_exit=False)
    tracing.instrument(made)
    yield made
    tracing.uninstrument()
    made.shutdown()


@pytest.fixture
def exporter(provider: TracerProvider) -> InMemorySpanExporter:
    made = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(made))
    return made


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def parent_in(span: ReadableSpan) -> str:
    where = not_none(span.context)
    return f"00-{where.trace_id:032x}-{where.span_id:016x}-{where.trace_flags:02x}"


def context_of(meta: dict[str, Any]) -> JobContext:
    return JobContext(
        cast(Any, None),
        id="job",
        type="test.job",
        queue="default",
        attempt=2,
        max_attempts=3,
        meta=meta,
        args=[],
        last_checkpoint=None,
        deadline=datetime(2030, 1, 1, tzinfo=UTC),
    )


def test_one_job(exporter: InMemorySpanExporter) -> None:
    job = enqueue("test.job", queue="mail", meta={"mine": 1})
    span = only(exporter)
    assert (span.name, span.kind) == ("mail enqueue", SpanKind.PRODUCER)
    assert dict(not_none(span.attributes)) == {
        "messaging.system": "ojs",
        "messaging.destination.name": "mail",
        "messaging.operation.type": "publish",
        "messaging.operation.name": "enqueue",
        "messaging.message.id": str(job.id),
        "ojs.job.id": str(job.id),
        "ojs.job.type": "test.job",
    }
    assert api.get(job).meta == {"mine": 1, "traceparent": parent_in(span)}


def test_many_jobs_are_one_span(exporter: InMemorySpanExporter) -> None:
    made = enqueue_many("test.job", [[number] for number in range(20)])
    span = only(exporter)
    assert not_none(span.attributes)["messaging.batch.message_count"] == 20
    assert {one.meta["traceparent"] for one in made} == {parent_in(span)}
    assert Job.objects.count() == 20


def test_it_is_a_child_of_what_enqueues_and_takes_its_baggage(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    token = contexts.attach(baggage.set_baggage("tenant", "acme"))
    try:
        with provider.get_tracer("test").start_as_current_span("request"):
            job = enqueue("test.job")
    finally:
        contexts.detach(token)
    span, request = exporter.get_finished_spans()
    assert not_none(span.parent).span_id == not_none(request.context).span_id
    assert job.meta["baggage"] == "tenant=acme"


def test_what_the_client_has_traced_stays(exporter: InMemorySpanExporter) -> None:
    assert enqueue("test.job", meta={"traceparent": CLIENT}).meta == {"traceparent": CLIENT}


def test_a_full_meta_is_stored_as_it_is(exporter: InMemorySpanExporter) -> None:
    meta = {"text": "x" * (65536 - 12)}
    assert enqueue("test.job", meta=meta).meta == meta


def test_a_repeated_request_is_the_same_job(exporter: InMemorySpanExporter) -> None:
    job_id = clock.new_id()
    first, again = (enqueue("test.job", [1], id=job_id) for _ in range(2))
    assert first.id == again.id
    assert first.meta == again.meta
    with pytest.raises(Duplicate):
        enqueue("test.job", [2], id=job_id)
    codes = [span.status.status_code for span in exporter.get_finished_spans()]
    assert codes == [StatusCode.UNSET, StatusCode.UNSET, StatusCode.ERROR]


def test_an_attempt_is_a_trace_of_its_own_with_a_link(exporter: InMemorySpanExporter) -> None:
    seen: list[Any] = []

    def handle(context: JobContext) -> None:
        seen.append((baggage.get_baggage("tenant"), logs.job_fields()))

    context = context_of({"traceparent": CLIENT, "baggage": "tenant=acme", "other": [1]})
    execution.running.set(context)
    try:
        execution.run(context, handle)
    finally:
        execution.running.set(None)
    span = only(exporter)
    assert (span.name, span.kind, span.parent) == ("default process", SpanKind.CONSUMER, None)
    (link,) = span.links
    assert f"00-{link.context.trace_id:032x}-{link.context.span_id:016x}-01" == CLIENT
    trace_id = f"{not_none(span.context).trace_id:032x}"
    fields = {"job_id": "job", "job_type": "test.job", "attempt": 2, "trace_id": trace_id}
    assert seen == [("acme", fields)]
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("meta", [{}, {"traceparent": 7}, {"traceparent": "00-no-no-00"}])
def test_without_a_context_there_is_no_link(exporter: InMemorySpanExporter, meta: Any) -> None:
    execution.run(context_of(meta), lambda context: None)
    assert only(exporter).links == ()


def test_a_failure_is_an_error_with_its_exception(exporter: InMemorySpanExporter) -> None:
    def handle(context: JobContext) -> None:
        raise LookupError("no such month")

    with pytest.raises(LookupError):
        execution.run(context_of({}), handle)
    span = only(exporter)
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "LookupError: no such month"
    assert not_none(span.attributes)["error.type"] == "LookupError"
    assert [event.name for event in span.events] == ["exception"]


@pytest.mark.parametrize("words", ["messaging", "http, messaging/dup"])
def test_the_stable_conventions_can_be_chosen(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", words)
    chosen = tracing.Conventions()
    assert chosen.name("process", "mail") == "process mail"
    assert chosen.attributes("enqueue", "mail", "test.job")["messaging.operation.type"] == "send"


def test_a_second_call_changes_nothing(provider: TracerProvider) -> None:
    tracing.instrument()
    assert api.enqueue_middleware.names() == api.execution_middleware.names() == ["tracing"]
    tracing.uninstrument()
    assert api.enqueue_middleware.names() == api.execution_middleware.names() == []
