"""The page of a job: its place in line, what would help, where its facts lead, its last runs."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import clock
from django_ojs.admin.job_page import MOST_LOGS
from django_ojs.clock import FrozenClock
from django_ojs.domain.job import Actor, JobRow
from django_ojs.models import AuditEntry, Event, Job, Queue, Worker
from django_ojs.services import attempt_logs, operate, promote
from django_ojs.services.attempt_logs import LoggedAttempt
from django_ojs.services.queues import pause
from tests.admin.support import login, page, worker
from tests.services.support import ack, fail, held, make, release, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("no_users")]


@pytest.mark.slow
def test_a_waiting_job_has_a_place_and_what_would_help() -> None:
    browser = login("view_job")
    first, *_others, last = make(4)
    (urgent,) = make(1, priority=5)
    make(1, queue="other")
    text = page(browser, f"job/{last.id}/change/")
    assert "4 jobs of its queue are before it." in text
    assert "python manage.py runworker --queue default" in text
    assert "1 job of its queue is before it." in page(browser, f"job/{first.id}/change/")
    assert "It is the next of its queue." in page(browser, f"job/{urgent.id}/change/")
    worker()
    pause(["default"], actor=Actor("admin", "ada"))
    text = page(browser, f"job/{last.id}/change/")
    assert "runworker" not in text
    assert "python manage.py ojs resume default" in text


def buttons(text: str) -> list[tuple[str, str]]:
    """The remedies that are buttons: where each is posted to, and its label."""
    forms = re.findall(r'<form method="post" action="([^"]*)" class="ojs-remedy">(.*?)</form>', text)
    assert all("csrfmiddlewaretoken" in inside for _url, inside in forms)
    labels = [re.findall(r"<button[^>]*>(.*?)</button>", inside) for _url, inside in forms]
    return [(unescape(url), label) for (url, _inside), (label,) in zip(forms, labels, strict=True)]


@pytest.mark.slow
def test_whoever_may_resumes_the_queue_of_a_job_that_waits() -> None:
    browser = login("view_job", "pause_queue", "view_auditentry")
    (job,) = make(1)
    worker()
    pause(["default"], actor=Actor("admin", "kim"))
    place = f"job/{job.id}/change/"
    text = page(browser, place)
    ((url, label),) = buttons(text)
    assert label == "Resume default"
    assert "Jobs are claimed from the queue again, at once." in text
    assert "ojs resume" not in text
    with override_settings(OJS={"ADMIN": {"READ_ONLY": True}}):
        text = page(browser, place)
    assert not buttons(text)
    assert "python manage.py ojs resume default" in text
    careful = Client(enforce_csrf_checks=True)
    careful.force_login(User.objects.get())
    sent = {"_confirmed": "1", "reason": "it is up again"}
    assert careful.post(url, sent).status_code == 403
    assert login("view_job", name="eva").post(url, sent).status_code == 403
    assert Queue.objects.get().paused
    answer = browser.post(url, sent)
    assert answer["Location"] == f"/admin/django_ojs/{place}"
    assert not Queue.objects.get().paused
    entry = AuditEntry.objects.get(action="queue.resumed", result="done")
    assert (entry.actor, entry.reason) == ("ada", "it is up again")
    assert not buttons(browser.get(answer["Location"]).content.decode())


@pytest.mark.slow
def test_workers_that_were_told_to_be_quiet_are_resumed_where_a_job_waits_for_them() -> None:
    browser = login("view_job", "direct_worker")
    (job,) = make(1)
    place = f"job/{job.id}/change/"
    worker("told", directive="quiet", phase="quiet")
    worker("stops", directive="terminate", phase="terminate")
    worker("other", directive="quiet", phase="quiet", types=["other.job"])
    ((url, label),) = buttons(page(browser, place))
    assert label == "Resume told"
    assert not buttons(page(login("view_job", name="eva"), place))
    assert "This would help" not in page(browser, f"job/{make(1, pending=True)[0].id}/change/")
    worker("runs")
    assert not buttons(page(browser, place))
    assert browser.post(url, {"_confirmed": "1"})["Location"] == f"/admin/django_ojs/{place}"
    assert Worker.objects.get(name="told").directive is None


@pytest.mark.parametrize("key", ["//evil.example", "https://evil.example/", "\n", "%00", ""])
def test_a_remedy_leads_back_to_a_page_of_the_admin_only(key: str) -> None:
    browser = login("view_job", "pause_queue", "view_queue")
    make(1)
    pause(["default"], actor=Actor("admin", "kim"))
    answer = browser.post(
        "/admin/django_ojs/queue/default/do/resume/?" + urlencode({"_job": key}), {"_confirmed": "1"}
    )
    assert answer.status_code == 302
    assert answer["Location"].startswith("/admin/django_ojs/")


def test_attempts_say_where_a_person_has_retried(frozen: FrozenClock) -> None:
    (job,) = make(1, retry={"max_attempts": 2, "initial_interval": "PT1S", "jitter": False})
    release(*take())
    for _ in range(2):
        frozen.advance(2)
        promote.promote()
        fail(*take(), type="app.Broken")
    browser, again = login("view_job"), "Retried by hand: attempts count from one again."
    text = page(browser, f"job/{job.id}/change/")
    assert again not in text
    assert "A retry makes it available again." in text
    operate.retry_dead([job.id])
    ack(*take())
    rows = page(browser, f"job/{job.id}/change/").partition('class="ojs-attempts"')[2]
    numbers = re.findall(r'<th scope="row">(\d)</th>|(Retried by hand)', rows)
    assert [first or second for first, second in numbers] == ["1", "1", "2", "Retried by hand", "1"]


def test_facts_lead_to_lists_that_the_user_may_see() -> None:
    (job,) = make(1, retry={"max_attempts": 1})
    fail(*take(), type="app.Broken")
    text = page(login("view_job", "view_queue"), f"job/{job.id}/change/")
    assert '<a href="/admin/django_ojs/job/?q=type%3Atest.job">test.job</a>' in text
    assert '<a href="/admin/django_ojs/queue/default/change/">default</a>' in text
    assert re.search(r'<a href="/admin/django_ojs/job/\?q=incident%3A\w{16}">', text)
    assert "/queue/default/" not in page(login("view_job", name="eva"), f"job/{job.id}/change/")


def test_progress_does_not_bury_the_history(frozen: FrozenClock) -> None:
    (job,) = make(1)
    Job.objects.filter(pk=job.id).update(progress=0.98)
    Event.objects.bulk_create(
        Event(
            id=clock.new_id(),
            kind="job.progress",
            created_at=frozen.time,
            job_id=job.id,
            data={"progress_percent": number},
        )
        for number in range(99)
    )
    Event.objects.create(id=clock.new_id(), kind="job.enqueued", created_at=frozen.time, job_id=job.id)
    text = page(login("view_job"), f"job/{job.id}/change/")
    history = text.partition('id="ojs-history"')[2].partition("</section>")[0]
    assert "job.progress" not in history
    assert "job.enqueued" in history.partition("<details>")[0]
    assert "<td>98 %</td>" in history and "<td>78 %</td>" not in history


def test_the_last_runs_of_the_type_are_a_chart_with_a_table(frozen: FrozenClock) -> None:
    for seconds in (2, 4):
        make(1)
        claimed = take()
        frozen.advance(seconds)
        ack(*claimed)
    make(1, queue="other")
    (job,) = make(1)
    text = page(login("view_job"), f"job/{job.id}/change/")
    related = text.partition('id="ojs-related"')[2].partition("</section>")[0]
    heights = re.findall(r'height="([\d.]+)" class="ojs-bar ojs-bar-good"', related)
    assert [float(height) for height in heights] == [29.0, 58.0]
    assert re.findall(r"<td>(\d s)</td>", related) == ["4 s", "2 s"]
    assert "the longest 4 s" in related
    assert " style=" not in text


@pytest.mark.slow
def test_a_run_is_compared_with_what_is_usual(frozen: FrozenClock) -> None:
    def said(job: JobRow) -> str:
        text = page(browser, f"job/{job.id}/change/")
        related = text.partition('id="ojs-related"')[2].partition("</section>")[0]
        return "".join(re.findall(r"<p>(This one[^<]*)</p>", related))

    browser = login("view_job")
    for seconds in (2, 4, 2, 60):
        make(1)
        claimed = take()
        frozen.advance(seconds)
        ack(*claimed)
    make(1)
    claimed = take()
    frozen.advance(3)
    assert said(claimed[0]) == "", "four are too few to say what is usual"
    ack(*claimed)
    (job,) = make(1)
    assert said(job) == "", "it has not run"
    claimed = take()
    frozen.advance(4)
    assert said(job) == "This one: 4 s; usual: 3 s."
    frozen.advance(8)
    ack(*claimed)
    frozen.advance(100)
    assert said(job) == "This one: 12 s, 4 times the usual 3 s."


def test_the_timeline_has_an_axis_of_round_times(frozen: FrozenClock) -> None:
    (job,) = make(1, timeout="10m")
    claimed = take()
    frozen.advance(190)
    ack(*claimed)
    text = page(login("view_job"), f"job/{job.id}/change/")
    drawn = text.partition('id="ojs-timeline"')[2].partition("</svg>")[0]
    labels = re.findall(r'class="ojs-axis">([^<]*)<', drawn)
    assert labels == ["0 s", "1 min", "2 min", "3 min"]
    places = [float(x) for x in re.findall(r'<line x1="([\d.]+)"', drawn)]
    assert places[0] == 120
    assert [round(place, 0) for place in places[1:]] == [322, 524, 726]


def test_clocks_that_run_are_bars_with_the_grace_hatched(frozen: FrozenClock) -> None:
    (job,) = make(1, timeout="60s", grace_period="20s", total_timeout="4m")
    take()
    frozen.advance(50)
    text = page(login("view_job"), f"job/{job.id}/change/")
    row = text.partition('class="ojs-clock-execution')[2].partition("</tr>")[0]
    assert "<title>50 s of 1 min used</title>" in row
    assert '<rect x="120.0" width="40.0" height="12" fill="url(#ojs-grace-execution)"' in row
    assert '<rect width="100.0" height="12" class="ojs-bar ojs-bar-warn"/>' in row
    total = text.partition('class="ojs-clock-total')[2].partition("</tr>")[0]
    assert '<rect x="160.0" width="0.0"' in total
    assert " style=" not in text
    frozen.advance(20)
    text = page(login("view_job", name="eva"), f"job/{job.id}/change/")
    row = text.partition('class="ojs-clock-execution')[2].partition("</tr>")[0]
    assert '<rect width="140.0" height="12" class="ojs-bar ojs-bar-bad"/>' in row


def logged(job: JobRow, text: str, *, dropped: int = 0) -> None:
    """Store what an attempt of a claimed job has logged."""
    made = LoggedAttempt(held(job), text, text.count("\n") + 1, dropped)
    attempt_logs.write([made], using="default")


LOG = re.compile(
    r'<details id="(ojs-log-\d+)-folded"><summary>([^<]*)</summary>'
    r'<button type="button" class="button ojs-copy" data-copies="(ojs-log-\d+)"[^>]*>Copy</button>'
    r'(?:<p>([^<]*)</p>)?<pre id="(ojs-log-\d+)">([^<]*)</pre></details>'
)


def test_each_attempt_has_what_it_has_logged() -> None:
    (job,) = make(1, retry={"max_attempts": 2, "initial_interval": "PT1S"})
    (first,) = take()
    logged(first, "12:00:00.000 INFO shop: <b>one</b> & two")
    browser = login("view_job", "view_args")
    running = page(browser, f"job/{job.id}/change/")
    ((_, title, *_),) = LOG.findall(running)
    assert title == "Log, 1 line"
    assert running.index("ojs-log-") < running.index('id="ojs-clocks"'), "what it is doing"
    fail(first)
    Job.objects.update(state="available", enqueued_at=clock.now("default"))
    (second,) = take()
    logged(second, "a\nb", dropped=1204)
    fail(second)
    text = page(browser, f"job/{job.id}/change/")
    rows = text.partition('class="ojs-attempts"')[2].partition("</table>")[0]
    found = LOG.findall(rows)
    assert [(title, said, lines) for _, title, _, said, _, lines in found] == [
        ("Log, 1 line", "", "12:00:00.000 INFO shop: &lt;b&gt;one&lt;/b&gt; &amp; two"),
        ("Log, 2 lines", "1,204 lines before it are not kept.", "a\nb"),
    ]
    assert [{key, copied, pre} for key, _, copied, _, pre, _ in found] == [{key} for key, *_ in found]
    assert len(LOG.findall(text)) == 2
    assert " style=" not in text


def test_what_was_logged_is_for_those_who_may_see_arguments() -> None:
    (job,) = make(1, retry={"max_attempts": 1})
    logged(take()[0], "the card is forty-seven-eleven")
    with CaptureQueriesContext(connection) as asked:
        text = page(login("view_job"), f"job/{job.id}/change/")
    assert "forty-seven-eleven" not in text
    assert "ojs-log-" not in text
    assert "Arguments, meta, results and logs are hidden" in text
    assert not [query for query in asked if "attemptlog" in query["sql"]], "not even read"
    eva = login("view_job", "view_args", name="eva")
    assert "forty-seven-eleven" in page(eva, f"job/{job.id}/change/")


@pytest.mark.slow
def test_the_logs_of_the_last_attempts_are_shown() -> None:
    make(1, retry={"max_attempts": 99, "initial_interval": "PT1S"})
    for number in range(MOST_LOGS + 2):
        Job.objects.update(state="available", enqueued_at=clock.now("default"))
        (job,) = take()
        logged(job, f"attempt {number}")
        fail(job)
    text = page(login("view_job", "view_args"), f"job/{job.id}/change/")
    assert [found[-1] for found in LOG.findall(text)] == [
        f"attempt {number}" for number in range(2, MOST_LOGS + 2)
    ]
