"""The folders of data with our tables that servers begin with, made once for all cases."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.failover import galera, postgres

_MAKERS = {"galera": galera.make_template, "postgres": postgres.make_template}


def make(folder: Path, engines: Iterable[str]) -> dict[str, Path]:
    """By engine."""
    return {engine: _MAKERS[engine](folder) for engine in sorted(engines)}
