"""The server for probes: every kind of request, one connection at a time, in bounds."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from django_ojs.worker.supervisor import probes
from django_ojs.worker.supervisor.probes import CONNECTIONS, HealthServer
from tests.support import poll

Ask = Callable[[bytes], bytes]


@pytest.fixture
def server() -> Iterator[HealthServer]:
    """One whose database is away, on a free port."""
    checks = {"/status/started": lambda: True, "/status/connected": lambda: False}
    made = HealthServer("127.0.0.1", 0, checks, {"/metrics": lambda: "a 1\n"})
    made.start()
    yield made
    made.close()
    assert not made.is_alive()


def connected(server: HealthServer) -> socket.socket:
    """A connection to it."""
    return socket.create_connection(server._listeners[0].getsockname(), timeout=10)


def heard(line: socket.socket) -> bytes:
    """What comes until the other end closes."""
    text = b""
    with line:
        while part := line.recv(65536):
            text += part
    return text


@pytest.fixture
def ask(server: HealthServer) -> Ask:
    """The answer to a request."""

    def send(request: bytes) -> bytes:
        line = connected(server)
        line.sendall(request)
        return heard(line)

    return send


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /status/started HTTP/1.1", b"200", b"ok\n"),
        (b"GET /status/connected?full=1 HTTP/1.0", b"503", b"not yet\n"),
        (b"HEAD /status/started HTTP/1.1", b"200", b""),
        (b"HEAD /status/connected HTTP/1.1", b"503", b""),
        (b"GET / HTTP/1.1", b"200", b"/status/started\n/status/connected\n/metrics\n"),
        (b"GET /metrics HTTP/1.1", b"200", b"a 1\n"),
        (b"HEAD /metrics HTTP/1.1", b"200", b""),
        (b"GET /other HTTP/1.1", b"404", b"/status/started\n/status/connected\n/metrics\n"),
        (b"POST /status/started HTTP/1.1", b"405", b"GET or HEAD\n"),
        (b"\x16\x03\x01 hello", b"400", b"bad request\n"),
    ],
)
def test_answers(ask: Ask, request_line: bytes, status: bytes, body: bytes) -> None:
    head, _, content = ask(request_line + b"\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert content == body
    assert b"Server" not in head and b"Python" not in head


def test_a_request_in_parts(server: HealthServer) -> None:
    line = connected(server)
    for part in (b"GET /status/sta", b"rted HTTP/1.1\r\nHost", b": x\r\n\r\n"):
        line.sendall(part)
    assert heard(line).startswith(b"HTTP/1.1 200")


def test_beyond_the_limit_the_oldest_is_closed(server: HealthServer, ask: Ask) -> None:
    with ExitStack() as stack:
        lines = [stack.enter_context(connected(server)) for _ in range(CONNECTIONS + 3)]
        for line in lines[:3]:
            assert heard(line) == b""
        # The last may not have been accepted yet.
        poll(lambda: len(server._open) == CONNECTIONS)
        assert ask(b"GET /status/started HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200")
    poll(lambda: not server._open)


def test_nobody_is_waited_for_beyond_the_patience(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "PATIENCE", 0.2)
    line = connected(server)
    line.sendall(b"GET /status/started HTTP/1.1\r\nX: ")
    since = time.monotonic()
    assert heard(line) == b""
    assert time.monotonic() - since >= 0.1


@pytest.mark.parametrize(
    ("host", "families"),
    [
        ("localhost", {info[0] for info in socket.getaddrinfo("localhost", None)}),
        ("::", {socket.AF_INET, socket.AF_INET6}),
        ("::1", {socket.AF_INET6}),
        ("127.0.0.1", {socket.AF_INET}),
    ],
)
def test_both_families(host: str, families: set[int]) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = HealthServer(host, port, {"/status/started": lambda: True})
    server.start()
    try:
        for address, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
            with socket.socket(family) as line:
                assert (line.connect_ex((address, port)) == 0) == (family in families)
    finally:
        server.close()


def test_it_can_be_closed_when_its_thread_has_ended(server: HealthServer) -> None:
    """A thread that sees the order before it is woken has closed its sockets."""
    server._closing = True
    server._wake_in.send(b".")
    server.join(10)
    server.close()
    assert not server.is_alive()
