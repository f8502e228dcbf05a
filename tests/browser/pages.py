"""Every page of the admin by its address, and rows for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib.admin.sites import site
from django.contrib.admin.utils import quote
from django.urls import reverse

from django_ojs import cancel_workflow, clock, step, workflow
from django_ojs.domain.job import Actor
from django_ojs.models import Job, RateLimit, SavedView, Schedule, ScheduleRun, Worker, Workflow
from django_ojs.services import bulk
from tests.browser.rows import showcase
from tests.support import not_none

SCREENS = ("dashboard", "failurestat")
"""Pages in the place of lists."""


def fill(user: int) -> None:
    """Rows of every kind, among them some for each operation; bulk work of the user with this key,
    which is under way.
    """
    showcase()
    now = clock.now("default")
    for name in ("import of november", "import of october"):
        with workflow(name) as made:
            fetched = made.add(step("files.fetch"))
            made.add(step("report.render"), after=[fetched, made.add(step("files.parse"))])
    cancel_workflow(Workflow.objects.get(name="import of october").pk)
    quiet = Worker.objects.filter(phase=Worker.Phase.RUNNING, directive=None).latest("pk")
    Worker.objects.filter(pk=quiet.pk).update(directive="quiet")
    limits = {"concurrency": 2, "rate": {"limit": 10, "period": "1m"}}
    RateLimit.objects.create(key="api.example.com", policy=limits, override=limits, override_by="ada")
    for name, paused in (("nightly", {}), ("weekly", {"paused_at": now, "paused_by": "ada"})):
        Schedule.objects.create(
            name=name,
            source="admin",
            expression="30 2 * * *",
            timezone="Europe/Berlin",
            type="report.generate",
            queue="reports",
            template={"type": "report.generate", "args_json": "[]"},
            description="for the accounts",
            due_at=now + timedelta(hours=3),
            **paused,
        )
    ScheduleRun.objects.create(schedule="nightly", tick=now, outcome="refused", by="ada")
    SavedView.objects.create(user=str(user), name="Mail", query={"queue": "mail"})
    actor = Actor("admin", "ada", "the bank is back")
    bulk.start("retry", bulk.Filter(state="discarded"), {}, actor, user=user, count="9")


def every_page() -> Iterator[str]:
    """Each list, and a page of each; of jobs in each state. There are rows of every kind."""
    for name, model in ours():
        yield reverse(f"admin:django_ojs_{name}_changelist")
        if name not in SCREENS:
            row = not_none(rows_of(name, model).first())
            yield reverse(f"admin:django_ojs_{name}_change", args=[quote(row.pk)])
    for state in Job.States.values:
        yield f"job/?state={state}"
        yield f"job/{Job.objects.filter(state=state)[0].pk}/change/"
    yield from ("failurestat/?view=table", "dashboard/?window=24h", "job/?lens=timed_out")


def every_form() -> Iterator[str]:
    """Where rows are added, and the confirmation of each operation on one row."""
    yield "apitoken/add/"
    for name, model in ours():
        for operation in getattr(site._registry[model], "operations", ()):
            row = not_none(next((row for row in rows_of(name, model) if operation.allowed(row)), None))
            yield reverse(f"admin:django_ojs_{name}_do", args=[quote(row.pk), operation.name])


def rows_of(name: str, model: Any) -> Any:
    """The rows that have a page on the screens of a model."""
    dead = {"state": "discarded", "dead_letter": True} if name == "deadletter" else {}
    return model._default_manager.filter(**dead)


def ours() -> Iterator[tuple[str, Any]]:
    """The models that have screens, by their names in addresses."""
    for model in site._registry:
        if model._meta.app_label == "django_ojs":
            yield str(model._meta.model_name), model
