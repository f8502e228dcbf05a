"""The rows of the job list: what they say, where their values lead, and what can be done from them."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from django_ojs.admin import job_list
from django_ojs.admin.operations import JOB_OPERATIONS
from django_ojs.api import cancel, enqueue, get
from django_ojs.clock import FrozenClock
from django_ojs.domain.job import Actor
from django_ojs.models import AuditEntry, Job, Queue
from django_ojs.services import bulk
from django_ojs.services.promote import promote
from django_ojs.store import selectors
from tests.admin.support import login, page, reads, worker
from tests.services.support import ack, fail, make, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db", "no_users")]
LIST = "/admin/django_ojs/job/"


def row(text: str, key: object) -> str:
    """The row of a job, as HTML."""
    parts = re.split(r'<tbody class="ojs-job"[^>]*>', text)[1:]
    (found,) = [part for part in parts if f'title="{key}"' in part]
    return found.partition("</tbody>")[0]


def words(text: str, key: object) -> str:
    """What is to be read in the row of a job, without its menu."""
    shown = re.sub(r'<td class="field-menu".*?</td>', "", row(text, key), flags=re.DOTALL)
    return html.unescape(" ".join(re.sub(r"<[^>]*>", " ", shown).split()))


def chips(text: str, key: object) -> dict[str, str]:
    """The values in a row that lead somewhere, and where, without the question mark."""
    found = re.findall(r'class="ojs-chip[^"]*" href="\?([^"]*)"[^>]*>([^<]*)<', row(text, key))
    return {html.unescape(label): html.unescape(url) for url, label in found}


def menu(text: str, key: object) -> dict[str, str]:
    """The operations in the menu of a row, and their addresses."""
    part = row(text, key).partition('<details class="ojs-menu"')[2]
    found = re.findall(r'<a class="ojs-act[^"]*" href="([^"]*)">', part)
    return {url.partition("/do/")[2].partition("/")[0]: html.unescape(url) for url in found}


# What a row says


def test_a_row_says_what_it_is_and_why_it_failed(frozen: FrozenClock) -> None:
    browser = login("view_job", "view_args")
    job = enqueue("order.total", [{"order": 3044}], queue="orders", retry={"max_attempts": 1})
    fail(*take(queues=("orders",), types=None), type="builtins.KeyError")
    error = {**(Job.objects.get().error or {}), "message": "'currency'\nsecond line"}
    Job.objects.update(error=error)
    frozen.advance(180)
    text = page(browser, "job/", state="discarded")
    assert words(text, job.id) == (
        f'order.total {{"order": 3044}} orders 1/1 failed 3 min ago 0 s '
        f"…{str(job.id)[-12:]} KeyError 'currency'"
    )
    everywhere = words(page(browser, "job/"), job.id)
    assert "orders discarded 1/1 failed 3 min ago" in everywhere


def test_arguments_need_a_permission_are_redacted_and_cut() -> None:
    job = enqueue("t", [{"password": "hunter2", "the_text": "x" * 500}])
    large = enqueue("t", ["y" * 5000])
    other = login("view_job")
    assert "ojs-args" not in page(other, "job/")
    assert "xxx" not in page(other, "job/")
    browser = login("view_job", "view_args", name="eve")
    text = page(browser, "job/")
    assert "hunter2" not in text
    said = words(text, job.id)
    assert '{"password": "••••", "the_text": "xxx' in said
    assert "xxx…" in said and len(said) < 300
    assert "ojs-args" not in row(text, large.id)
    assert "yyy" not in text


def test_an_order_of_the_admin_is_not_shown_as_arguments() -> None:
    browser = login(superuser=True)
    job = bulk.start("cancel", bulk.Filter(queue="x"), {}, Actor("admin", "ada"), user=1)
    assert "ojs-args" not in row(page(browser, "job/"), job.id)


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        ([], ""),
        ([1, "a"], '1, "a"'),
        ([{"größe": None}], '{"größe": null}'),
        (None, ""),
        (["\ud800"], '"\\ud800"'),
    ],
)
def test_arguments_in_one_line(args: Any, shown: str) -> None:
    assert job_list.preview(args) == shown


@pytest.mark.slow
def test_times_are_those_of_the_state(frozen: FrozenClock) -> None:
    browser = login("view_job")
    later = enqueue("later", [], delay="90s")
    waiting = make()[0]
    done, broken, running, gone = make(
        4, queue="q", retry={"jitter": False, "initial_interval": "PT1M", "max_attempts": 2}
    )
    claimed = take(3, queues=("q",))
    assert [job.id for job in claimed] == [done.id, broken.id, running.id]
    ack(claimed[0])
    fail(claimed[1])
    cancel(gone)
    frozen.advance(20)
    text = page(browser, "job/")
    for job, expected in (
        (later, "runs in 1 min 10 s"),
        (waiting, "available for 20 s"),
        (running, "started 20 s ago"),
        (done, "completed 20 s ago"),
        (gone, "cancelled 20 s ago"),
        (broken, "retries in 40 s"),
    ):
        assert expected in words(text, job.id)
    frozen.advance(200)
    assert "due 2 min 10 s ago" in words(page(browser, "job/"), later.id)


def test_the_whole_time_is_in_the_title_and_in_the_menu(frozen: FrozenClock) -> None:
    browser = login("view_job")
    job = make()[0]
    with override_settings(TIME_ZONE="Europe/Berlin"):
        text = row(page(browser, "job/"), job.id)
    moment = get(job.id).enqueued_at
    assert moment is not None
    whole = re.search(r'<time datetime="([^"]*)" title="([^"]*)">', text)
    assert whole is not None
    assert whole[1] == moment.isoformat()
    assert whole[2].endswith(("CET", "CEST"))
    assert text.count(whole[2]) == 2
    assert f'<code id="ojs-id-{job.id}">{job.id}</code>' in text


@pytest.mark.slow
def test_why_a_job_waits_is_said(frozen: FrozenClock) -> None:
    browser = login("view_job")
    jobs = {name: enqueue("t", [], queue=name) for name in ("served", "paused", "nobody")}
    Queue.objects.filter(name="paused").update(paused=True, paused_by="ada", reason="OPS-1")
    text = page(browser, "job/")
    assert "No worker is alive." in words(text, jobs["nobody"].id)
    worker(queues=["served", "paused"], types=["t"], concurrency=2)
    text = page(browser, "job/")
    assert "No live worker serves the queue nobody." in words(text, jobs["nobody"].id)
    assert "The queue paused is paused by ada. (OPS-1)" in words(text, jobs["paused"].id)
    assert "ojs-waits" not in row(text, jobs["served"].id)
    late = enqueue("t", [], delay="10s")
    assert "ojs-waits" not in row(page(browser, "job/"), late.id)
    frozen.advance(60)
    assert "nothing promotes it" in words(page(browser, "job/"), late.id)
    promote()


def test_what_a_running_job_does_is_said() -> None:
    browser = login("view_job")
    make()
    (job,) = take(worker="box-7")
    Job.objects.filter(pk=job.id).update(progress=0.82, progress_message="page 41 of 50")
    text = page(browser, "job/", state="active")
    assert words(text, job.id).endswith("82 % page 41 of 50 box-7")


# What a click on a value does


@pytest.mark.slow
def test_a_click_on_a_value_narrows_the_list_to_it() -> None:
    browser = login("view_job")
    job = enqueue("mail.send", [], queue="mail", tags=["vip", "a b"], retry={"max_attempts": 1})
    other = enqueue("mail.read", [], queue="other")
    (running,) = take(queues=("other",), types=None, worker="box-7")
    fail(*take(queues=("mail",), types=None), type="app.errors.Broken")
    text = page(browser, "job/")
    found = chips(text, job.id)
    assert found == {
        "mail.send": "q=type%3Amail.send",
        "mail": "queue=mail",
        "Broken": "q=error%3Aapp.errors.Broken",
        "vip": "q=tag%3Avip",
        "a b": "q=tag%3A%22a+b%22",
    }
    for label, query in found.items():
        shown = browser.get(f"{LIST}?{query}").content.decode()
        assert re.findall(r'class="ojs-id" href="[^"]*" title="([^"]*)"', shown) == [str(job.id)], label
    assert chips(text, running.id)["box-7"] == "q=worker%3Abox-7"
    assert running.id == other.id


def test_a_click_keeps_what_was_chosen_before_and_replaces_its_own_kind() -> None:
    browser = login("view_job")
    job = enqueue("mail.send", [], queue="mail", tags=["vip", "new"])
    text = page(browser, "job/", state="available", queue="mail", q="tag:vip type:mail.*", after="x~y")
    found = {label: parse_qs(url) for label, url in chips(text, job.id).items()}
    kept = {"state": ["available"], "queue": ["mail"]}
    assert found["mail.send"] == {**kept, "q": ["tag:vip type:mail.send"]}
    assert found["new"] == {**kept, "q": ["tag:vip type:mail.* tag:new"]}
    assert found["vip"] == {**kept, "q": ["type:mail.* tag:vip"]}


@pytest.mark.parametrize("name", ['a"b', "a\tb", "a\u202eb", "\u00a0"])
def test_a_value_that_cannot_be_searched_is_only_text(name: str) -> None:
    browser = login("view_job")
    job = enqueue("t", [], tags=[name])
    text = page(browser, "job/")
    assert list(chips(text, job.id)) == ["t", "default"]
    assert html.escape(name) in row(text, job.id)


def test_what_the_list_is_narrowed_to_can_be_removed_piece_by_piece() -> None:
    browser = login("view_job")
    make()
    text = page(browser, "job/", state="available", queue="default", q='type:test.job tag:"a b"')
    part = text.partition('<ul class="ojs-narrowings"')[2].partition("</ul>")[0]
    found = re.findall(r'href="\?([^"]*)" title="Remove">(.*?) <span', part)
    state = "state=available"
    assert [(html.unescape(label), parse_qs(html.unescape(url))) for url, label in found] == [
        ("queue:default", parse_qs(f'{state}&q=type:test.job tag:"a b"')),
        ("type:test.job", parse_qs(f'{state}&queue=default&q=tag:"a b"')),
        ('tag:"a b"', parse_qs(f"{state}&queue=default&q=type:test.job")),
    ]
    assert "ojs-narrowings" not in page(browser, "job/", state="available")


# What can be done from a row


def in_every_state() -> dict[str, Any]:
    """A job in each state that an operation can be for."""
    jobs = {
        "scheduled": enqueue("t", [], delay="1h"),
        "available": enqueue("t", [], queue="waits"),
    }
    made = make(4, queue="q", timeout="60s", retry={"max_attempts": 1})
    claimed = take(3, queues=("q",))
    ack(claimed[0])
    fail(claimed[1])
    cancel(made[3])
    states = ("completed", "discarded", "active", "cancelled")
    return jobs | dict(zip(states, (*claimed, made[3]), strict=True))


def test_the_menu_has_what_is_for_the_state_of_its_job() -> None:
    browser = login(superuser=True)
    jobs = in_every_state()
    text = page(browser, "job/")
    assert {state: set(menu(text, job.id)) for state, job in jobs.items()} == {
        "scheduled": {"run_now", "reschedule", "edit", "cancel", "discard"},
        "available": {"edit", "cancel", "discard"},
        "active": {"extend", "cancel"},
        "completed": {"requeue", "purge"},
        "discarded": {"retry", "requeue", "purge"},
        "cancelled": {"requeue", "purge"},
    }


def test_the_menu_has_what_the_user_may_do() -> None:
    jobs = in_every_state()
    text = page(login("view_job", "retry_job", "requeue_job"), "job/")
    assert set(menu(text, jobs["discarded"].id)) == {"retry"}
    assert set(menu(text, jobs["active"].id)) == set()
    browser = login(superuser=True, name="root")
    with override_settings(OJS={"ADMIN": {"READ_ONLY": True}}):
        assert menu(page(browser, "job/"), jobs["discarded"].id) == {}


def act(browser: Client, url: str, **fields: str) -> Any:
    """Open an operation from a row, and confirm it."""
    asked = browser.get(url)
    assert asked.status_code == 200
    return browser.post(url, {**fields, "_confirmed": "1", "reason": "why"})


@pytest.mark.slow
def test_the_user_returns_to_the_list(frozen: FrozenClock) -> None:
    browser = login(superuser=True)
    jobs = in_every_state()
    query = {"state": "discarded", "q": "type:test.*", "queue": "q"}
    text = page(browser, "job/", **query)
    url = menu(text, jobs["discarded"].id)["retry"]
    asked = browser.get(url).content.decode()
    back = html.unescape(re.findall(r'<a href="([^"]*)" class="closelink">', asked)[0])
    done = act(browser, url)
    for where in (back, done["Location"]):
        assert urlsplit(where).path == LIST
        assert parse_qs(urlsplit(where).query) == {name: [value] for name, value in query.items()}
    assert get(jobs["discarded"].id).state == "available"
    assert AuditEntry.objects.get(action="job.retried").reason == "why"
    assert "Retry: 1 done." in browser.get(done["Location"]).content.decode()


def test_a_new_job_is_named_in_the_list() -> None:
    browser = login(superuser=True)
    job = in_every_state()["completed"]
    url = menu(page(browser, "job/", state="completed"), job.id)["requeue"]
    done = act(browser, url, args="[2]", meta="{}", queue="q2")
    assert done["Location"] == f"{LIST}?state=completed"
    new = Job.objects.get(queue="q2")
    assert f'{LIST}{new.pk}/change/">{new.pk}</a>' in browser.get(done["Location"]).content.decode()


def test_the_way_back_leads_nowhere_else() -> None:
    browser = login(superuser=True)
    job = make()[0]
    done = act(browser, f"{LIST}{job.id}/do/cancel/?_list=//evil.example/")
    assert done["Location"].startswith(f"{LIST}?")
    assert "evil.example" not in urlsplit(done["Location"]).netloc


def test_the_dead_letter_has_menus_too() -> None:
    browser = login(superuser=True)
    job = make(retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})[0]
    fail(*take())
    found = menu(page(browser, "deadletter/"), job.id)
    assert set(found) == {"retry", "requeue", "purge"}
    assert act(browser, found["retry"])["Location"] == "/admin/django_ojs/deadletter/"
    assert get(job.id).state == "available"


def test_a_tab_offers_only_what_its_jobs_allow() -> None:
    names = {item.name for item in JOB_OPERATIONS}
    for layout in job_list.LAYOUTS.values():
        assert layout.actions <= names
    assert "extend" not in job_list.LAYOUTS["discarded"].actions


# How much it reads


@pytest.mark.slow
def test_a_page_of_rows_takes_as_many_statements_as_one_row() -> None:
    browser = login(superuser=True)
    enqueue("t", [{"a": 1}], queue="q1", tags=["x"])
    page(browser, "job/")
    with CaptureQueriesContext(connection) as one:
        page(browser, "job/")
    for number in range(40):
        enqueue("t", [{"a": number}], queue=f"q{number % 7}", tags=["x"])
    make(20, delay="1h")
    with CaptureQueriesContext(connection) as many:
        page(browser, "job/")
    assert len(reads(many)) == len(reads(one)) <= 12, "\n".join(reads(many))


def test_what_is_large_is_not_read() -> None:
    small, large = enqueue("t", [1], tags=["a"]), enqueue("t", ["x" * 100_000])
    found = selectors.small_values([small.id, large.id], ("tags", "args"), 2000, using="default")
    assert found == {small.id: [["a"], [1]], large.id: [[], None]}
    assert selectors.small_values([], ("args",), 10, using="default") == {}


def test_rows_are_german_for_a_german_site(frozen: FrozenClock) -> None:
    browser = login(superuser=True)
    job = make(1, retry={"max_attempts": 1})[0]
    fail(*take())
    frozen.advance(180)
    with override_settings(LANGUAGE_CODE="de"), translation.override("de"):
        said = words(page(browser, "job/"), job.id)
    assert "vor 3 min fehlgeschlagen" in said
