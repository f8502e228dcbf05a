"""The handlers of the lab: they say when they begin and when they have had their effect."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import transaction

from django_ojs import api
from django_ojs.api import JobContext, job
from tests.lab import effects
from tests.lab.judge import HEARTBEAT

PATIENCE = 120.0
LIMITS: dict[str, Any] = {
    "timeout": 900,
    "grace_period": 2,
    "heartbeat_timeout": HEARTBEAT,
    "retry": {
        "max_attempts": 5,
        "backoff_strategy": "constant",
        "initial_interval_ms": 100,
        "jitter": False,
    },
}


def _wait_for(path: str) -> None:
    until = time.monotonic() + PATIENCE
    while not Path(path).exists() and time.monotonic() < until:
        time.sleep(0.02)


@job("lab.live", **LIMITS)
def live(ctx: JobContext, until: str) -> None:
    """Works until the file ``until`` exists."""
    effects.write(ctx.id, ctx.attempt, "start")
    _wait_for(until)
    effects.write(ctx.id, ctx.attempt, "done")


@job("lab.quick", **LIMITS)
def quick(ctx: JobContext) -> None:
    """Has its effect at once."""
    effects.write(ctx.id, ctx.attempt, "start")
    effects.write(ctx.id, ctx.attempt, "done")


@job("lab.cancels", **{**LIMITS, "heartbeat_timeout": 60})
def cancels(ctx: JobContext, victim: str, until: str) -> None:
    """Cancels another job in a transaction, and goes on working in it."""
    with transaction.atomic():
        api.cancel(UUID(victim))
        effects.write(ctx.id, ctx.attempt, "start")
        _wait_for(until)
    effects.write(ctx.id, ctx.attempt, "done")


@job("lab.paced", **LIMITS)
def paced(ctx: JobContext, until: str) -> None:
    """Works for a moment; for none as soon as the file ``until`` exists."""
    effects.write(ctx.id, ctx.attempt, "start")
    moment = time.monotonic() + 0.3
    while time.monotonic() < moment and not Path(until).exists():
        time.sleep(0.02)
    effects.write(ctx.id, ctx.attempt, "done")
