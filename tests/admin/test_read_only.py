"""The plain registration: everything can be looked at, nothing changed, the lease is not shown."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from django_ojs.models import Job
from tests.services.support import fail, make, take

pytestmark = pytest.mark.usefixtures("ojs_db")
MODELS = ["job", "attempt", "queue", "worker", "event", "chorerun"]


@pytest.fixture
def staff(ojs_db: None) -> Client:
    """A superuser's browser."""
    get_user_model().objects.filter(username="root").delete()
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root", "r@example.org", "x"))
    return client


@pytest.mark.parametrize("model", MODELS)
def test_lists_are_shown(staff: Client, model: str) -> None:
    make(2, retry={"max_attempts": 1})
    fail(*take(1))
    response = staff.get(reverse(f"admin:django_ojs_{model}_changelist"))
    assert response.status_code == 200


def test_a_job_is_shown_without_its_lease(staff: Client) -> None:
    make()
    (job,) = take()
    response = staff.get(reverse("admin:django_ojs_job_change", args=[job.id]))
    assert response.status_code == 200
    assert job.type in response.content.decode()
    assert str(job.lease_id) not in response.content.decode()


@pytest.mark.parametrize("page", ["add", "change", "delete"])
def test_nothing_can_be_changed(staff: Client, page: str) -> None:
    (job,) = make()
    args = [] if page == "add" else [job.id]
    before = Job.objects.values().get()
    response = staff.post(reverse(f"admin:django_ojs_job_{page}", args=args), {"state": "completed"})
    assert response.status_code == 403
    assert Job.objects.values().get() == before
