"""The settings of :mod:`benchmarks.tracing` and :mod:`benchmarks.coroutines`."""

from __future__ import annotations

import os

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "benchmarks.waiting_jobs"]

if os.environ.get("OJS_BENCH_TRACED"):
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from django_ojs.observability import tracing

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(os.environ["OJS_BENCH_COLLECTOR"])))
    trace.set_tracer_provider(provider)
    tracing.instrument()
