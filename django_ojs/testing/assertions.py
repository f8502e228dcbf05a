"""Assert what a test has enqueued."""

from __future__ import annotations

from typing import Any

from django_ojs.domain.arguments import split
from django_ojs.domain.job import JobRow
from django_ojs.domain.job_record import JobRecord, shown
from django_ojs.testing import recorded
from django_ojs.testing.committing import opened_connections
from django_ojs.testing.matching import Difference, Pattern, all_jobs, pattern, show
from django_ojs.testing.reach import left_out

_NEAREST = 3


def assert_enqueued(
    job: Any = None, *, count: int | None = None, using: str | None = None, **fields: Any
) -> list[JobRecord]:
    """Return the jobs that match, of which there must be ``count``, or at least one.

    Takes what :func:`enqueued` takes. The message of the ``AssertionError`` shows the nearest misses
    and in which fields they differ.
    """
    __tracebackhide__ = True
    wanted = pattern(job, **fields)
    jobs = all_jobs("assert_enqueued()", using, wanted)
    found = [one for one in jobs if not wanted.differences(one)]
    if len(found) == count or (count is None and found):
        return shown(found)
    asked = "a job" if count is None else f"{count} job{'' if count == 1 else 's'}"
    there = f"{len(found)} match" if found else "there is none"
    lines = [f"expected {asked} {wanted}: {there}", *map(_line, found)]
    if count is None or len(found) < count:
        lines += _misses(wanted, jobs)
        lines += _waiting()
        lines += _not_looked_at(using)
    raise AssertionError("\n".join(lines))


def refute_enqueued(job: Any = None, *, using: str | None = None, **fields: Any) -> None:
    """Raise ``AssertionError``, which shows them, if there are jobs that match; see
    :func:`enqueued`.
    """
    __tracebackhide__ = True
    wanted = pattern(job, **fields)
    jobs = all_jobs("refute_enqueued()", using, wanted)
    found = [one for one in jobs if not wanted.differences(one)]
    if found:
        there = "there is one" if len(found) == 1 else f"there are {len(found)}"
        raise AssertionError("\n".join([f"expected no job {wanted}: {there}", *map(_line, found)]))


def _line(job: JobRow) -> str:
    args, kwargs = split(job.json("args"), job.json("meta"))
    named = f", kwargs {show(kwargs)}" if kwargs else ""
    return f"  {job.type} {job.id}: {job.state}, queue {job.queue!r}, args {show(args)}{named}"


def _misses(wanted: Pattern, jobs: list[JobRow]) -> list[str]:
    """The jobs that come nearest: of the same type first, then those that differ in the least."""
    missed = [(differences, job) for job in jobs if (differences := wanted.differences(job))]
    if not missed:
        return [] if jobs else ["nothing has been enqueued"]
    missed.sort(key=lambda miss: (_weight(miss[0]), miss[1].id))
    lines = ["nearest:"]
    for differences, job in missed[:_NEAREST]:
        lines.append(_line(job))
        lines += [
            f"    {one.field}: expected {show(one.wanted)}, is {show(one.found)}" for one in differences
        ]
    if len(missed) > _NEAREST:
        lines.append(f"  and {len(missed) - _NEAREST} more")
    return lines


def _weight(differences: list[Difference]) -> int:
    return sum(100 if one.field == "type" else 1 for one in differences)


def _waiting() -> list[str]:
    """A hint for what ``TestCase`` never does: commit."""
    registered: list[Any] = [one for each in opened_connections() for one in each.run_on_commit]
    waiting = [
        callback
        for _, callback, _ in registered
        if "enqueue_on_commit" in getattr(callback, "__qualname__", "")
    ]
    if not waiting:
        return []
    return [
        f"{len(waiting)} call(s) of enqueue_on_commit wait for a commit, which TestCase never makes: "
        "enqueue inside `with commits():` of django_ojs.testing"
    ]


def _not_looked_at(using: str | None) -> list[str]:
    """A hint for databases that are not those of the test case."""
    if using is not None or recorded.jobs() is not None or not (others := left_out()):
        return []
    return [f"not looked at: {', '.join(map(repr, others))}, which this test may not use (`databases`)"]
