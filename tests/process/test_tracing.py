"""Traces of real workers, as a collector gets them."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from django_ojs import api
from django_ojs.observability import tracing
from tests.observability.collector import Collector, attributes, collecting
from tests.process.tools import Diary, Flag, StartWorker, failed, in_state
from tests.support import AnyJob, not_none, poll
from tests.workload import jobs
from tests.workload.tools import AT_ONCE, LATER

pytestmark = pytest.mark.process


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture
def traced(collector: Collector) -> dict[str, str]:
    """The environment of a worker that exports its spans."""
    return {
        "DJANGO_SETTINGS_MODULE": "tests.workload.settings_traced",
        "OJS_TEST_COLLECTOR": collector.address,
        "NO_PROXY": "127.0.0.1",
    }


@pytest.fixture
def enqueued() -> Iterator[InMemorySpanExporter]:
    """The spans of this process, which enqueues."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.instrument(provider)
    try:
        yield exporter
    finally:
        tracing.uninstrument()
        provider.shutdown()


def producer(enqueued: InMemorySpanExporter, job: AnyJob) -> tuple[bytes, bytes]:
    """The trace and the span in which a job was enqueued."""
    (span,) = [
        one
        for one in enqueued.get_finished_spans()
        if (one.attributes or {}).get("ojs.job.id") == str(job.id)
    ]
    where = not_none(span.context)
    return where.trace_id.to_bytes(16, "big"), where.span_id.to_bytes(8, "big")


def check(span: Span, job: AnyJob, sender: tuple[bytes, bytes], attempt: int) -> None:
    """It is the CONSUMER span of an attempt: a root of its own, linked to the producer."""
    assert (span.name, span.kind) == ("default process", Span.SPAN_KIND_CONSUMER)
    assert span.parent_span_id == b""
    assert span.trace_id != sender[0]
    assert [(link.trace_id, link.span_id) for link in span.links] == [sender]
    found = attributes(span)
    assert found["messaging.system"] == "ojs"
    assert (found["messaging.operation.type"], found["messaging.operation.name"]) == ("process",) * 2
    assert (found["ojs.job.type"], found["ojs.job.attempt"]) == (job.type, attempt)
    assert span.end_time_unix_nano > span.start_time_unix_nano


def test_spans_of_success_failure_and_retry(
    worker: StartWorker,
    collector: Collector,
    traced: dict[str, str],
    enqueued: InMemorySpanExporter,
) -> None:
    done = jobs.echo.enqueue(1)
    retried = jobs.raise_text.using(retry={**AT_ONCE, "max_attempts": 2}).enqueue(1)
    runner = worker(**traced)
    in_state(done, "completed")
    in_state(retried, "discarded")
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0
    (span,) = collector.of(done.id)
    check(span, done, producer(enqueued, done), 1)
    assert span.status.code == Status.STATUS_CODE_UNSET
    spans = collector.of(retried.id)
    assert len(spans) == 2
    for number, span in enumerate(spans, 1):
        check(span, retried, producer(enqueued, retried), number)
        assert span.status.code == Status.STATUS_CODE_ERROR
        assert [event.name for event in span.events] == ["exception"]
        assert "error.type" in attributes(span)
    assert spans[0].trace_id != spans[1].trace_id
    assert collector.services == {"shop"}


def test_the_worker_ends_the_span_of_what_is_killed(
    worker: StartWorker,
    diary: Diary,
    collector: Collector,
    traced: dict[str, str],
    enqueued: InMemorySpanExporter,
) -> None:
    killed = jobs.swallow.enqueue(diary.path)
    crashed = jobs.exit_now.using(retry=LATER).enqueue(3)
    runner = worker("--concurrency=2", **traced)
    assert failed(killed)["timeout_kind"] == "execution"
    failed(crashed)
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0
    (span,) = collector.of(killed.id)
    check(span, killed, producer(enqueued, killed), 1)
    assert (span.status.code, span.status.message) == (Status.STATUS_CODE_ERROR, "timeout")
    found = attributes(span)
    assert (found["ojs.timeout_kind"], found["ojs.killed"]) == ("execution", True)
    assert found["ojs.worker.id"]
    took = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    assert took >= 4, "the timeout of the job"
    (span,) = collector.of(crashed.id)
    check(span, crashed, producer(enqueued, crashed), 1)
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert "exited with status 3" in span.status.message
    assert attributes(span)["error.type"] == "crash"


def test_a_job_that_is_cancelled_is_no_error(
    worker: StartWorker,
    diary: Diary,
    flag: Flag,
    collector: Collector,
    traced: dict[str, str],
    enqueued: InMemorySpanExporter,
) -> None:
    job = jobs.hold.using(heartbeat_timeout=2, grace_period=60).enqueue(diary.path, flag.path)
    runner = worker(**traced)
    diary.wait("started")
    api.cancel(job)
    poll(lambda: f"soft stop of work.hold {job.id}: cancelled" in runner.stderr)
    runner.send(signal.SIGTERM)
    assert runner.wait() == 0
    (span,) = collector.of(job.id)
    check(span, job, producer(enqueued, job), 1)
    assert span.status.code == Status.STATUS_CODE_OK
    assert attributes(span)["ojs.stop_reason"] == "cancelled"
