"""A replicated server as seen by clients: who may be written to, who can be reached, one address."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from tests.clusters.clusters import as_user, folder_of, free_port, program
from tests.support import poll

CHECK_MS = 500
"""How often the balancer asks; two refusals take a node out."""
DEFAULTS = """\
defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
  timeout check 2s
"""
_LISTEN = """\
listen {name}
  bind 127.0.0.1:{port}
  option httpchk GET /writable
  http-check expect status 200
  default-server check inter {inter} fall 2 rise {rise} on-marked-down shutdown-sessions
"""
_FIRST = " on-marked-up shutdown-backup-sessions"
"""Of those that write, when one is back: nobody stays with a server that only stood in."""


class Backend(NamedTuple):
    """A server behind the balancer: its port, and that of what says whether it is written to."""

    port: int
    status: int


class Listen(NamedTuple):
    """An address, and the servers behind it; all but ``writers`` of them only stand in for those.

    ``rise`` is how often a server has to say that it may be written to before it is.
    """

    backends: Sequence[Backend]
    writers: int | None = None
    rise: int = 1

    def configuration(self, name: str, port: int) -> str:
        """Its section for haproxy."""
        text = _LISTEN.format(name=name, port=port, inter=f"{CHECK_MS}ms", rise=self.rise)
        writers = len(self.backends) if self.writers is None else self.writers
        for number, backend in enumerate(self.backends):
            role = " backup" if number >= writers else _FIRST if writers < len(self.backends) else ""
            text += f"  server node{number} 127.0.0.1:{backend.port} port {backend.status}{role}\n"
        return text


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

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asked has not waited for the answer."""

    def close(self) -> None:
        """No more answers."""
        self.shutdown()
        self.server_close()


def missing() -> str | None:
    """Why there can be no balancer here."""
    return None if program("haproxy") else "haproxy: not installed"


class Balancer:
    """haproxy, in front of several addresses by their names."""

    def __init__(self, folder: Path, listens: Mapping[str, Listen]) -> None:
        self.ports = {name: free_port() for name in listens}
        self._folder = folder_of("nobody", folder)
        text = DEFAULTS
        for name, listen in listens.items():
            text += listen.configuration(name, self.ports[name])
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
