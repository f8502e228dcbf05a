"""A worker that cannot beat claims nothing, whatever it holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from django_ojs.worker.supervisor.isolation import PartitionGuard


class Database:
    """Counts what it is asked."""

    asked = 0

    def call(self, *_: object) -> None:
        """Answer nothing, as without a database."""
        self.asked += 1


@pytest.mark.parametrize(("held_ms", "mute_after"), [(None, 30), (4_000, 2), (3_600_000, 30)])
def test_what_is_held_makes_nobody_less_careful(held_ms: int | None, mute_after: float) -> None:
    """The next job may have the default timeout, whatever those at hand have asked for."""
    beats: Any = SimpleNamespace(silent_for=lambda now: now)
    running = SimpleNamespace(job=SimpleNamespace(heartbeat_timeout_ms=held_ms), held=None)
    dispatcher: Any = SimpleNamespace(leases={} if held_ms is None else {"lease": running})
    database: Any = Database()
    silence = PartitionGuard(beats, database, dispatcher, using="default")
    claims_suspended = []
    for after in (mute_after - 0.5, mute_after + 0.5):
        silence.check(after)
        claims_suspended.append(silence.claims_suspended)
    assert claims_suspended == [False, True]
    assert database.asked == (held_ms is not None)
