"""Four who use the admin, each with a task, on a phone, a tablet, a laptop and a large screen, in light
and in dark colours, one of them in German. Nothing is looked for by its words, which differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission, User
from django.utils import translation
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from django_ojs import clock
from django_ojs.domain import histogram
from django_ojs.domain.incidents import identify
from django_ojs.domain.job import Actor
from django_ojs.domain.states import State
from django_ojs.models import (
    Attempt,
    AuditEntry,
    Event,
    FailureStat,
    Incident,
    Job,
    Queue,
    SavedView,
    Schedule,
    Worker,
    Workflow,
    WorkflowStep,
)
from django_ojs.services import bulk, queues, rollup
from django_ojs.testing import drain
from tests.browser.conftest import NAME
from tests.browser.looks import Look, flaws, looking
from tests.browser.pages import every_page, fill
from tests.browser.rows import WORKERS, showcase
from tests.browser.support import PASSWORD, Browser
from tests.services.support import ack, fail, make, take
from tests.support import poll

LOOKS = (
    Look(390, False, "en"),
    Look(768, True, "en"),
    Look(1280, False, "de"),
    Look(1920, True, "en"),
)
PHONES = (Look(390, False, "de"), Look(390, True, "en"))
ERROR = {
    "type": "builtins.KeyError",
    "message": "'currency'",
    "backtrace": [
        '  File "/venv/lib/python3.13/site-packages/toolz/core.py", line 12, in apply\n    return f(x)',
        '  File "/app/shop/jobs.py", line 37, in handle\n    total = order["currency"]',
        "KeyError: 'currency'",
    ],
}
INCIDENT = identify("order.total", str(ERROR["type"]), str(ERROR["message"]))
FIRST_ORDER = 3000
SECRET = "of-customer-4711-only"
_IN_VIEW = """
const box = arguments[0].getBoundingClientRect();
return box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.right <= innerWidth;
"""
_TEXT = "return [...document.querySelectorAll(arguments[0])].map((x) => x.innerText).join(' ')"


class Person:
    """A user at the window, whose clicks are counted."""

    def __init__(self, browser: Browser, look: Look) -> None:
        self.browser, self.look = browser, look
        self.clicks = 0

    def click(self, selector: str, within: WebElement | None = None) -> None:
        """Click what can be seen and hit with a thumb."""
        element = (within or self.browser.one("body")).find_element("css selector", selector)
        self.browser.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        assert self.browser.driver.execute_script(_IN_VIEW, element), selector
        assert min(element.size["width"], element.size["height"]) >= 14, (selector, element.size)
        self.clicks += 1
        element.click()

    def follow(self, selector: str, within: WebElement | None = None) -> None:
        """Click, and wait for the page to which that leads."""
        self.browser.leave(lambda: self.click(selector, within))

    def read(self, selector: str) -> str:
        """The text of these elements, also while the page is renewed."""
        return str(self.browser.driver.execute_script(_TEXT, selector))

    def number(self, value: int) -> str:
        """As the language writes it."""
        return f"{value:,}".replace(",", "." if self.look.language == "de" else ",")

    def finds_no_flaw(self, readable: str) -> None:
        found = flaws(self.browser, self.look, readable)
        assert not found, "\n".join(found)


@pytest.fixture
def person(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Person]:
    """Somebody at a window of the kind that the test is given."""
    with looking(browser, request.param):
        yield Person(browser, request.param)


on_each_screen = pytest.mark.parametrize("person", LOOKS, ids=str, indirect=True)
on_a_phone = pytest.mark.parametrize("person", PHONES, ids=str, indirect=True)


def outage(count: int) -> list[UUID]:
    """A bad deployment: so many jobs, each with an order of its own, that failed for good."""
    now = clock.now("default")
    jobs, attempts = [], []
    for number in range(count):
        then = now - timedelta(minutes=9) + timedelta(milliseconds=number)
        ended = then + timedelta(seconds=1)
        ran: dict[str, Any] = {"attempt": 1, "lease_seq": 1, "worker_id": WORKERS[0], "error": ERROR}
        job = Job(
            id=clock.new_id(),
            type="order.total",
            queue="orders",
            state=State.DISCARDED,
            args=[{"order_id": FIRST_ORDER + number}],
            max_attempts=1,
            created_at=then,
            limits_from=then,
            enqueued_at=then,
            started_at=then,
            finished_at=ended,
            errors=[ERROR],
            incident=INCIDENT,
            **ran,
        )
        jobs.append(job)
        attempts.append(
            Attempt(
                job_id=job.pk,
                lease_id=clock.new_lease(),
                started_at=then,
                ended_at=ended,
                outcome="failed",
                **ran,
            )
        )
    Job.objects.bulk_create(jobs, batch_size=200)
    Attempt.objects.bulk_create(attempts, batch_size=200)
    at = histogram.floor(now - rollup.LATE, rollup.MINUTE) - timedelta(minutes=8)
    said = {"type": "order.total", "error": str(ERROR["type"])}
    FailureStat.objects.create(at=at, queue="orders", count=count, incident=INCIDENT, **said)
    said |= {"message": str(ERROR["message"]), "sample": str(ERROR["message"])}
    Incident.objects.create(id=INCIDENT, first_seen=at, last_seen=at, **said)
    return [job.pk for job in jobs]


@on_each_screen
@pytest.mark.timeout(180)
def test_who_is_on_call_retries_what_a_deployment_broke_and_sees_it_end(person: Person) -> None:
    """In six clicks: failures, retry all, confirm, keep it up to date, the order."""
    browser, count = person.browser, 1100
    showcase()
    broken = outage(count)
    others = Job.objects.filter(state=State.DISCARDED).exclude(incident=INCIDENT)
    before = set(others.values_list("pk", flat=True))
    browser.open("dashboard/")
    person.finds_no_flaw(".ojs-card, .ojs-card a, .ojs-figure figcaption, .ojs-legend td")
    person.follow(".ojs-card a[href*='/failurestat/']")
    worst = browser.one(".ojs-incident")
    assert "order.total KeyError" in worst.text
    assert "'currency'" in worst.text
    person.finds_no_flaw(".ojs-incident h2, .ojs-incident h2 b, .ojs-numbers a, .ojs-acts .button")
    assert person.number(count) in worst.find_element("css selector", ".ojs-acts .button").text
    person.follow(".ojs-acts .button", worst)
    assert person.number(count) in browser.one(".ojs-note").text
    person.finds_no_flaw(".ojs-question, .ojs-note, .submit-row a")
    person.follow("[name=_confirmed]")
    person.follow(".ojs-refresh a[href*='refresh=5']")
    try:
        drain(bulk.QUEUE)
        with translation.override(person.look.language):
            completed, again, waiting = map(
                translation.gettext, ("%s completed", "%s failed again", "%s still waiting")
            )
        poll(lambda: waiting % person.number(count) in person.read(".ojs-bulk"))
        while claimed := take(200, queues=("orders",), types=("order.total",)):
            ack(*claimed[:-1])
            fail(claimed[-1], type="builtins.KeyError")
        failed = Job.objects.filter(pk__in=broken, state=State.DISCARDED).count()
        assert 1 <= failed <= 10
        outcome = f"{completed % person.number(count - failed)}, {again % failed}"
        poll(lambda: outcome in person.read(".ojs-bulk"))
        person.finds_no_flaw(".ojs-bulk, .ojs-bulk a, .ojs-bulk span")
        person.follow(".ojs-bulk strong a")
        assert outcome in person.read("section[aria-labelledby=ojs-why]")
        person.finds_no_flaw("section[aria-labelledby=ojs-why] :is(p, strong)")
    finally:
        browser.open("job/?refresh=off")
    assert person.clicks <= 6
    done = Job.objects.filter(pk__in=broken).exclude(state=State.DISCARDED)
    assert set(done.values_list("state", flat=True)) == {State.COMPLETED}
    assert set(others.exclude(pk__in=broken).values_list("pk", flat=True)) == before
    assert AuditEntry.objects.filter(action="job.retried").count() == count


@on_each_screen
def test_a_developer_finds_the_job_of_an_order_and_reads_why_it_failed(person: Person) -> None:
    """By its number, in the list, and on one page; and comes back by a view."""
    browser = person.browser
    showcase()
    job = outage(30)[17]
    browser.open("job/")
    person.finds_no_flaw(".ojs-job .ojs-chip, .ojs-job .ojs-id, .ojs-problem, .ojs-badge, .ojs-args")
    browser.fill("q", f"order_id:{FIRST_ORDER + 17}")
    browser.leave(lambda: browser.press(Keys.ENTER))
    assert len(browser.all(".ojs-job")) == 1
    assert "KeyError" in person.read(".ojs-problem")
    assert str(FIRST_ORDER + 17) in person.read(".ojs-args")
    person.click(".ojs-save summary")
    browser.fill("name", "My order")
    person.follow(".ojs-save .button")
    person.follow(".ojs-job .ojs-id")
    assert browser.path == f"/admin/django_ojs/job/{job}/change/"
    verdict = browser.one(".ojs-verdict")
    assert "KeyError: 'currency' in shop/jobs.py:37, handle()" in verdict.text
    assert browser.driver.execute_script(_IN_VIEW, verdict), "without scrolling"
    assert 'total = order["currency"]' in person.read(".ojs-frame")
    assert str(FIRST_ORDER + 17) in person.read("section[aria-labelledby=ojs-data]")
    person.finds_no_flaw(".ojs-verdict, .ojs-frame, .ojs-panel h2, .ojs-panel td, .object-tools a")
    browser.open("job/")
    person.follow(".ojs-views a")
    assert [row.get_attribute("title") for row in browser.all(".ojs-id")] == [str(job)]
    person.finds_no_flaw(".ojs-views a, .ojs-narrowings .ojs-chip")
    assert SavedView.objects.get().name == "My order"


@on_each_screen
def test_a_developer_reads_why_a_job_waits_and_for_what(person: Person) -> None:
    browser = person.browser
    showcase()
    make(2, "erp.push", queue="erp")
    job = Job.objects.filter(queue="erp").order_by("-pk")[0]
    browser.open("job/?state=available")
    (row,) = [row for row in browser.all(".ojs-job") if row.get_attribute("data-key") == str(job.pk)]
    assert "erp" in row.find_element("css selector", ".ojs-waits").text
    person.follow(".ojs-id", row)
    why = browser.one("section[aria-labelledby=ojs-why]")
    assert browser.driver.execute_script(_IN_VIEW, why), "without scrolling"
    assert "python manage.py runworker --queue erp" in why.text
    person.finds_no_flaw("section[aria-labelledby=ojs-why] :is(p, li, pre)")


@pytest.fixture
def vera(person: Person) -> Iterator[str]:
    """Somebody who may see everything but arguments, logged in at the window."""
    user = User.objects.create_user("vera", password=PASSWORD, is_staff=True)
    ours = Permission.objects.filter(content_type__app_label="django_ojs")
    user.user_permissions.set(ours.filter(codename__startswith="view_").exclude(codename="view_args"))
    person.browser.login(user.username)
    yield user.username
    person.browser.login(NAME)
    user.delete()


def confidential() -> None:
    """Whatever jobs are given and give, in every job, attempt and event, and what will be given."""
    given = {"args_json": json.dumps([{"customer": SECRET}]), "meta_json": json.dumps({"t": SECRET})}
    for plan in Schedule.objects.all():
        Schedule.objects.filter(pk=plan.pk).update(template={**plan.template, **given})
    WorkflowStep.objects.update(call={"type": "report.render", **given})
    Workflow.objects.update(meta={"tenant": SECRET})
    Job.objects.update(
        args=[{"customer": SECRET}],
        meta={"tenant": SECRET},
        result={"for": SECRET},
        checkpoint={"at": SECRET},
        progress_data={"of": SECRET},
    )
    Attempt.objects.update(late_report={"result": SECRET})
    Event.objects.update(data={"result": SECRET})


@on_each_screen
@pytest.mark.timeout(180)
def test_a_viewer_sees_no_argument_anywhere(person: Person, vera: str) -> None:
    browser = person.browser
    fill(User.objects.get(username=vera).pk)
    outage(3)
    confidential()
    seen = []
    for path in every_page():
        browser.open(path)
        if SECRET in browser.driver.page_source:
            seen.append(browser.path)
        assert browser.one("h1").text, path
    assert not seen
    for words in (f"customer:{SECRET}", f"args.customer:{SECRET}", f"meta.tenant:{SECRET}"):
        browser.open(f"job/?q={words}")
        assert not browser.all(".ojs-job"), words
        assert browser.all(".messagelist li"), words
    browser.open("job/")
    assert not browser.all(".ojs-args, .ojs-act, .action-select")
    person.finds_no_flaw(".ojs-job .ojs-chip, .ojs-job .ojs-id")


@on_each_screen
def test_who_may_see_arguments_sees_them(person: Person) -> None:
    """So that it is known what the viewer does not see."""
    showcase()
    confidential()
    person.browser.open("job/")
    assert SECRET in person.read(".ojs-args")
    job = Job.objects.filter(state=State.COMPLETED)[0]
    person.browser.open(f"job/{job.pk}/change/")
    assert person.browser.driver.page_source.count(SECRET) == 5


def row_of(browser: Browser, key: str) -> WebElement:
    """A row of a board."""
    return browser.one(f"#ojs-board tr[data-key='{key}']")


@on_a_phone
def test_an_operator_pauses_a_queue_and_resumes_it(person: Person) -> None:
    browser = person.browser
    showcase()
    browser.open("queue/")
    person.finds_no_flaw("#ojs-board th a, .ojs-badge, .ojs-switch summary")
    for paused, reason in ((True, "the mail server is down"), (False, "it is up again")):
        row = row_of(browser, "mail")
        person.click(".ojs-switch summary", row)
        row.find_element("css selector", "[name=reason]").send_keys(reason)
        person.follow(".ojs-switch .button", row)
        queue = Queue.objects.get(name="mail")
        assert queue.paused is paused
        assert browser.path == "/admin/django_ojs/queue/"
        assert browser.all(".messagelist .success")
        assert ("ada" in row_of(browser, "mail").text) is paused
        assert AuditEntry.objects.latest("pk").reason == reason
    assert person.clicks == 4


@on_a_phone
def test_an_operator_resumes_a_queue_on_the_page_of_a_job_that_waits(person: Person) -> None:
    browser = person.browser
    showcase()
    job = make(1, "mail.send", queue="mail")[0]
    queues.pause(["mail"], actor=Actor("admin", "kim", "the mail server is down"))
    browser.open(f"job/{job.id}/change/")
    assert "the mail server is down" in person.read("section[aria-labelledby=ojs-why]")
    person.finds_no_flaw("form.ojs-remedy, form.ojs-remedy label, form.ojs-remedy .button")
    browser.fill("reason", "it is up again")
    person.follow("form.ojs-remedy .button")
    assert browser.path == f"/admin/django_ojs/job/{job.id}/change/"
    assert not Queue.objects.get(name="mail").paused
    assert AuditEntry.objects.latest("pk").reason == "it is up again"
    assert not browser.all(".ojs-remedy")


@on_a_phone
def test_an_operator_quiets_a_worker_of_the_board(person: Person) -> None:
    browser = person.browser
    showcase()
    browser.open("worker/")
    person.finds_no_flaw("#ojs-board th a, .ojs-badge, .ojs-runs li")
    key = Worker.objects.get(name=WORKERS[1]).pk
    person.follow("th a", row_of(browser, str(key)))
    person.follow(".object-tools a[href$='/do/quiet/']")
    person.follow("[name=_confirmed]")
    assert dict(Worker.objects.values_list("name", "directive")) == {
        WORKERS[0]: None,
        WORKERS[1]: "quiet",
    }
    person.finds_no_flaw(".ojs-badge, .ojs-panel td, .object-tools a")


def test_a_worker_that_is_quiet_can_be_resumed_where_a_job_waits_for_it(browser: Browser) -> None:
    showcase()
    Worker.objects.update(phase="quiet", directive="quiet")
    job: Any = make(1, "mail.send", queue="mail")[0]
    browser.open(f"job/{job.id}/change/")
    assert len(browser.all("form.ojs-remedy")) == 2
    browser.submit("form.ojs-remedy .button")
    assert browser.path == f"/admin/django_ojs/job/{job.id}/change/"
    assert Worker.objects.filter(directive=None).count() == 1
