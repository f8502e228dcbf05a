"""Imported with the handlers of every app; ``OJS_SABOTAGE`` says what goes wrong.

What goes wrong in the middle of work does so while the file ``OJS_SABOTAGE_WHILE`` exists.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db import OperationalError

from django_ojs import signals
from django_ojs.services import leases, workers
from django_ojs.worker.executor import process
from django_ojs.worker.prefork import pool
from django_ojs.worker.supervisor import recycling
from django_ojs.worker.threads import heartbeat as heartbeat_thread
from django_ojs.worker.threads import receivers
from tests.faults import mutants
from tests.workload.tools import note

_NAMED = os.environ.get("OJS_SABOTAGE", "")
_WHILE = Path(os.environ.get("OJS_SABOTAGE_WHILE", "/nowhere"))


def _failing(work: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    def fail(*arguments: Any, **options: Any) -> Any:
        if _WHILE.exists():
            raise error
        return work(*arguments, **options)

    return fail


def _hanging(work: Callable[..., Any]) -> Callable[..., Any]:
    def hang(*arguments: Any, **options: Any) -> Any:
        while _WHILE.exists():
            time.sleep(0.01)
        return work(*arguments, **options)

    return hang


def _beats_fail() -> None:
    trouble = OperationalError("sabotaged")
    leases.beat = _failing(leases.beat, trouble)
    workers.report = _failing(workers.report, trouble)


def _beats_hang() -> None:
    leases.beat = _hanging(leases.beat)


def _receiver_hangs() -> None:
    """Of every event; a queue that fills up at once."""
    for signal in signals.by_kind.values():
        signal.connect(_hanging(_note_event), weak=False)


def _few_events_wait() -> None:
    receivers.LIMIT = 100
    _receiver_hangs()


def _note_event(event: signals.EventRecord, **_: Any) -> None:
    note(os.environ["OJS_SABOTAGE_DIARY"], event.kind, event.data.get("job_id"), os.getpid())


def _note_threshold(event: signals.EventRecord, **_: Any) -> None:
    note(os.environ["OJS_SABOTAGE_DIARY"], event.kind, gc.get_threshold()[0])


def _receiver_notes_threshold() -> None:
    signals.job_completed.connect(_note_threshold)


def _thread_at_import(name: str) -> None:
    threading.Thread(target=time.sleep, args=(300,), name=name, daemon=True).start()


def _no_process() -> None:
    """As at the limit of processes, which does not hold for root."""
    os.fork = _failing(os.fork, BlockingIOError(errno.EAGAIN, "sabotaged"))


def _loop_fails() -> None:
    """Whatever the runner does next needs a descriptor, and there is none."""
    kind: Any = recycling.Recycler
    kind.check = _failing(kind.check, OSError(errno.EMFILE, "sabotaged"))


class _GivenBack(deque[Any]):
    """Jobs of an executor, the last of which the wake-up signal gives back as it is taken."""

    def __init__(self, executor: Any) -> None:
        super().__init__()
        self._executor = executor

    def popleft(self) -> Any:
        if len(self) == 1 and self._executor._ended is not None:
            self._executor._give_back(self[0]["lease"])
        return super().popleft()


def _given_back_as_it_is_taken() -> None:
    kind: Any = process.Executor
    made = kind.__init__

    def make(self: Any, *arguments: Any) -> None:
        made(self, *arguments)
        self._jobs = _GivenBack(self)

    kind.__init__ = make


def _in_executors(end: Callable[[], Any]) -> None:
    """Executors import what the worker could import; a thread makes them fresh interpreters."""
    if "runworker" in sys.argv:
        threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
        users: tuple[Any, ...] = (recycling, pool)
        for module in users:
            module.START_TIMEOUT = 1.0
    else:
        end()


def _import_fails() -> None:
    raise ImportError("sabotaged")


_SABOTAGES: dict[str, Callable[[], Any]] = {
    "": lambda: None,
    "beats fail": _beats_fail,
    "beats hang": _beats_hang,
    "beats often": lambda: setattr(heartbeat_thread, "LONGEST", 0.3),
    "receiver hangs": _receiver_hangs,
    "few events wait": _few_events_wait,
    "receiver notes threshold": _receiver_notes_threshold,
    "given back as it is taken": _given_back_as_it_is_taken,
    "mutant": mutants.apply_from_environment,
    "thread at import": lambda: _thread_at_import("anything"),
    "exporter at import": lambda: _thread_at_import("our-metrics-1"),
    "no process": _no_process,
    "loop fails": _loop_fails,
    "import fails": _import_fails,
    "import exits": lambda: os._exit(7),
    "import exits in executors": lambda: _in_executors(lambda: os._exit(7)),
    "import hangs in executors": lambda: _in_executors(lambda: time.sleep(300)),
}
_SABOTAGES[_NAMED]()
