"""A server that takes what Sentry's client sends."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SentryServer:
    """The events that have arrived, and the address to send them to."""

    def __init__(self, port: int) -> None:
        self.dsn = f"http://key@127.0.0.1:{port}/1"
        self.events: list[dict[str, Any]] = []
        self.text = ""

    def of(self, job_id: object) -> list[dict[str, Any]]:
        """The events about a job."""
        return [
            one for one in self.events if one["contexts"].get("ojs", {}).get("job_id") == str(job_id)
        ]

    def take(self, envelope: bytes) -> None:
        """Take the events of an envelope: a line of JSON, then items, each with a line of its own."""
        self.text += envelope.decode()
        _, rest = envelope.split(b"\n", 1)
        while rest.strip():
            head, rest = rest.split(b"\n", 1)
            header = json.loads(head)
            size = header.get("length", rest.find(b"\n"))
            payload, rest = rest[:size], rest[size + 1 :]
            if header["type"] == "event":
                self.events.append(json.loads(payload))


@contextmanager
def sentry_server() -> Iterator[SentryServer]:
    """A server on a free port of the loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            server.take(body)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *values: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server = SentryServer(listening.server_port)
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
