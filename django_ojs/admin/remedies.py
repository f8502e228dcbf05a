"""What would help a job that waits: a button where the admin does it and the user may, or a command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.apps import apps
from django.contrib.admin import AdminSite
from django.http import HttpRequest

from django_ojs.admin.base import JOB, OJSModelAdmin
from django_ojs.services.explain import Remedy


class RemedyNote(NamedTuple):
    """A button with its label, what it does and where it is posted to; or a command alone."""

    command: str
    label: str = ""
    consequence: Any = ""
    url: str = ""


def notes(
    remedies: Iterable[Remedy], job_id: object, request: HttpRequest, site: AdminSite
) -> list[RemedyNote]:
    """The remedies as the page of this job offers them to the user."""
    found = (_button(remedy, job_id, request, site) or _command(remedy) for remedy in remedies)
    return [one for one in found if one is not None]


def _button(remedy: Remedy, job_id: object, request: HttpRequest, site: AdminSite) -> RemedyNote | None:
    if remedy.deed is None:
        return None
    screen = site._registry.get(apps.get_model("django_ojs", remedy.deed.kind))
    if not isinstance(screen, OJSModelAdmin):
        return None
    operation = next(item for item in screen.operations if item.name == remedy.deed.verb)
    if not screen.may(request, operation):
        return None
    url = f"{screen.url_to(operation, remedy.deed.key)}?{urlencode({JOB: job_id})}"
    label = f"{operation.label} {remedy.deed.name}"
    return RemedyNote(remedy.command, label, operation.consequence, url)


def _command(remedy: Remedy) -> RemedyNote | None:
    return RemedyNote(f"python manage.py {remedy.command}") if remedy.command else None
