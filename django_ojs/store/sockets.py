"""The TCP socket of a database session: keepalive, unanswered requests, how to end it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

KEEPALIVE_S = 6
"""Seconds without an acknowledgement, of data or a probe, after which a connection is dead."""
CONNECT_TIMEOUT_S = 3
"""Seconds that connecting may take. A lost first packet is sent again after 1, 2 and 4 s: waiting for
those would delay recovery long after the network is back. A transaction that failed reconnects
before its error is reported.
"""
_KEEPALIVE_IDLE_S, _KEEPALIVE_INTERVAL_S = 3, 1
_KEEPALIVE_OPTIONS = ("keepalive", "tcp_user_timeout")
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_LAST_DATA_SENT, _LAST_DATA_RECEIVED, _LAST_ACK_RECEIVED = 44, 52, 56
"""Offsets in Linux's ``struct tcp_info``: milliseconds since then."""
_ACTIVE = 1
"""libpq's ``PQTRANS_ACTIVE``."""


def set_keepalive(descriptor: int | None, options: Iterable[str] = ()) -> None:
    """Turn on TCP keepalive for the socket, unless the connection's ``options`` configure it."""
    if descriptor is None or any(str(name).startswith(_KEEPALIVE_OPTIONS) for name in options):
        return
    with duplicate(descriptor) as link:
        if not is_tcp(link):
            return
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
            ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
            ("TCP_KEEPCNT", (KEEPALIVE_S - _KEEPALIVE_IDLE_S) // _KEEPALIVE_INTERVAL_S),
            ("TCP_USER_TIMEOUT", KEEPALIVE_S * 1000),
        ):
            # Not every platform has all four options.
            if (option := getattr(socket, name, None)) is not None:
                link.setsockopt(socket.IPPROTO_TCP, option, value)


def descriptor_of(session: Any) -> int | None:
    """The socket of a driver's connection: psycopg and mysqlclient have fileno(), PyMySQL _sock."""
    if (fileno := getattr(session, "fileno", None)) is not None:
        return int(fileno())
    link = getattr(session, "_sock", None)
    return None if link is None else int(link.fileno())


@contextmanager
def duplicate(descriptor: int) -> Iterator[socket.socket]:
    """The socket of a descriptor that somebody else owns."""
    blocking = os.get_blocking(descriptor)
    with socket.socket(fileno=os.dup(descriptor)) as link:
        # With a default timeout set, socket() has made the shared descriptor non-blocking.
        os.set_blocking(link.fileno(), blocking)
        yield link


def is_tcp(link: socket.socket) -> bool:
    """Whether it leads to another host, or could."""
    return link.family in (socket.AF_INET, socket.AF_INET6)


def can_tell_unanswered() -> bool:
    """Whether this platform knows when data came and went: Linux does."""
    return _TCP_INFO is not None


def unanswered_s(link: socket.socket, waits: bool | None = None) -> float:
    """Seconds since data was last sent, if none has come since; 0 if the peer has the last word.

    Within a transaction a statement often goes in the same tick of the kernel's clock in which the
    answer to the one before came, so that the times are the same. Then it depends on whether the driver
    ``waits`` for an answer; if it does not tell, on whether the peer has acknowledged something without
    sending data.
    """
    if _TCP_INFO is None:
        return 0.0
    info = link.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 104)
    sent, received, acknowledged = (
        struct.unpack_from("I", info, offset)[0]
        for offset in (_LAST_DATA_SENT, _LAST_DATA_RECEIVED, _LAST_ACK_RECEIVED)
    )
    if sent == received:
        is_last = acknowledged < received if waits is None else waits
    else:
        is_last = sent < received
    return sent / 1000 if is_last else 0.0


def waits_for_answer(session: Any) -> bool | None:
    """Whether a driver's connection has sent a statement and has no answer yet; ``None`` if it does not
    tell: those of MariaDB and MySQL do not.
    """
    info = getattr(session, "info", None)
    status = getattr(info, "transaction_status", None)
    return None if status is None else int(status) == _ACTIVE


def shut_down(link: socket.socket) -> None:
    """End the connection: a thread that waits for an answer on it gets an error at once."""
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
