"""Edit and requeue: sent twice it makes one job, and what is no text comes back in the form."""

from __future__ import annotations

import re

import pytest

from django_ojs.models import AuditEntry, Job
from tests.admin.support import do, login, page
from tests.services.support import ack, make, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db", "no_users")]


def once(text: str) -> str:
    """The hidden field of the form."""
    found = re.search(r'name="once" value="([^"]+)"', text)
    assert found is not None
    return found[1]


def test_the_form_sent_twice_makes_one_job() -> None:
    browser = login(superuser=True)
    job, other = make(2)
    ack(*take(2))
    form = once(page(browser, f"job/{job.id}/do/requeue/"))
    fields = {"args": "[1]", "meta": "{}", "queue": "q", "once": form}
    first, second = (do(browser, job, "requeue", **fields) for _ in range(2))
    (made,) = Job.objects.filter(queue="q")
    assert first["Location"] == second["Location"] == f"/admin/django_ojs/job/{made.pk}/change/"
    assert AuditEntry.objects.filter(action="job.requeued").count() == 1
    do(browser, job, "requeue", **{**fields, "once": once(page(browser, f"job/{job.id}/do/requeue/"))})
    assert Job.objects.filter(queue="q").count() == 2
    do(browser, other, "requeue", **fields)
    do(browser, other, "requeue", **{**fields, "once": "forged"})
    assert Job.objects.filter(queue="q").count() == 4


@pytest.mark.parametrize("meta", ['{"a\\nb": 1}', '{"_ojs_x": 1}'])
def test_reserved_keys_are_an_error_of_the_form(meta: str) -> None:
    browser = login(superuser=True)
    (job,) = make(1)
    ack(*take(1))
    answer = do(browser, job, "requeue", args="[]", meta=meta, queue="default")
    assert answer.status_code == 200
    assert "errorlist" in answer.content.decode()
    assert Job.objects.count() == 1


@pytest.mark.parametrize("args", ['["\\ud800"]', '[{"\\udfff": 1}]'])
def test_halves_of_characters_are_shown_as_they_were_typed(args: str) -> None:
    browser = login(superuser=True)
    (job,) = make(1)
    ack(*take(1))
    answer = do(browser, job, "requeue", args=args, meta="{}", queue="default")
    assert answer.status_code == 200
    assert "errorlist" in answer.content.decode()
    assert args[3:8] in answer.content.decode()
    assert Job.objects.count() == 1
