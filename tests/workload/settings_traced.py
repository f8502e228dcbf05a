"""The tests' settings, for a project that exports its traces to a collector."""

from __future__ import annotations

import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from django_ojs.observability import tracing
from tests.settings import *  # noqa: F403

provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
provider.add_span_processor(
    # Longer than any test: what arrives was flushed.
    BatchSpanProcessor(
        OTLPSpanExporter(os.environ["OJS_TEST_COLLECTOR"]), schedule_delay_millis=600_000
    )
)
trace.set_tracer_provider(provider)
tracing.instrument()
