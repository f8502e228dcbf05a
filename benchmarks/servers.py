"""Which servers there are. Found as the tests find them, Redis by ``OJS_BENCH_REDIS_URL``."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.run import SERVERS, server

_REDIS = "redis://127.0.0.1:6379/15"
_NAMES = {"pg": "PostgreSQL", "mariadb": "MariaDB", "redis": "Redis"}


@dataclass(slots=True)
class Servers:
    """URLs of those that answer, and why the others are missing."""

    urls: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """How the harness learns of them."""
        return {f"BENCH_{kind.upper()}_URL": url for kind, url in self.urls.items()}


def find() -> Servers:
    """Ask each whether it is there."""
    found = Servers()
    for kind, (_, variable, guesses) in SERVERS.items():
        url, why = server(variable, guesses)
        _note(found, kind, url, why)
    url = os.environ.get("OJS_BENCH_REDIS_URL", _REDIS)
    why = _redis_trouble(url)
    _note(found, "redis", None if why else url, why)
    return found


def _note(found: Servers, kind: str, url: str | None, why: str) -> None:
    if url is None:
        found.missing[kind] = f"{_NAMES[kind]}: {why}"
    else:
        found.urls[kind] = url


def _redis_trouble(url: str) -> str:
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6379), 3) as line:
            line.sendall(b"PING\r\n")
            answer = line.recv(100)
    except OSError as error:
        return f"no server answers ({error})"
    # A password that is asked for is the client's business, and in the URL.
    return "" if answer[:1] in (b"+", b"-") else "what answers is not Redis"
