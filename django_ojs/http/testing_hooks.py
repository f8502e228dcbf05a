"""Control over workers through job metadata: for conformance suites, while ``DEBUG`` is on."""

from __future__ import annotations

from collections.abc import Iterable

from django.conf import settings as django_settings

from django_ojs import conf
from django_ojs.domain.job import JobRow


def needs() -> frozenset[str]:
    """The columns of a job that :func:`directive` reads."""
    return frozenset({"meta"} if _on() else ())


def _on() -> bool:
    return django_settings.DEBUG and conf.current().http.test_directives is not False


def directive(jobs: Iterable[JobRow]) -> str | None:
    """The directive in ``meta.test_directive`` of one of the jobs (decision L7)."""
    if not _on():
        return None
    for job in jobs:
        order = job.json("meta").get("test_directive")
        if order in ("quiet", "terminate"):
            return str(order)
    return None
