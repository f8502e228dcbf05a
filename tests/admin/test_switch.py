"""The switch between the databases that have queues."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from django_ojs import api
from django_ojs.admin import base
from django_ojs.models import Job
from django_ojs.services import bulk, queues
from django_ojs.testing import drain
from tests.admin.support import across, do, login, page
from tests.several import FIRST, SECOND, gone, two_databases

pytestmark = pytest.mark.usefixtures("two")
LISTS = ("job", "queue", "worker", "workflow", "schedule", "ratelimit", "dashboard", "failurestat")


@pytest.fixture
def two(no_users: None, tmp_path: Path) -> Iterator[None]:
    """Queues are on two databases."""
    with two_databases(tmp_path):
        yield


def switch(browser: Client, alias: str, path: str = "job/") -> None:
    """Follow the link to another database."""
    (link,) = re.findall(rf'<a href="([^"]*database={alias})"', page(browser, path))
    answer = browser.get(link)
    assert (answer.status_code, answer["Location"]) == (302, f"/admin/django_ojs/{path}")


def now_shown(text: str) -> str:
    """The database that is marked in the head of a page."""
    head = text.partition('id="ojs-databases"')[2].partition("</nav>")[0]
    (alias,) = re.findall(r'aria-current="true">(\w+)</a>', head)
    return str(alias)


@pytest.mark.slow
def test_every_page_is_of_the_chosen_database() -> None:
    here, there = api.enqueue("test.job"), api.enqueue("test.job", queue="mail")
    browser, other = login(superuser=True), login(superuser=True, name="bob")
    text = page(browser, "job/")
    assert str(here.id) in text and str(there.id) not in text and now_shown(text) == FIRST
    switch(browser, SECOND)
    text = page(browser, "job/")
    assert str(here.id) not in text and str(there.id) in text and now_shown(text) == SECOND
    for path in LISTS:
        assert now_shown(page(browser, f"{path}/")) == SECOND, path
    assert now_shown(page(browser, f"job/{there.id}/change/")) == SECOND
    assert ">mail<" in page(browser, "queue/") and ">default<" not in page(browser, "queue/")
    assert now_shown(page(other, "job/")) == FIRST, "others see what they have chosen"
    switch(browser, FIRST, "queue/")
    assert ">default<" in page(browser, "queue/")


def test_operations_are_done_there(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [api.enqueue("test.job", queue="mail") for _ in range(12)]
    untouched = api.enqueue("test.job")
    browser = login(superuser=True)
    switch(browser, SECOND)
    assert do(browser, jobs[0], "cancel", reason="", _database=SECOND).status_code == 302
    assert api.get(jobs[0]).state == "cancelled"
    browser.post("/admin/django_ojs/queue/mail/do/pause/", {"_confirmed": "1"})
    assert queues.paused(using=SECOND) == ["mail"] and not queues.paused(using=FIRST)
    monkeypatch.setattr(base, "MOST_AT_ONCE", 10)
    chosen = {"_confirmed": "1", "_many": "1", "reason": "flood"}
    across(browser, "cancel", "?state=available", using=SECOND, **chosen)
    (work,) = Job.objects.using(SECOND).filter(type=bulk.TYPE)
    assert not Job.objects.using(FIRST).filter(type=bulk.TYPE).exists()
    assert drain(bulk.QUEUE, using=SECOND).completed == 1
    assert Job.objects.using(SECOND).get(pk=work.pk).result == {"done": 11, "skipped": 0}
    assert api.get(untouched).state == "available"


def test_a_form_of_another_database_changes_nothing() -> None:
    job = api.enqueue("test.job")
    browser = login(superuser=True)
    text = page(browser, f"job/{job.id}/do/cancel/")
    assert f'<input type="hidden" name="_database" value="{FIRST}">' in text
    switch(browser, SECOND)
    answer = do(browser, job, "cancel", reason="", _database=FIRST)
    said = browser.get(answer["Location"]).content.decode()
    assert "The database was switched in another window: nothing was changed." in said
    assert api.get(job).state == "available"


@pytest.mark.slow
def test_every_form_says_which_database_it_is_for() -> None:
    waiting = api.enqueue("test.job", queue="mail")
    api.pause_queues(["mail"])
    browser = login(superuser=True)
    switch(browser, SECOND)
    own = [f"job/{waiting.id}/change/", f"job/{waiting.id}/do/cancel/", "job/?state=available"]
    seen = 0
    for path in (*own, *(f"{name}/" for name in LISTS), "queue/mail/change/"):
        forms = re.findall(r'<form[^>]*method="post".*?</form>', page(browser, path), re.DOTALL)
        for form in forms:
            if "/logout/" not in form:
                seen += 1
                assert f'name="_database" value="{SECOND}"' in form, (path, form[:300])
    assert "ojs-remedy" in page(browser, own[0]), "the button that resumes the queue"
    assert seen > 8


@pytest.mark.fault("F149")
def test_one_can_switch_away_from_a_database_that_is_gone() -> None:
    browser = login(superuser=True)
    switch(browser, SECOND)
    with gone(SECOND):
        for path in ("job/", "dashboard/", "queue/"):
            answer = browser.get(f"/admin/django_ojs/{path}")
            text = answer.content.decode()
            assert answer.status_code == 503 and "The database jobs2 does not answer." in text, path
            assert now_shown(text) == SECOND
        browser.get("/admin/django_ojs/job/", {"database": FIRST})
        assert now_shown(page(browser, "job/")) == FIRST


def test_a_strange_choice_is_none() -> None:
    browser: Any = login(superuser=True)
    browser.get("/admin/django_ojs/job/", {"database": "default"})
    assert now_shown(page(browser, "dashboard/")) == FIRST
