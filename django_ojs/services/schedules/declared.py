"""The schedules that the code and the settings of this process declare, and their rows."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from django_ojs import clock, conf
from django_ojs.domain.schedule import DECLARED, ScheduleSource, ScheduleSpec
from django_ojs.models import Schedule
from django_ojs.services.job_defaults import queue_of
from django_ojs.services.schedules import rows
from django_ojs.store.contention import in_transaction

logger = logging.getLogger("django_ojs")

_declared: dict[str, ScheduleSpec] = {}


def declare(spec: ScheduleSpec) -> None:
    """Declare a schedule in code. Raises ``ValueError`` if its name has another declaration."""
    if _declared.get(spec.name, spec) != spec:
        raise ValueError(f"a schedule named {spec.name!r} is declared twice")
    _declared[spec.name] = spec


def declared() -> Iterator[tuple[ScheduleSpec, ScheduleSource]]:
    """All declared schedules: those of the code, then those of the settings with other names."""
    for spec in _declared.values():
        yield spec, ScheduleSource.CODE
    for name, spec in conf.current().schedules.items():
        if name not in _declared:
            yield spec, ScheduleSource.SETTINGS


def declared_twice() -> list[str]:
    """The schedules of the settings whose names the code has taken."""
    return sorted(_declared.keys() & conf.current().schedules)


def is_here(row: Schedule, using: str) -> bool:
    """Whether this process may enqueue the jobs of a schedule: it declares the same for this database,
    or nobody does.
    """
    if row.source not in DECLARED:
        return True
    spec = _spec_of(row.name, using)
    return spec is not None and spec.fingerprint() == row.fingerprint


def is_declared(row: Schedule, using: str) -> bool:
    """Whether only code or settings change a schedule: this process declares one of its name for this
    database, or another process does, as far as is known.
    """
    return rows.is_declared(row, here=declares(row.name, using))


def declares(name: str, using: str) -> bool:
    """Whether this process declares a schedule of the name for the database, the same or not."""
    return _spec_of(name, using) is not None


def _spec_of(name: str, using: str) -> ScheduleSpec | None:
    spec = _declared.get(name) or conf.current().schedules.get(name)
    return spec if spec is not None and _is_in(spec, using) else None


def _is_in(spec: ScheduleSpec, using: str) -> bool:
    """Whether a schedule is in the database: it is where the queue of its jobs is."""
    known = conf.current().databases
    return not known.are_several or known.of(queue_of(spec.envelope)) == using


def sync(only: Collection[str] | None = None, *, using: str) -> list[str]:
    """Give each declared schedule of the database, or those of these names, its row; the names of
    those that changed.

    Who starts last wins. A schedule of the same name that somebody made over HTTP or in the admin
    becomes the declared one; one that was given up has its next tick again. One statement where
    nothing has changed.
    """
    wanted = {
        spec.name: (spec, source)
        for spec, source in declared()
        if (only is None or spec.name in only) and _is_in(spec, using)
    }
    if not wanted:
        return []
    rows_known = Schedule.objects.using(using).filter(name__in=wanted)
    known = dict(rows_known.values_list("name", "fingerprint"))
    changed = [name for name, (spec, _) in wanted.items() if known.get(name) != spec.fingerprint()]
    for name in sorted(changed):
        _put(*wanted[name], using=using)
        logger.info("schedule %s: %s", name, "changed" if name in known else "new")
    return changed


@in_transaction
def _put(spec: ScheduleSpec, source: ScheduleSource, *, using: str = "") -> None:
    rows.put(spec, source, here=True, now=clock.now(using), using=using)
