"""A replicated server as seen by clients: who may be written to, who can be reached, one address."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.clusters.clusters import as_user, folder_of, free_port, program
from tests.support import poll

CHECK_MS = 500
"""How often the balancer asks; two refusals take a node out, one answer takes it in."""
_CONFIGURATION = """\
defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
  timeout check 1s
"""
_LISTEN = """\
listen {name}
  bind 127.0.0.1:{port}
  option httpchk GET /writable
  http-check expect status 200
  default-server inter {inter} fall 2 rise 1 on-marked-down shutdown-sessions
"""


class Status(ThreadingHTTPServer):
    """What runs beside a node and tells the balancer whether to send writers there: 200 or 503.

    As the REST API of Patroni, which knows the leader by its own lease and not from the server.
    """

    daemon_threads = True

    def __init__(self, writable: Callable[[], bool]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if writable() else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        super().__init__(("127.0.0.1", 0), Handler)
        self.port = int(self.server_address[1])
        threading.Thread(target=self.serve_forever, daemon=True, name="status").start()

    def close(self) -> None:
        """No more answers."""
        self.shutdown()
        self.server_close()


def missing() -> str | None:
    """Why there can be no balancer here."""
    return None if program("haproxy") else "haproxy: not installed"


class Balancer:
    """haproxy. ``listens`` are addresses; of each the nodes as (port, port of its status), and whether
    the others only stand in for the first.
    """

    def __init__(
        self, folder: Path, listens: dict[str, list[tuple[int, int]]], *, backup: bool
    ) -> None:
        self.ports = {name: free_port() for name in listens}
        self._folder = folder_of("nobody", folder)
        text = _CONFIGURATION
        for name, nodes in listens.items():
            text += _LISTEN.format(name=name, port=self.ports[name], inter=CHECK_MS)
            for number, (port, status) in enumerate(nodes):
                last = " backup" if backup and number else ""
                text += f"  server node{number} 127.0.0.1:{port} check port {status}{last}\n"
        (self._folder / "haproxy.cfg").write_text(text)
        (self._folder / "haproxy.cfg").chmod(0o644)

    @contextmanager
    def running(self) -> Iterator[None]:
        """From when it lets clients through to the end of the block."""
        with (self._folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(program("haproxy")), "-db", "-f", str(self._folder / "haproxy.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **as_user("nobody"),
            )
        try:
            poll(lambda: process.poll() is not None or self._listening())
            assert process.poll() is None, (self._folder / "log").read_text()
            yield
        finally:
            process.kill()
            process.wait(10)

    def _listening(self) -> bool:
        import socket

        try:
            for port in self.ports.values():
                socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True
