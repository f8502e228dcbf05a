"""Workers and reapers have the kernel probe their connections."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection

from django_ojs.store import sessions, sockets

pytestmark = pytest.mark.every_database


@pytest.fixture
def guarded(ojs_db: None) -> Iterator[None]:
    """The connections of this test are probed."""
    with sessions.tcp_keepalive("default"):
        connection.close()
        yield


def probed() -> bool:
    """Whether the kernel probes the connection of this test, a new one."""
    connection.close()
    connection.ensure_connection()
    descriptor = sockets.descriptor_of(connection.connection)
    assert descriptor is not None
    with socket.socket(fileno=os.dup(descriptor)) as link:
        kept = link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        limit = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    return bool(kept) and limit == sockets.KEEPALIVE_S * 1000


def test_connections_are_probed_and_connecting_is_limited(guarded: None, vendor: str) -> None:
    if vendor == "sqlite":
        assert "connect_timeout" not in connection.settings_dict["OPTIONS"]
        return
    assert probed()
    assert connection.settings_dict["OPTIONS"]["connect_timeout"] == sockets.CONNECT_TIMEOUT_S


@pytest.mark.slow
def test_a_server_that_accepts_and_never_greets_is_given_up(
    guarded: None, vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does one whose greeting was lost when its network was cut."""
    if vendor == "sqlite":
        pytest.skip("SQLite has no server")
    with socket.create_server(("127.0.0.1", 0)) as mute, monkeypatch.context() as elsewhere:
        host, port = mute.getsockname()
        elsewhere.setitem(connection.settings_dict, "HOST", host)
        elsewhere.setitem(connection.settings_dict, "PORT", port)
        began = time.monotonic()
        with pytest.raises(OperationalError):
            connection.ensure_connection()
        assert time.monotonic() - began < 2 * sockets.CONNECT_TIMEOUT_S


@pytest.mark.slow
def test_a_statement_may_take_longer_than_connecting(guarded: None, vendor: str) -> None:
    if vendor != "mysql":
        pytest.skip("MariaDB and MySQL only")
    with connection.cursor() as cur:
        cur.execute("SELECT SLEEP(%s)", [sockets.CONNECT_TIMEOUT_S + 0.5])
        assert cur.fetchone() == (0,)


def test_what_a_project_has_chosen_is_kept(guarded: None, vendor: str) -> None:
    if vendor != "postgresql":
        pytest.skip("PostgreSQL only")
    connection.settings_dict["OPTIONS"]["tcp_user_timeout"] = 77_000
    assert not probed()


def test_a_local_socket_needs_no_probes(tmp_path: object) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sockets.set_keepalive(ours.fileno())
        assert not ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    sockets.set_keepalive(None)


def test_a_default_timeout_of_the_project_changes_nothing_about_the_socket() -> None:
    """PyMySQL reads nothing from a socket that does not block."""
    before = socket.getdefaulttimeout()
    ours, theirs = socket.socketpair()
    try:
        socket.setdefaulttimeout(10)
        for blocking in (True, False):
            os.set_blocking(ours.fileno(), blocking)
            sockets.set_keepalive(ours.fileno())
            assert os.get_blocking(ours.fileno()) is blocking
    finally:
        socket.setdefaulttimeout(before)
        ours.close()
        theirs.close()
