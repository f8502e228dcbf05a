"""Where the servers are and which system is measured: from the environment, set by the benchmark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

ROOT = Path(__file__).resolve().parents[2]

SYSTEM = os.environ.get("BENCH_SYSTEM", "ojs")
"""A system and, after a dot, a variant: ``huey.sqlite``."""

WORKLOAD = os.environ.get("BENCH_WORKLOAD", "")
"""What is measured."""

TUNED = os.environ.get("BENCH_PROFILE", "default") == "tuned"
"""``default`` is what a system's documentation sets up, ``tuned`` its best documented settings."""

ROUND = int(os.environ.get("BENCH_ROUND", "1"))
"""Which repetition this is; the seed of whatever is random."""

PREFIX = os.environ.get("BENCH_PREFIX", "ojs_bench")
"""How the names of all databases begin."""

OJS: dict[str, Any] = json.loads(os.environ.get("BENCH_OJS", "{}"))
"""Settings of ours that differ from the default."""


def server(kind: str) -> str:
    """The URL of a server: ``pg``, ``mariadb`` or ``redis``."""
    return os.environ[f"BENCH_{kind.upper()}_URL"]


def database_url(kind: str, name: str) -> str:
    """The URL of one database on a server."""
    return urlunsplit(urlsplit(server(kind))._replace(path=f"/{name}"))


def pg_dsn(name: str) -> str:
    """The URL of a PostgreSQL database, which its drivers take as it is."""
    return database_url("pg", name)


def scratch() -> Path:
    """A folder on a real disk for SQLite files and the handlers' records."""
    folder = Path(os.environ.get("BENCH_SCRATCH", ROOT / "benchmarks" / ".scratch"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
