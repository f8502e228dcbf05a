"""What may keep jobs from running in time, and what to do about it: for operators, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from socket import gethostname
from typing import Any, NamedTuple

from django.utils.translation import gettext, gettext_noop

from django_ojs import clock
from django_ojs.domain.durations import format_instant
from django_ojs.models import MaintenanceRun, Worker
from django_ojs.services import reaper, spanning, workers
from django_ojs.services.schedules import upkeep
from django_ojs.store import server_health
from django_ojs.store.server_health import ServerHealth

OLD = timedelta(minutes=5)
"""An open transaction, or the last run of a maintenance task, of which one should know."""
CROWDED = 0.8
"""The share of the server's connections in use from which one should know."""
MANY_DEAD = 10_000
"""Dead rows of a table that are always in order; beyond, half as many as there are live ones."""
MANY_VERSIONS = 1_000_000
"""Old versions of rows that MariaDB may keep."""
_NAMED = 5
LARGE_LOG = 64 * 2**20
"""Bytes of SQLite's write-ahead log."""

_TEXTS: Mapping[str, tuple[str, str]] = {
    "reaper_never_ran": (
        gettext_noop("The reaper has never run."),
        gettext_noop("Start a worker or `reap_timeouts --loop`."),
    ),
    "reaper_overdue": (
        gettext_noop("The reaper last ran at %(at)s."),
        gettext_noop("Start a worker or `reap_timeouts --loop`."),
    ),
    "maintenance_overdue": (
        gettext_noop("The maintenance task %(task)s last ran at %(at)s."),
        gettext_noop("Run a worker with maintenance or `reap_timeouts`; its log says what failed."),
    ),
    "clock_off": (
        gettext_noop("The database's clock is %(seconds)+.1f s ahead of the clock of %(host)s."),
        gettext_noop("Have both set by NTP; deadlines follow the database's clock."),
    ),
    "schedules_late": (
        gettext_noop("Late schedules (%(count)d): %(names)s."),
        gettext_noop("Run a worker or reap_timeouts of the version that declares them."),
    ),
    "worker_versions": (
        gettext_noop("Workers of different versions are running: %(versions)s."),
        gettext_noop("Restart those that were not restarted after the last deployment."),
    ),
    "connections_crowded": (
        gettext_noop("%(used)d of the database's %(most)d connections are open."),
        gettext_noop("Use a connection pooler, fewer processes, or a higher max_connections."),
    ),
    "old_transaction": (
        gettext_noop("A transaction has been open for %(seconds)d s (%(who)s)."),
        gettext_noop("End it: no row that died since can be removed, and claims slow down."),
    ),
    "dead_rows": (
        gettext_noop("%(table)s has %(dead)d dead rows beside %(live)d live ones."),
        gettext_noop("VACUUM the table, and let autovacuum come more often or work faster."),
    ),
    "old_versions": (
        gettext_noop("InnoDB keeps %(dead)d old versions of rows."),
        gettext_noop("Look for a long transaction, or raise innodb_purge_threads."),
    ),
    "autovacuum_off": (
        gettext_noop("Autovacuum is off."),
        gettext_noop("Turn it on: a queue's tables need it more than others."),
    ),
    "autovacuum_off_for": (
        gettext_noop("Autovacuum is off for %(tables)s."),
        gettext_noop("Turn it on: a queue's tables need it more than others."),
    ),
    "limits_in_several_databases": (
        gettext_noop("Rate limits that count in several databases, in each for itself: %(keys)s."),
        gettext_noop("Give the jobs of a key queues in one database, or declare the key with @job."),
    ),
    "large_log": (
        gettext_noop("The write-ahead log of SQLite is %(mebibytes)d MiB large."),
        gettext_noop("A process has been reading for long: end its transaction."),
    ),
}


class HealthProblem(NamedTuple):
    """Something that is wrong: a code, and the values that its text is about. ``str`` is in English."""

    code: str
    values: Mapping[str, Any] = {}

    def __str__(self) -> str:
        text, remedy = _TEXTS[self.code]
        return f"{text % self.values} {remedy}"

    @property
    def problem(self) -> str:
        """What is wrong, in the current language."""
        return gettext(_TEXTS[self.code][0]) % self.values

    @property
    def remedy(self) -> str:
        """What to do about it, in the current language."""
        return gettext(_TEXTS[self.code][1])

    def as_json(self) -> dict[str, Any]:
        """Plain values, for ``--format json``."""
        text, remedy = _TEXTS[self.code]
        return {"code": self.code, "problem": text % self.values, "remedy": remedy, **self.values}


def enforcement(now: datetime, using: str) -> list[HealthProblem]:
    """What is wrong with the enforcement of timeouts; one row is read."""
    return of_reaper(MaintenanceRun.objects.using(using).filter(name=reaper.NAME).first(), now)


