"""A collector of traces and metrics: takes OTLP over HTTP, in protobuf as exporters send it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """The spans and metrics that have arrived, and where to send them."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.address = f"{base}/v1/traces"
        self.metrics: dict[str, Metric] = {}
        self.spans: list[Span] = []
        self.services: set[str] = set()

    def of(self, job_id: object) -> list[Span]:
        """The spans about a job, by their start."""
        found = [span for span in self.spans if attributes(span).get("ojs.job.id") == str(job_id)]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def take_metrics(self, body: bytes) -> None:
        """Take one request with metrics."""
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in resource.scope_metrics:
                assert scope.scope.name == "django_ojs"
                self.metrics.update({metric.name: metric for metric in scope.metrics})

    def take(self, body: bytes) -> None:
        """Take one request."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services.add(plain(resource.resource.attributes)["service.name"])
            for scope in resource.scope_spans:
                assert scope.scope.name == "django_ojs"
                self.spans += scope.spans


def attributes(span: Span) -> dict[str, Any]:
    """The attributes of a span."""
    return plain(span.attributes)


def plain(pairs: Any) -> dict[str, Any]:
    """Attributes as a mapping."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in pairs}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port of the loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.headers["Content-Type"] == "application/x-protobuf"
            if self.path == "/v1/metrics":
                collector.take_metrics(body)
                answer = ExportMetricsServiceResponse().SerializeToString()
            else:
                collector.take(body)
                answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *values: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
