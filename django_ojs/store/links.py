"""A server that is gone without a word is noticed in seconds, not after a quarter of an hour."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.store.connecting import at_connecting

SILENCE_S = 6
"""How long a server may acknowledge nothing: neither what was sent nor, when idle, that it is there."""
CONNECT_S = 3
"""How long connecting may take. A first packet that was lost is sent again after one second, then after
two more, four more: whoever waits for those is heard long after the network is back. A transaction that
failed connects anew before it says so."""
_IDLE_S, _PROBE_S = 3, 1
_OWN_OPTIONS = ("keepalive", "tcp_user_timeout")


@contextmanager
def notice_silence(using: str) -> Iterator[None]:
    """Give up connections that fall silent, and attempts to connect, after a few seconds.

    A worker or reaper that waits for a server behind a dead network does nothing else. For the
    connections opened while the block runs; PostgreSQL's own ``OPTIONS`` for it take precedence.
    """

    def guard(connection: BaseDatabaseWrapper) -> None:
        guard_socket(_descriptor(connection.connection), connection.settings_dict["OPTIONS"])

    settings = connections[using].settings_dict
    if connections[using].vendor not in ("postgresql", "mysql"):
        yield
        return
    before = settings["OPTIONS"]
    settings["OPTIONS"] = {"connect_timeout": CONNECT_S, **before}
    try:
        with at_connecting(using, guard):
            yield
    finally:
        settings["OPTIONS"] = before


def guard_socket(descriptor: int | None, options: Iterable[str] = ()) -> None:
    """Have the kernel probe this connection, and end it when nothing is acknowledged for long;
    unless the ``options`` that it was opened with say something of that themselves.
    """
    if descriptor is None or any(str(name).startswith(_OWN_OPTIONS) for name in options):
        return
    blocking = os.get_blocking(descriptor)
    with socket.socket(fileno=os.dup(descriptor)) as link:
        # Where a default timeout is set, this other view of the socket has stopped it from blocking.
        os.set_blocking(descriptor, blocking)
        if link.family not in (socket.AF_INET, socket.AF_INET6):
            return
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", _IDLE_S),
            ("TCP_KEEPINTVL", _PROBE_S),
            ("TCP_KEEPCNT", (SILENCE_S - _IDLE_S) // _PROBE_S),
            ("TCP_USER_TIMEOUT", SILENCE_S * 1000),
        ):
            # Not every system knows them all.
            if (option := getattr(socket, name, None)) is not None:
                link.setsockopt(socket.IPPROTO_TCP, option, value)


def _descriptor(session: Any) -> int | None:
    """The socket of a driver's connection: psycopg and mysqlclient tell it, PyMySQL has it."""
    if (fileno := getattr(session, "fileno", None)) is not None:
        return int(fileno())
    link = getattr(session, "_sock", None)
    return None if link is None else int(link.fileno())
