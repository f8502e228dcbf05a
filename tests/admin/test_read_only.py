"""The plain registration: everything can be looked at, nothing changed, the lease is not shown."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from django_ojs.models import Attempt, Event, Job
from tests.admin.support import login
from tests.admin.support import page as show
from tests.services.support import fail, make, take

pytestmark = pytest.mark.usefixtures("ojs_db")
MODELS = [
    "job",
    "deadletter",
    "attempt",
    "queue",
    "worker",
    "event",
    "maintenancerun",
    "auditentry",
    "jobschema",
]


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


@pytest.mark.parametrize("may_see", [False, True])
def test_attempts_and_events_show_what_the_user_may_see(no_users: None, may_see: bool) -> None:
    browser = login("view_attempt", "view_event", *(["view_args"] if may_see else []))
    make(2, retry={"max_attempts": 1})
    (job,) = take(1)
    fail(job, type="app.Broken")
    attempt = Attempt.objects.get()
    Attempt.objects.update(late_report={"result": "late-result", "token": "secret-thing"})
    event = Event.objects.filter(job_id=job.id, kind="job.failed").get()
    Event.objects.filter(pk=event.pk).update(data={"result": "event-result", "token": "secret-thing"})
    for path, hidden in (
        (f"attempt/{attempt.pk}/change/", "late-result"),
        (f"event/{event.pk}/change/", "event-result"),
    ):
        text = show(browser, path)
        assert f'href="/admin/django_ojs/job/{job.id}/change/"' in text
        assert (hidden in text) is may_see
        assert "secret-thing" not in text
        assert str(job.lease_id) not in text
    assert "app.Broken" in show(browser, f"attempt/{attempt.pk}/change/")


def test_attempts_and_events_are_found_by_their_job(no_users: None) -> None:
    browser = login("view_attempt", "view_event")
    make(2, retry={"max_attempts": 1})
    one, other = take(2)
    fail(one, other)
    for path in ("attempt/", "event/"):
        text = show(browser, path, q=str(one.id))
        assert str(one.id) in text
        assert str(other.id) not in text
        assert "Not the id of a job" in show(browser, path, q="nonsense")


@pytest.mark.parametrize("page", ["add", "change", "delete"])
def test_nothing_can_be_changed(staff: Client, page: str) -> None:
    (job,) = make()
    args = [] if page == "add" else [job.id]
    before = Job.objects.values().get()
    response = staff.post(reverse(f"admin:django_ojs_job_{page}", args=args), {"state": "completed"})
    assert response.status_code == 403
    assert Job.objects.values().get() == before
