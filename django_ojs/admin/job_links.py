"""Where the facts of a job lead: its queue, type, worker and incident."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_ojs.admin import links, search
from django_ojs.domain.job import JobRow


def linked(
    facts: Sequence[tuple[str, Any]], job: JobRow, request: HttpRequest, site: AdminSite
) -> list[tuple[str, Any]]:
    """The facts, with links where there is a page that the user may see."""
    urls = {
        _("type"): search_for(request, site, "type", job.type),
        _("queue"): _page(request, site, "queue", job.queue),
        _("incident"): search_for(request, site, "incident", job.incident or ""),
    }
    if job.worker_id:
        urls[_("worker")] = links.list_for(request, site, "worker", status="all", q=job.worker_id)
    return [
        (name, links.link(url, value) if (url := urls.get(name)) else value) for name, value in facts
    ]


def search_for(request: HttpRequest, site: AdminSite, qualifier: str, value: str) -> str:
    """A search of the job list for a value, empty if it cannot be written as one."""
    word = search.word(qualifier, value)
    return links.list_for(request, site, "job", q=word) if word else ""


def _page(request: HttpRequest, site: AdminSite, model: str, key: str) -> str:
    if not request.user.has_perm(f"django_ojs.view_{model}"):
        return ""
    return links.page_of(site, model, key)
