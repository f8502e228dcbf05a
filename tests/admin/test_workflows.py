"""The workflows: the list, the page with its graph and its sentence, cancel and resume."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import batch, chain, group, step, workflow
from django_ojs.api import retry
from django_ojs.clock import FrozenClock
from django_ojs.models import AuditEntry, Job, Workflow, WorkflowStep
from django_ojs.services.explain import explain
from django_ojs.services.reap import reap
from django_ojs.services.workflows import read, upkeep
from django_ojs.services.workflows.story import story
from tests.admin.support import cell, login, page, reads
from tests.services.support import ack, fail, take

pytestmark = pytest.mark.usefixtures("no_users")
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}"
ONCE: dict[str, Any] = {"retry": {"max_attempts": 1}}


def told(made: Any) -> str:
    """The sentence about a workflow."""
    row = Workflow.objects.get(pk=made.id)
    found = read.members(row, using="default")
    return story(row, found, read.errors_of(row, using="default"), using="default")


def shown(made: Any, *permissions: str, name: str = "ada") -> str:
    """The page of a workflow."""
    browser = login("view_workflow", "view_job", *permissions, name=name)
    return page(browser, f"workflow/{made.id}/change/")


def picture(text: str) -> ElementTree.Element:
    """The graph of a page; it must be well-formed."""
    found = re.search(r'<svg class="ojs-chart ojs-graph".*?</svg>(?=</div>)', text, re.DOTALL)
    assert found, "no graph"
    return ElementTree.fromstring(found[0])


def do(made: Any, name: str, *permissions: str, **fields: str) -> Any:
    """Confirm an operation on a workflow."""
    browser = login("view_workflow", *permissions)
    path = f"/admin/django_ojs/workflow/{made.id}/do/{name}/"
    return browser.post(path, {"_confirmed": "1", **fields})


def failed_chain() -> Any:
    """Four steps, of which the second failed."""
    steps = [step("files.fetch"), step("files.parse", **ONCE), step("files.sum"), step("files.mail")]
    made = chain(*steps).enqueue(name="import 7")
    ack(*take(types=None))
    fail(*take(types=None), type="TimeoutError")
    return made


def test_the_list_shows_the_outermost_with_their_progress(frozen: FrozenClock) -> None:
    browser = login("view_workflow")
    made = failed_chain()
    frozen.advance(120)
    plain = group(step("a.b"), chain(step("a.c"), step("a.d"))).enqueue()
    text = page(browser, "workflow/")
    assert len(re.findall('class="action-checkbox"', text)) == 0, "nothing may be done"
    assert text.count('class="field-title"') == 2
    assert text.index(str(plain.id)) < text.index("import 7"), "the newest first"
    assert "failed" in cell(text, "import 7", "status")
    assert 'max="4" value="1"' in cell(text, "import 7", "progress")
    assert "1 of 4" in cell(text, "import 7", "progress")
    assert ">2 min</time>" in cell(text, "import 7", "begun")
    assert "running" in cell(text, str(plain.id), "status")
    assert cell(text, str(plain.id), "failures") == "-"
    assert str(made.id) in text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"state__exact": "failed"}, ["import 7"]),
        ({"state__exact": "completed"}, []),
        ({"q": "import 7"}, []),
        ({"q": '"import 7"'}, ["import 7"]),
        ({"q": "name:imp"}, ["import 7"]),
        ({"q": "kind:chain"}, ["import 7"]),
        ({"q": "kind:group"}, ["sums"]),
        ({"q": "kind:ring"}, []),
        ({"q": "sums"}, ["sums"]),
        ({"q": "sum"}, []),
    ],
)
def test_filters_and_search(query: dict[str, str], found: list[str]) -> None:
    failed_chain()
    group(step("a.b")).enqueue(name="sums")
    text = page(login("view_workflow"), "workflow/", **query)
    assert re.findall(r">(import 7|sums)</a></th>", text) == found


def test_search_by_id() -> None:
    made = failed_chain()
    group(step("a.b")).enqueue(name="sums")
    text = page(login("view_workflow"), "workflow/", q=str(made.id))
    assert ">import 7</a>" in text
    assert ">sums</a>" not in text


def test_the_page_says_what_has_happened_and_draws_it() -> None:
    made = failed_chain()
    text = shown(made)
    sentence = "1 of 4 steps done; step-1 failed at attempt 1: TimeoutError: no; 2 did not run"
    assert f'<p class="ojs-story">{sentence}</p>' in text
    drawn = picture(text)
    names = [one.get("aria-label") for one in drawn if one.tag == "a"]
    jobs = {job.type: job.pk for job in Job.objects.all()}
    assert names == [
        "step-0: files.fetch · completed",
        "step-1: files.parse · discarded",
    ]
    assert [one.get("href") for one in drawn if one.tag == "a"] == [
        f"/admin/django_ojs/job/{jobs[kind]}/change/" for kind in ("files.fetch", "files.parse")
    ]
    rest = [one.get("aria-label") for one in drawn.findall("g") if one.get("role") == "img"]
    assert rest == ["step-2: files.sum · cancelled", "step-3: files.mail · cancelled"]
    assert drawn.get("role") == "group"
    assert drawn.get("aria-label")
    assert len(drawn.findall("g[@aria-hidden='true']/path")) == 3


def test_a_large_group_is_one_box_and_many_boxes_are_a_table() -> None:
    made = group(*(step("a.b", [number]) for number in range(13))).enqueue()
    ack(*take(2, types=None))
    (box,) = (one for one in picture(shown(made)) if one.tag == "a")
    assert box.get("aria-label") == "a.b: 13: 11 open · 2 done"
    assert box.get("href") == f"/admin/django_ojs/job/?q=workflow%3A{made.id}"
    jobs = page(login("view_job", name="bob"), "job/", q=f"workflow:{made.id}")
    assert "13 jobs" in jobs
    wide = chain(*(step("a.c") for _ in range(51))).enqueue()
    text = shown(wide, name="eve")
    assert "ojs-graph" not in text
    assert text.count("a.c</td>") == 51


def test_callbacks_stand_below_a_dot_and_nested_workflows_lead_to_their_pages() -> None:
    made = batch(
        step("a.b"), chain(step("a.c"), step("a.d")), on_success=step("a.e"), on_complete=step("a.f")
    ).enqueue()
    inner = Workflow.objects.get(parent_id=made.id)
    drawn = picture(shown(made))
    assert len(drawn.findall("circle")) == 1
    assert len(drawn.findall("g[@aria-hidden='true']/path")) == 4
    hrefs = [one.get("href") for one in drawn if one.tag == "a"]
    assert f"/admin/django_ojs/workflow/{inner.pk}/change/" in hrefs
    browser = login("view_workflow", name="bob")
    text = page(browser, f"workflow/{inner.pk}/change/")
    assert f'href="/admin/django_ojs/workflow/{made.id}/change/"' in text


def test_hostile_names_stay_text() -> None:
    with workflow(HOSTILE[:80]) as made:
        made.add(step("a.b"))
    WorkflowStep.objects.update(key=HOSTILE[:60])
    Job.objects.update(error={"type": HOSTILE, "message": HOSTILE}, state="discarded")
    Workflow.objects.update(failed=1, open=0)
    made_now = Workflow.objects.get()
    text = page(login("view_workflow", name="eve"), f"workflow/{made_now.pk}/change/")
    assert "<script>alert(1)" not in text
    assert "<img src=x" not in text
    assert "&lt;script&gt;" in text
    picture(text)
    assert "<script>alert(1)" not in page(login("view_workflow", name="bob"), "workflow/")


@pytest.mark.parametrize(("permissions", "shown"), [((), False), (("view_args",), True)])
def test_the_meta_is_for_those_who_may_see_that_of_jobs(
    permissions: tuple[str, ...], shown: bool
) -> None:
    made = group(step("test.job")).enqueue()
    Workflow.objects.update(meta={"tenant": "of nobody else"})
    text = page(login("view_workflow", *permissions), f"workflow/{made.id}/change/")
    assert ("of nobody else" in text) is shown


def test_cancel_and_resume() -> None:
    made = group(step("a.b"), step("a.c")).enqueue(name="g")
    refused = do(made, "cancel")
    assert refused.status_code == 403
    assert Workflow.objects.get().state == "running"
    assert AuditEntry.objects.get(action="workflow.cancel").result == "denied"
    browser = login("view_workflow", "cancel_workflow", "resume_workflow", name="bob")
    path = f"/admin/django_ojs/workflow/{made.id}"
    assert "do/resume/" not in browser.get(f"{path}/change/").content.decode()
    browser.post(f"{path}/do/cancel/", {"_confirmed": "1", "reason": "wrong files"})
    assert Workflow.objects.get().state == "cancelled"
    assert set(Job.objects.values_list("state", flat=True)) == {"cancelled"}
    entry = AuditEntry.objects.get(action="workflow.cancelled")
    assert (entry.actor, entry.reason, entry.source) == ("bob", "wrong files", "admin")
    assert told(made) == "0 of 2 jobs done; 2 were cancelled"
    text = browser.get(f"{path}/change/").content.decode()
    assert "do/resume/" in text
    assert "do/cancel/" not in text
    browser.post(f"{path}/do/resume/", {"_confirmed": "1", "reason": "the right ones"})
    ack(*take(2, types=None))
    row = Workflow.objects.get()
    assert (row.state, row.runs) == ("completed", 2)
    after = browser.get(f"{path}/change/").content.decode()
    assert "do/resume/" not in after
    late = browser.post(f"{path}/do/cancel/", {"_confirmed": "1", "reason": ""}, follow=True)
    assert "cannot be cancelled" in late.content.decode()


def test_many_are_cancelled_from_the_list() -> None:
    made = [group(step("a.b")).enqueue() for _ in range(3)]
    browser = login("view_workflow", "cancel_workflow")
    chosen = [str(one.id) for one in made[:2]]
    fields = {"action": "cancel", "_selected_action": chosen, "_confirmed": "1", "_many": "0"}
    browser.post("/admin/django_ojs/workflow/", {**fields, "index": "0", "select_across": "0"})
    states = dict(Workflow.objects.values_list("pk", "state"))
    assert [states[one.id] for one in made] == ["cancelled", "cancelled", "running"]


def test_all_are_stopped_before_the_time_for_their_members_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("django_ojs.admin.workflows.CANCEL_SECONDS", 0.0)
    made = [group(step("a.b"), step("a.c")).enqueue() for _ in range(3)]
    browser = login("view_workflow", "cancel_workflow")
    chosen = [str(one.id) for one in made]
    fields = {"action": "cancel", "_selected_action": chosen, "_confirmed": "1", "_many": "0"}
    path = "/admin/django_ojs/workflow/"
    answer = browser.post(path, {**fields, "index": "0", "select_across": "0"}, follow=True)
    assert "3 done" in answer.content.decode()
    rows = Workflow.objects.filter(state="cancelled", cancel_requested_at__isnull=False)
    assert rows.count() == 3
    cancelled = Job.objects.filter(state="cancelled")
    assert set(cancelled.values_list("workflow_id", flat=True)) == {made[0].id}
    upkeep.finish(seconds=60, using="default")
    assert cancelled.count() == 6


def test_the_sentence_tells_apart_what_ran_and_what_did_not(frozen: FrozenClock) -> None:
    inner = chain(step("a.c", **ONCE), step("a.d"))
    made = workflow("w")
    first = made.add(inner)
    made.add(step("a.e"), after=first)
    record = made.enqueue(workflow_timeout="60s")
    assert told(record) == "0 of 2 steps done; 1 waits for others"
    fail(*take(types=None))
    assert told(record) == "0 of 2 steps done; failed inside: step-0; 1 did not run"
    late = group(step("b.c"), step("b.d")).enqueue(workflow_timeout="60s", name="late")
    take(1, types=None)
    frozen.advance(61)
    reap()
    assert "it did not end within 60 s" in told(late)
    fired = batch(step("a.b", **ONCE), on_complete=step("a.f")).enqueue()
    fail(*take(1, types=None))
    assert told(fired).endswith("callbacks are running")


def test_the_page_of_a_job_knows_its_workflow() -> None:
    made = batch(step("a.b", **ONCE), on_complete=step("a.f")).enqueue(name="nightly")
    (lease,) = take(1, types=None)
    said = f"It is a member of the workflow nightly {made.id}, which is running."
    job = Job.objects.get()
    assert said in explain(job.pk).reasons
    text = page(login("view_job"), f"job/{job.pk}/change/")
    assert f'<a href="/admin/django_ojs/workflow/{made.id}/change/">' in text
    fail(lease)
    reasons = " ".join(explain(job.pk).reasons)
    assert "If it is retried now it runs by itself" in reasons
    retry(job.pk)
    assert "It is detached" in " ".join(explain(job.pk).reasons)
    callback = Job.objects.exclude(pk=job.pk).get()
    assert "the callback on_complete of the workflow" in " ".join(explain(callback.pk).reasons)


def test_few_statements_for_any_number() -> None:
    browser = login("view_workflow")
    group(step("a.b")).enqueue()
    with CaptureQueriesContext(
        connection,
    ) as one:
        page(browser, "workflow/")
    for _ in range(20):
        group(step("a.b")).enqueue()
    with CaptureQueriesContext(connection) as many:
        page(browser, "workflow/")
    assert len(many) == len(one)
    large = group(*(step("a.b", [number]) for number in range(30))).enqueue()
    with CaptureQueriesContext(connection) as page_of_many:
        page(browser, f"workflow/{large.id}/change/")
    assert len(reads(page_of_many)) <= 12


@override_settings(LANGUAGE_CODE="de")
def test_in_german() -> None:
    made = failed_chain()
    text = shown(made)
    assert "1 von 4 Schritten erledigt" in text
    assert "Graph" in text
    assert "2 liefen nicht" in text


def test_a_stranger_sees_nothing() -> None:
    made = failed_chain()
    browser = login("view_job")
    assert browser.get("/admin/django_ojs/workflow/").status_code == 403
    assert browser.get(f"/admin/django_ojs/workflow/{made.id}/change/").status_code == 403
