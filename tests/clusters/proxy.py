"""A TCP proxy on loopback that can lose a connection at a statement, or all of them without a word."""

from __future__ import annotations

import ctypes
import re
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

_ATTACH_FILTER, _DETACH_FILTER = 26, 27
_DROP = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
"""The packet filter ``return 0``: nothing that arrives is seen, so nothing is acknowledged."""


@dataclass(eq=False)
class Cut:
    """A connection is lost when it has sent statements that match these, in this order.

    The last one is not passed on; or with ``reply_lost`` it is, and what the server answers is not.
    """

    patterns: tuple[re.Pattern[bytes], ...]
    reply_lost: bool
    then: Callable[[], None] | None
    done: threading.Event = field(default_factory=threading.Event)
    """Set when the connection is lost and ``then`` has returned."""
    taken: bool = False


class _Pair:
    """A client and its connection to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.seen: dict[Cut, int] = {}
        self.losing: Cut | None = None

    def close(self) -> None:
        for end in (self.client, self.server):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


class Proxy:
    """Listens on ``port`` and passes everything on to another port, or another kind of address."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._pairs: list[_Pair] = []
        self._cuts: list[Cut] = []
        self._lock = threading.Lock()
        self._open = threading.Event()
        self._open.set()
        self.refusing = False
        """Whether new connections are turned away."""
        self.accepted = 0
        """How many were passed on."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.set()
        self._listener.close()
        for pair in list(self._pairs):
            pair.close()

    def cut(
        self, *patterns: str, reply_lost: bool = False, then: Callable[[], None] | None = None
    ) -> Cut:
        """Lose the first connection that sends these statements, and do ``then`` meanwhile."""
        compiled = tuple(re.compile(pattern.encode(), re.IGNORECASE) for pattern in patterns)
        cut = Cut(compiled, reply_lost, then)
        with self._lock:
            self._cuts.append(cut)
        return cut

    def silence(self) -> None:
        """From now on packets vanish, those of new connections too; nobody is told."""
        self._open.clear()
        program = struct.pack("HP", 1, ctypes.addressof(_DROP))
        for end in (self._listener, *(pair.client for pair in self._pairs)):
            if end.fileno() >= 0:
                end.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)

    def speak(self) -> None:
        """The network is back; what was there before has gone."""
        self._listener.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
        for pair in self._pairs:
            pair.close()
        self._open.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target), 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            pair = _Pair(client, server)
            self._pairs.append(pair)
            self.accepted += 1
            for pump in (self._up, self._down):
                threading.Thread(target=pump, args=(pair,), daemon=True).start()

    def _up(self, pair: _Pair) -> None:
        try:
            while data := pair.client.recv(1 << 16):
                cut = self._due(pair, data)
                if cut is not None and not cut.reply_lost:
                    self._lose(pair, cut)
                    return
                pair.losing = cut
                pair.server.sendall(data)
        except OSError:
            pass
        pair.close()

    def _down(self, pair: _Pair) -> None:
        try:
            while data := pair.server.recv(1 << 16):
                self._open.wait()
                if pair.losing is not None:
                    self._lose(pair, pair.losing)
                    return
                pair.client.sendall(data)
        except OSError:
            pass
        pair.close()

    def _due(self, pair: _Pair, data: bytes) -> Cut | None:
        """The cut that these statements bring about."""
        with self._lock:
            for cut in self._cuts:
                step = pair.seen.get(cut, 0)
                while step < len(cut.patterns) and cut.patterns[step].search(data):
                    step += 1
                pair.seen[cut] = step
                if step == len(cut.patterns) and not cut.taken:
                    cut.taken = True
                    return cut
        return None

    def _lose(self, pair: _Pair, cut: Cut) -> None:
        pair.close()
        if cut.then is not None:
            cut.then()
        cut.done.set()
