"""Two answers for an orchestrator's probes; neither touches the database."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_ojs.worker.runner import Runner


class HealthServer(threading.Thread):
    """``/status/started`` once executors are up, ``/status/connected`` while the database answers.

    200 or 503 with the reason. A failing database must not restart every worker, so liveness is a
    matter of ``/status/started``.
    """

    def __init__(self, port: int, runner: Runner) -> None:
        super().__init__(name="ojs-health", daemon=True)

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                checks = {
                    "/status/started": runner.started,
                    "/status/connected": runner.connected,
                }
                check = checks.get(self.path)
                status = 404 if check is None else 200 if check() else 503
                body = {200: b"ok\n", 503: b"not yet\n", 404: b"not found\n"}[status]
                self.send_response(status)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Probes are not news."""

        self._server = ThreadingHTTPServer(("", port), Answer)

    def run(self) -> None:
        """Until closed."""
        self._server.serve_forever(poll_interval=0.5)

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