def of_reaper(run: MaintenanceRun | None, now: datetime) -> list[HealthProblem]:
    """What is wrong, given the record of the reaper's last scan."""
    if run is None:
        return [HealthProblem("reaper_never_ran")]
    if now - run.last_run_at > _patience(run, reaper.STALE):
        return [HealthProblem("reaper_overdue", {"at": format_instant(run.last_run_at)})]
    return []


def problems(
    *,
    now: datetime | None = None,
    runs: Iterable[MaintenanceRun] | None = None,
    late_schedules: int | None = None,
    using: str,
) -> list[HealthProblem]:
    """Everything that is known to be wrong with enforcement, maintenance, workers, clocks and the
    database server. Reads no jobs; ``runs`` are all maintenance runs, ``late_schedules`` how many
    schedules are late, if they are known.
    """
    now = now or clock.now(using)
    if runs is None:
        runs = MaintenanceRun.objects.using(using).order_by("name")
    runs = list(runs)
    scans = next((run for run in runs if run.name == reaper.NAME), None)
    return [
        *of_reaper(scans, now),
        *_of_maintenance(runs, now),
        *(_of_schedules(now, using) if late_schedules != 0 else ()),
        *_of_workers(now, using),
        *of_server(server_health.read(using)),
    ]


def _patience(run: MaintenanceRun, least: timedelta) -> timedelta:
    return max(least, 3 * timedelta(milliseconds=run.cadence_ms or 0))


def _of_maintenance(runs: Iterable[MaintenanceRun], now: datetime) -> Iterator[HealthProblem]:
    for run in runs:
        if run.name != reaper.NAME and now - run.last_run_at > _patience(run, OLD):
            at = format_instant(run.last_run_at)
            yield HealthProblem("maintenance_overdue", {"task": run.name, "at": at})


def _of_schedules(now: datetime, using: str) -> Iterator[HealthProblem]:
    if names := upkeep.late(now, using=using):
        shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
        yield HealthProblem("schedules_late", {"count": len(names), "names": shown})


def _of_workers(now: datetime, using: str) -> Iterator[HealthProblem]:
    rows = (
        Worker.objects.using(using)
        .filter(principal="", heartbeat_at__gt=now - workers.STALE)
        .exclude(phase=Worker.Phase.STOPPED)
    )
    found = list(rows.order_by("hostname").values_list("hostname", "version", "clock_ahead_ms"))
    versions = sorted({version for _, version, _ in found if version})
    if len(versions) > 1:
        yield HealthProblem("worker_versions", {"versions": ", ".join(versions)})
    ahead = {host: ms / 1000 for host, _, ms in found if ms is not None}
    here = clock.disagreement(using)
    if here is not None:
        ahead.setdefault(gethostname(), here.total_seconds())
    for host, seconds in ahead.items():
        if abs(seconds) > clock.LEAST_STEP.total_seconds():
            yield HealthProblem("clock_off", {"host": host, "seconds": round(seconds, 3)})


def of_keys(using: str) -> list[HealthProblem]:
    """Rate limits whose jobs are in other databases too, each of which is asked."""
    found = spanning.counted_twice(using)
    if not found:
        return []
    shown = [f"{key} ({', '.join(aliases)})" for key, aliases in islice(found.items(), _NAMED)]
    text = ", ".join(shown) + (", …" if len(found) > _NAMED else "")
    return [HealthProblem("limits_in_several_databases", {"count": len(found), "keys": text})]


def of_server(server: ServerHealth) -> Iterator[HealthProblem]:
    """What is wrong, given what the database server says."""
    used = server.connections
    if used is not None and used.used >= CROWDED * used.most:
        yield HealthProblem("connections_crowded", used._asdict())
    oldest = server.oldest
    if oldest is not None and oldest.seconds > OLD.total_seconds():
        yield HealthProblem("old_transaction", {"seconds": int(oldest.seconds), "who": oldest.who})
    for dead in server.dead:
        if dead.live is None:
            if dead.dead > MANY_VERSIONS:
                yield HealthProblem("old_versions", {"dead": dead.dead})
        elif dead.dead > MANY_DEAD + dead.live / 2:
            yield HealthProblem("dead_rows", dead._asdict())
    if server.autovacuum is False:
        yield HealthProblem("autovacuum_off")
    elif server.not_vacuumed:
        yield HealthProblem("autovacuum_off_for", {"tables": ", ".join(server.not_vacuumed)})
    if server.wal_bytes is not None and server.wal_bytes > LARGE_LOG:
        yield HealthProblem("large_log", {"mebibytes": server.wal_bytes // 2**20})
