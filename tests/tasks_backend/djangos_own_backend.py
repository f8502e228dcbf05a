"""Our backend with what Django's tests ask of its ``DummyBackend`` beside the interface."""

from __future__ import annotations

from django_ojs.models import Job
from django_ojs.tasks_backend import OJSBackend
from django_ojs.tasks_backend.compat import AnyResult


class RecordedBackend(OJSBackend):
    """Has the results of all tasks, in the order of their enqueueing."""

    @property
    def results(self) -> list[AnyResult]:
        """All of them, read from the database."""
        ids = Job.objects.order_by("id").values_list("id", flat=True)
        return [self.get_result(str(job_id)) for job_id in ids]

    def clear(self) -> None:
        """Forget them."""
        Job.objects.all().delete()
