"""Enqueues until it is told to stop, and appends to a file what the database has acknowledged.

When the outcome of a try is unknown, the same job with the same id is tried again.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import django
from django.db import DatabaseError, InterfaceError, connections

from tests.lab.effects import now


class Ack(NamedTuple):
    """A line: the job exists, said the database at this moment. ``kind`` is what was asked for."""

    job: str
    kind: str
    moment: float


def read(path: Path) -> list[Ack]:
    """Every line."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Ack(job, kind, float(at)) for job, kind, at in (line.split() for line in lines)]


class Enqueuer:
    """One connection, one job at a time."""

    def __init__(self, acks: Path, rate: float) -> None:
        self._acks = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._pause = 1 / rate
        self._stopped = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._stopped.set())

    def several(self, kind: str, count: int, *args: Any, queue: str) -> None:
        """So many jobs, one after the other."""
        for _ in range(count):
            self._enqueue(kind, args, queue)

    def steadily(self) -> None:
        """Small jobs at the rate, until SIGTERM."""
        due = time.monotonic()
        while not self._stopped.is_set():
            self._enqueue("quick", (), "b")
            due = max(due + self._pause, time.monotonic() - 1)
            self._stopped.wait(max(0.0, due - time.monotonic()))

    def _enqueue(self, kind: str, args: tuple[Any, ...], queue: str) -> None:
        from django_ojs import api, clock

        job_id = clock.new_id()
        verb = partial(api.enqueue, f"lab.{kind}", [*args], queue=queue, id=job_id)
        if self._insist(verb):
            os.write(self._acks, f"{job_id} {kind} {now():.6f}\n".encode())

    def _insist(self, verb: Callable[[], Any]) -> bool:
        while not self._stopped.is_set():
            try:
                verb()
                return True
            except (DatabaseError, InterfaceError, OSError) as error:
                print(f"not enqueued yet: {now():.2f} {str(error).strip()[:200]}", flush=True)
                connections["default"].close()
                self._stopped.wait(0.2)
        return False


def main() -> None:
    """Some jobs that last, a backlog, then a stream until SIGTERM; or small jobs, and no more."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--acks", type=Path, required=True)
    parser.add_argument("--until", required=True)
    parser.add_argument("--living", type=int, default=4)
    parser.add_argument("--backlog", type=int, default=200)
    parser.add_argument("--rate", type=float, default=10)
    parser.add_argument("--small", type=int, default=0)
    chosen = parser.parse_args()
    django.setup()
    enqueuer = Enqueuer(chosen.acks, chosen.rate)
    if chosen.small:
        enqueuer.several("quick", chosen.small, queue="b")
        return
    enqueuer.several("live", chosen.living, chosen.until, queue="a")
    enqueuer.several("paced", chosen.backlog, chosen.until, queue="b")
    enqueuer.steadily()


if __name__ == "__main__":
    main()
