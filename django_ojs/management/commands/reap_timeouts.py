"""``reap_timeouts``: enforce every deadline, once or in a loop."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from itertools import islice
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import connections

from django_ojs import clock, hooks
from django_ojs.domain.errors import InvalidRequest
from django_ojs.management.base import EXIT_OVERDUE, OJSCommand, first_line
from django_ojs.management.logs import add_log_format, set_up_logging
from django_ojs.management.times import span_ms
from django_ojs.process_title import set_title
from django_ojs.services import reap, reaper
from django_ojs.services.reap import ReapResult
from django_ojs.store.contention import impatient
from django_ojs.store.sessions import of_workers
from django_ojs.worker.threads.maintenance import MaintenanceThread
from django_ojs.worker.threads.reaper import ReaperThread
from django_ojs.worker.threads.receivers import Receivers

_RECEIVERS_S = 25.0
"""Seconds for pending signal receivers at the end; the same as a worker's shutdown timeout."""
_SHOWN = 20
_COUNTED = 10_000
"""Up to how many jobs a dry run names."""
_ALIVE_EVERY = 1.0
_PATIENCE = 5.0
"""Seconds for the current transaction at the end."""


class Command(OJSCommand):
    """Any number of these may run at once; each overdue job is ended by exactly one."""

    help = "End jobs whose execution, total, enqueue or heartbeat timeout has passed."

    def add_arguments(self, parser: CommandParser) -> None:
        """``--once`` for cron and timers, ``--loop`` for a service."""
        super().add_arguments(parser)
        mode = parser.add_mutually_exclusive_group()
        mode.add_argument("--once", action="store_true", help="one pass (the default)")
        mode.add_argument("--loop", action="store_true", help="until SIGTERM or SIGINT")
        mode.add_argument("--dry-run", action="store_true", help="say what is overdue, end nothing")
        mode.add_argument(
            "--check", action="store_true", help="exit 3 when something is overdue, end nothing"
        )
        parser.add_argument(
            "--interval", default="0.2", help="longest sleep of --loop, in seconds (default 0.2)"
        )
        parser.add_argument("--limit", type=int, help="end at most this many jobs per pass")
        add_log_format(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run one pass, or loop."""
        alias = self.alias(options)
        limit = options["limit"]
        if limit is not None and limit < 1:
            raise CommandError("--limit: must be at least 1", returncode=2)
        set_up_logging(self.stderr, options["verbosity"], options["log_format"])
        with (
            of_workers(alias),
            impatient(),
            self.usable_database(alias),
            Receivers().serving(_RECEIVERS_S),
        ):
            if options["loop"]:
                self._loop(alias, _interval(options["interval"]), limit, options)
            elif options["dry_run"] or options["check"]:
                hears = reaper.hearing_of(now=clock.now(alias), using=alias)
                found = reap.reap(hearing=hears, dry_run=True, limit=limit or _COUNTED, using=alias)
                self._print_result(found, options, "overdue")
                if options["check"] and found.jobs:
                    sys.exit(EXIT_OVERDUE)
            else:
                done = reaper.scan(cadence=None, ran_by=_ran_by(), limit=limit, using=alias)
                _run_enforcing_tasks(alias)
                self._print_result(done, options, "reaped")

    def _loop(self, alias: str, interval: float, limit: int | None, options: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        set_title("reaper")
        if options["verbosity"]:
            self.print_line(f"reaping every {interval:g} s; stop with SIGTERM")
        maintenance = MaintenanceThread(lambda: None, using=alias, enforcing=True)

        def on_reaped(reaped: ReapResult) -> None:
            if reaped.jobs:
                self._print_result(reaped, options, "reaped")

        def on_failed(error: Exception) -> None:
            self.print_line(f"the database failed: {first_line(error)}", trouble=True)

        reaper = ReaperThread(
            maintenance.promote,
            promoting=maintenance.promoting,
            ran_by=_ran_by(),
            using=alias,
            look_every=interval,
            slowest_look=interval,
            lag=0.0,
            limit=limit,
            on_reaped=on_reaped,
            on_failed=on_failed,
        )
        threads = (reaper, maintenance)
        connections[alias].close()
        for thread in threads:
            thread.start()
        while not stop.wait(_ALIVE_EVERY):
            if not reaper.is_alive():
                raise CommandError("the reaper's thread has ended")
        for thread in threads:
            thread.close()
        for thread in threads:
            thread.join(_PATIENCE)

    def _print_result(self, reaped: ReapResult, options: Any, word: str) -> None:
        total = sum(reaped.counts.values())
        value = {
            word: total,
            "by_kind": dict(reaped.counts),
            "latest_ms": reaped.lateness_ms,
            "jobs": [str(job_id) for job_id in reaped.jobs],
        }
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(reaped.counts.items()))
        late = f" ({kinds}; at most {reaped.lateness_ms / 1000:.2f} s late)" if total else ""
        shown = f"{total}+" if word == "overdue" and total == _COUNTED else str(total)
        lines = [f"{shown} {word}{late}"]
        if word == "overdue":
            lines += [f"  {job_id} {kind}" for job_id, kind in islice(reaped.jobs.items(), _SHOWN)]
            if len(reaped.jobs) > _SHOWN:
                lines.append(f"  and {len(reaped.jobs) - _SHOWN} more: --format json names all")
        self.confirm(options, value, lines)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = span_ms(text, "--interval") / 1000
        except InvalidRequest as error:
            raise CommandError(str(error), returncode=2) from error
    if not 0.01 <= seconds <= 3600:
        raise CommandError("--interval: must be from 0.01 s to 3600 s", returncode=2)
    return seconds


def _run_enforcing_tasks(alias: str) -> None:
    """Run the other tasks that enforce times: promotion, and those of extensions."""
    for task in hooks.maintenance_tasks():
        while task.enforces and task.run(alias).more:
            pass


def _ran_by() -> str:
    return f"reap_timeouts {socket.gethostname()}-{os.getpid()}"
