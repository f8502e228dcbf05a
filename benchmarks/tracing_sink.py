"""Takes what is posted to it and drops it; prints its address. For :mod:`benchmarks.tracing`."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, HTTPServer


class Sink(BaseHTTPRequestHandler):
    """Answers 200."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *values: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), Sink)
    print(f"http://127.0.0.1:{server.server_port}/v1/traces", flush=True)
    server.serve_forever()
