"""Enqueues the jobs of the plan until it is told to stop; what was acknowledged goes to the ledger.

An id is written before it is tried, and again once the database has said yes. When the outcome of a
try is unknown, the same id with the same content is tried again.
"""

from __future__ import annotations

import argparse
import heapq
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import django
from django.db import DatabaseError, InterfaceError, connections

TRIES_FOR = 60.0


def insist(verb: Callable[[], Any]) -> Any:
    """The answer of the database, however often it has to be asked; ``None`` if it never comes."""
    until = time.monotonic() + TRIES_FOR
    while time.monotonic() < until:
        try:
            return verb()
        except (DatabaseError, InterfaceError, OSError):
            connections["default"].close()
            time.sleep(0.1)
    return None


class Enqueuer:
    """One connection, one job at a time."""

    def __init__(self, calls: Iterator[Any], rate: float, waiting: int) -> None:
        self._calls = calls
        self._pause = 1 / rate
        self._waiting = waiting
        self._cancels: list[tuple[float, str]] = []
        self._stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._stopped.set())

    def run(self) -> None:
        """At the rate, unless as many jobs are waiting as should."""
        due = looked = time.monotonic()
        while not self._stopped.is_set():
            now = time.monotonic()
            if now - looked > 1.0:
                while self._crowded() and not self._stopped.wait(0.2):
                    self._cancel(time.monotonic())
                due = looked = time.monotonic()
            self._enqueue(next(self._calls))
            self._cancel(time.monotonic())
            due += self._pause
            self._stopped.wait(max(0.0, due - time.monotonic()))

    def _enqueue(self, call: Any) -> None:
        from django_ojs import api, clock
        from tests.soak import ledger, plan

        job_id = clock.new_id()
        ledger.write("try", job=str(job_id), kind=call.kind)
        limits = plan.LIMITS_OF.get(call.kind, plan.LIMITS)
        for _ in range(2 if call.twice else 1):
            made = insist(
                lambda: api.enqueue(
                    f"soak.{call.kind}", call.args, queue=call.queue, id=job_id, **limits
                )
            )
            if made is None:
                return
        ledger.write("acknowledged", job=str(job_id))
        if call.cancel_after is not None:
            heapq.heappush(self._cancels, (time.monotonic() + call.cancel_after, str(job_id)))

    def _cancel(self, now: float) -> None:
        from django_ojs import api
        from tests.soak import ledger

        while self._cancels and self._cancels[0][0] <= now:
            _, job_id = heapq.heappop(self._cancels)
            found = insist(partial(api.cancel, job_id))
            if found is not None and found.state == "cancelled":
                ledger.write("cancelled", job=job_id)

    def _crowded(self) -> bool:
        from django_ojs.models import Job

        count = insist(lambda: (Job.objects.filter(state="available").count(),))
        return count is not None and count[0] >= self._waiting


def main() -> None:
    """Until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--waiting", type=int, required=True)
    chosen = parser.parse_args()
    django.setup()
    from tests.soak import plan

    Enqueuer(plan.calls(chosen.seed), chosen.rate, chosen.waiting).run()


if __name__ == "__main__":
    main()
