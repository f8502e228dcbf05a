"""Health checks for an orchestrator's probes.

One thread serves all connections without blocking on any of them. No answer queries the database.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from django_ojs import clock

logger = logging.getLogger("django_ojs.worker")

CONNECTIONS = 16
"""Open connections at most; a further one closes the oldest, which has not sent its request yet."""
PATIENCE = 5.0
"""Seconds in which a connection must send its request and take the answer."""
_MOST_BYTES = 8192
_NO_DESCRIPTOR = 0.2
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


@dataclass(slots=True, eq=False)
class _Connection:
    sock: socket.socket
    until: float
    received: bytearray = field(default_factory=bytearray)


class HealthServer(threading.Thread):
    """Answers 200 if the check of a path in ``checks`` holds, otherwise 503. A path in ``pages`` gets
    its text.

    Reserves its descriptors when it is created, so that connections leave none short elsewhere.
    Raises ``OSError`` if it cannot listen on the address.
    """

    def __init__(
        self,
        host: str,
        port: int,
        checks: Mapping[str, Callable[[], bool]],
        pages: Mapping[str, Callable[[], str]] = {},
    ) -> None:
        super().__init__(name="ojs-health", daemon=True)
        self._checks = checks
        self._pages = pages
        self._selector = selectors.DefaultSelector()
        self._listeners = _listen(host, port)
        self._wake_end, self._wake_in = socket.socketpair()
        self._spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(CONNECTIONS)]
        self._open: list[_Connection] = []
        self._closing = False
        self._accept_after: float | None = None
        self._selector.register(self._wake_end, selectors.EVENT_READ, lambda: None)
        self._listen_again()

    def close(self) -> None:
        """Stop answering."""
        self._closing = True
        # The thread may have seen that, and closed its sockets, before it is woken.
        with contextlib.suppress(OSError):
            self._wake_in.send(b".")
        if self.is_alive():
            self.join(PATIENCE)

    def run(self) -> None:
        """Serve until closed."""
        try:
            while not self._closing:
                for key, _ in self._selector.select(self._wait()):
                    key.data()
                self._close_late(clock.boottime())
        finally:
            for connection in list(self._open):
                self._hang_up(connection)
            self._selector.close()
            for sock in (*self._listeners, self._wake_end, self._wake_in):
                sock.close()
            for descriptor in self._spare:
                os.close(descriptor)

    def _wait(self) -> float | None:
        moments = [connection.until for connection in self._open]
        if self._accept_after is not None:
            moments.append(self._accept_after)
        return max(0.0, min(moments) - clock.boottime()) if moments else None

    def _close_late(self, now: float) -> None:
        for connection in [one for one in self._open if one.until <= now]:
            self._hang_up(connection)
        if self._accept_after is not None and self._accept_after <= now:
            self._listen_again()

    # Connections.

    def _listen_again(self) -> None:
        self._accept_after = None
        for listener in self._listeners:
            call = partial(self._accept, listener)
            self._selector.register(listener, selectors.EVENT_READ, call)

    def _accept(self, listener: socket.socket) -> None:
        if len(self._open) >= CONNECTIONS:
            self._hang_up(self._open[0])
        if self._spare:
            os.close(self._spare.pop())
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            self._keep_spare()
        except OSError as error:
            # Another thread took the descriptor: pause before the next attempt.
            logger.warning("the health port cannot accept a connection: %s", error)
            self._keep_spare()
            self._accept_after = clock.boottime() + _NO_DESCRIPTOR
            for one in self._listeners:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(one)
        else:
            sock.setblocking(False)
            connection = _Connection(sock, clock.boottime() + PATIENCE)
            self._open.append(connection)
            self._selector.register(sock, selectors.EVENT_READ, partial(self._read, connection))
            # The request of a probe has usually arrived by now.
            self._read(connection)

    def _keep_spare(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._spare) + len(self._open) < CONNECTIONS:
                self._spare.append(os.open(os.devnull, os.O_RDONLY))

    def _hang_up(self, connection: _Connection) -> None:
        self._open.remove(connection)
        self._selector.unregister(connection.sock)
        connection.sock.close()
        self._keep_spare()

    # Requests and answers.

    def _read(self, connection: _Connection) -> None:
        if connection not in self._open:
            return
        try:
            received = connection.sock.recv(_MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        connection.received += received
        whole = b"\r\n\r\n" in connection.received or b"\n\n" in connection.received
        if received and (whole or len(connection.received) > _MOST_BYTES):
            # The answer fits into the empty send buffer.
            with contextlib.suppress(OSError):
                connection.sock.send(self._answer(bytes(connection.received)))
                connection.sock.shutdown(socket.SHUT_WR)
        elif received:
            return
        self._hang_up(connection)

    def _answer(self, request: bytes) -> bytes:
        words = request.split(b"\n", 1)[0].split()
        if len(words) != 3 or not words[2].startswith(b"HTTP/"):
            return _response(400, "bad request")
        method, path = words[0], words[1].split(b"?", 1)[0].decode("latin-1")
        if method not in (b"GET", b"HEAD"):
            return _response(405, "GET or HEAD")
        if path in self._pages:
            return _response(200, self._pages[path]().removesuffix("\n"), body=method == b"GET")
        check = self._checks.get(path)
        if check is None:
            text = "\n".join((*self._checks, *self._pages))
            return _response(200 if path == "/" else 404, text, body=method == b"GET")
        status, text = (200, "ok") if check() else (503, "not yet")
        return _response(status, text, body=method == b"GET")


def _response(status: int, text: str, *, body: bool = True) -> bytes:
    content = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (content if body else b"")


def _listen(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of the host: ``localhost`` has two, ``::`` accepts IPv4 too."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    trouble: OSError | None = None
    with contextlib.ExitStack() as on_failure:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError as error:
                trouble = error
                continue
            on_failure.callback(sock.close)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
            try:
                sock.bind(address)
            except OSError as error:
                if made or error.errno != errno.EADDRNOTAVAIL:
                    raise
                trouble = error
                continue
            sock.listen(1024)
            sock.setblocking(False)
            made.append(sock)
        if not made:
            raise trouble or OSError(f"{host} has no address")
        on_failure.pop_all()
    return made
