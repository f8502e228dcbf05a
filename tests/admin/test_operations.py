"""What people do to jobs in the admin: confirmed, permitted, under lock, audited."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client, override_settings

from django_ojs import clock
from django_ojs.api import enqueue, get
from django_ojs.clock import FrozenClock
from django_ojs.models import AuditEntry, Job
from tests.admin.support import do, login, page
from tests.services.support import ack, fail, make, take

pytestmark = pytest.mark.usefixtures("no_users")
LIST = "/admin/django_ojs/job/"


def in_state(state: str) -> Any:
    """A job in a state."""
    match state:
        case "available":
            return make()[0]
        case "scheduled":
            return make(delay="1h")[0]
        case "active":
            make(timeout="60s")
            return take()[0]
        case "completed":
            make()
            job = take()[0]
            ack(job)
            return job
        case "discarded":
            make(retry={"max_attempts": 1})
            job = take()[0]
            fail(job)
            return job
        case _:
            make()
            job = take()[0]
            fail(job)
            return job


@pytest.mark.parametrize(
    ("name", "permission", "state", "fields", "becomes"),
    [
        ("retry", "retry_job", "discarded", {}, {"state": "available", "attempt": 0}),
        ("run_now", "retry_job", "scheduled", {}, {"state": "available"}),
        ("run_now", "retry_job", "retryable", {}, {"state": "available"}),
        ("reschedule", "retry_job", "scheduled", {"when": "2h"}, {"state": "scheduled"}),
        ("cancel", "cancel_job", "active", {}, {"state": "cancelled"}),
        ("cancel", "cancel_job", "available", {}, {"state": "cancelled"}),
        ("extend", "extend_job", "active", {"by": "5m"}, {"extended_ms": 300_000}),
        ("extend", "extend_job", "active", {"by": "", "other": "90s"}, {"extended_ms": 90_000}),
        ("edit", "edit_job", "available", {"priority": "7"}, {"priority": 7}),
        ("edit", "edit_job", "available", {"queue": "q2"}, {"queue": "q2"}),
        ("edit", "edit_job", "available", {"timeout": "5m"}, {"timeout_ms": 300_000}),
        ("edit", "edit_job", "available", {"retry": '{"max_attempts": 9}'}, {"max_attempts": 9}),
        ("discard", "discard_job", "available", {}, {"state": "discarded", "dead_letter": False}),
    ],
)
def test_an_operation_asks_acts_and_leaves_an_audit_row(
    frozen: FrozenClock, name: str, permission: str, state: str, fields: Any, becomes: Any
) -> None:
    browser = login("view_job", permission)
    job = in_state(state)
    frozen.advance(1)
    path = f"{LIST}{job.id}/do/{name}/"
    assert f"do/{name}/" in page(browser, f"job/{job.id}/change/")
    asked = browser.get(path)
    assert asked.status_code == 200
    assert "Reason" in asked.content.decode()
    assert browser.post(path, fields).status_code == 200, "not confirmed: the page again"
    before = get(job.id)
    done = do(browser, job, name, **fields, reason="because")
    assert done.status_code == 302
    after = get(job.id)
    assert after != before
    assert {key: getattr(after, key) for key in becomes} == becomes
    entry = AuditEntry.objects.get(source="admin")
    assert (entry.actor, entry.reason, entry.address) == ("ada", "because", "127.0.0.1")
    assert (entry.target_type, entry.target_id, entry.result) == ("job", str(job.id), "done")
    assert "because" in page(browser, f"job/{job.id}/change/")


def test_an_extension_says_what_was_granted(frozen: FrozenClock) -> None:
    browser = login("view_job", "extend_job")
    make(timeout=60, total_timeout=80)
    (job,) = take()
    path = f"{LIST}{job.id}/do/extend/"
    shown = browser.post(path, {"by": "5m", "_confirmed": "1"}, follow=True).content.decode()
    assert "20 s granted" in shown
    assert get(job.id).extended_ms == 20_000
    shown = browser.post(path, {"by": "5m", "_confirmed": "1"}, follow=True).content.decode()
    assert "leaves no room" in shown


@pytest.mark.parametrize("name", ["retry", "run_now", "extend", "edit", "discard", "purge", "requeue"])
def test_a_lost_race_is_said_and_changes_nothing(name: str) -> None:
    """The page was opened before somebody else was quicker."""
    browser = login(superuser=True)
    job = in_state("active" if name in ("purge", "requeue", "edit", "discard") else "completed")
    before = get(job.id)
    fields = {"by": "5m", "priority": "1", "typed": "purge", "args": "[]", "meta": "{}", "queue": "q"}
    response = browser.post(f"{LIST}{job.id}/do/{name}/", {**fields, "_confirmed": "1"}, follow=True)
    assert "was left as it is" in response.content.decode()
    assert get(job.id) == before
    assert Job.objects.count() == 1


@pytest.mark.parametrize("name", ["retry", "cancel", "extend", "edit", "discard", "purge", "requeue"])
@pytest.mark.fault("S9", "S26")
def test_a_forged_post_without_permission_is_refused_and_noted(name: str) -> None:
    browser = login("view_job", "view_args")
    job = in_state("available")
    assert f"do/{name}/" not in page(browser, f"job/{job.id}/change/")
    before = get(job.id)
    assert do(browser, job, name, by="5m", priority="1", typed="purge").status_code == 403
    assert get(job.id) == before
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.result, entry.actor) == (f"job.{name}", "denied", "ada")
    listed = {"action": name, "_selected_action": [str(job.id)], "_confirmed": "1", "typed": "purge"}
    browser.post(LIST, listed)
    assert get(job.id) == before


def test_read_only_takes_everything_away() -> None:
    browser = login(superuser=True)
    job = in_state("available")
    with override_settings(OJS={"ADMIN": {"READ_ONLY": True}}):
        assert "/do/" not in page(browser, f"job/{job.id}/change/")
        assert do(browser, job, "cancel").status_code == 403
        browser.post(LIST, {"action": "cancel", "_selected_action": [str(job.id)], "_confirmed": "1"})
    assert get(job.id).state == "available"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("reschedule", {"when": "yesterday"}),
        ("extend", {"by": "", "other": "-5"}),
        ("extend", {"by": "", "other": ""}),
        ("edit", {}),
        ("edit", {"priority": "1000"}),
        ("edit", {"queue": "No Such"}),
        ("edit", {"timeout": "soon"}),
        ("edit", {"retry": "{"}),
        ("edit", {"retry": '{"max_attempt": 1}'}),
        ("requeue", {"args": "{", "queue": "q"}),
        ("purge", {"typed": "yes"}),
    ],
)
def test_bad_input_is_explained(name: str, fields: dict[str, str]) -> None:
    browser = login(superuser=True)
    job = in_state("completed" if name in ("requeue", "purge") else "available")
    before = get(job.id)
    response = do(browser, job, name, **fields)
    assert response.status_code == 200
    assert "errorlist" in response.content.decode()
    assert get(job.id) == before


def test_edit_clears_what_is_to_be_the_default() -> None:
    browser = login("view_job", "edit_job")
    job = enqueue("test.job", total_timeout="1h", priority=5, retry={"max_attempts": 9})
    do(browser, job, "edit", total_timeout="default", retry="default")
    edited = get(job.id)
    assert (edited.total_timeout_ms, edited.max_attempts, edited.priority) == (None, 3, 5)


def test_edit_and_requeue_makes_a_new_job_with_lineage() -> None:
    browser = login("view_job", "view_args", "requeue_job")
    enqueue("test.job", [1], queue="q1", timeout="7s", meta={"a": 1}, priority=5)
    old = take(queues=("q1",))[0]
    ack(old)
    form = browser.get(f"{LIST}{old.id}/do/requeue/").content.decode()
    assert "[1]" in form
    response = do(browser, old, "requeue", args="[2]", meta='{"a": 1}', queue="q2", reason="typo")
    new = Job.objects.exclude(pk=old.id).get()
    assert response["Location"].endswith(f"{new.pk}/change/")
    assert browser.get(f"{LIST}{new.pk}/change/").status_code == 200
    assert (new.type, new.args, new.queue, new.priority) == ("test.job", [2], "q2", 5)
    assert (new.timeout_ms, new.timeout_explicit) == (7000, True)
    assert new.meta == {"a": 1, "retried_from": str(old.id)}
    assert get(old.id).state == "completed"
    assert AuditEntry.objects.get(action="job.requeued").data == {"new_job_id": str(new.pk)}
    assert str(old.id) in page(browser, f"job/{new.pk}/change/")


def test_who_may_not_see_arguments_cannot_requeue() -> None:
    browser = login("view_job", "requeue_job")
    job = in_state("completed")
    assert "do/requeue/" not in page(browser, f"job/{job.id}/change/")
    assert browser.get(f"{LIST}{job.id}/do/requeue/").status_code == 403


@pytest.mark.fault("S35")
def test_purge() -> None:
    browser = login("view_job", "purge_job")
    job = in_state("completed")
    do(browser, job, "purge", typed="purge", reason="gdpr")
    assert not Job.objects.exists()
    assert AuditEntry.objects.get(action="job.purged").reason == "gdpr"


def on_list(browser: Client, name: str, keys: list[str], **fields: str) -> Any:
    """Run an action of the list to its end."""
    data = {"action": name, "_selected_action": keys, "select_across": "0", "index": "0", **fields}
    asked = browser.post(LIST + fields.pop("query", ""), data)
    assert asked.status_code == 200
    assert "_confirmed" in asked.content.decode()
    return browser.post(LIST, {**data, "_confirmed": "1"}, follow=True)


def test_an_action_on_many_jobs_leaves_out_those_that_it_is_not_for() -> None:
    browser = login("view_job", "cancel_job")
    jobs = make(5)
    ack(*take(2))
    response = on_list(browser, "cancel", [str(job.id) for job in jobs], reason="x")
    text = response.content.decode()
    assert "3 done" in text
    assert text.count("was left as it is") == 2
    assert Job.objects.filter(state="cancelled").count() == 3
    assert AuditEntry.objects.filter(source="admin").count() == 3


def select(browser: Client, name: str, query: str, jobs: list[Any]) -> Callable[[], str]:
    """Select jobs in a list and choose an action; what is returned confirms it, and has the answer."""
    data = {"action": name, "_selected_action": [str(job.id) for job in jobs], "index": "0"}
    data["select_across"] = "0"
    assert "_confirmed" in browser.post(LIST + query, data).content.decode()

    def confirm() -> str:
        response = browser.post(LIST + query, {**data, "_confirmed": "1"}, follow=True)
        return str(response.content.decode())

    return confirm


@pytest.mark.parametrize("more", ["", "&queue=default", "&sort=line"])
def test_selected_jobs_that_have_left_the_tab_are_cancelled_too(more: str) -> None:
    browser = login("view_job", "cancel_job")
    confirm = select(browser, "cancel", f"?state=available{more}", make(2))
    take(1)
    assert "2 done" in confirm()
    assert set(Job.objects.values_list("state", flat=True)) == {"cancelled"}


def test_selected_jobs_that_an_action_is_no_longer_for_are_named() -> None:
    browser = login("view_job", "retry_job")
    jobs = [in_state("discarded") for _number in range(3)]
    confirm = select(browser, "retry", "?state=discarded", jobs)
    do(login("view_job", "retry_job", name="eva"), jobs[0], "retry")
    ack(*take())
    Job.objects.filter(pk=jobs[1].id).delete()
    text = confirm()
    assert "1 done" in text
    assert f"{jobs[0].id} was left as it is: it is completed by now." in text
    assert f"{jobs[1].id} is no longer there." in text
    assert {job.state for job in Job.objects.all()} == {"completed", "available"}


def test_selected_jobs_that_have_left_the_dead_letter_are_named_and_left() -> None:
    browser = login("view_deadletter", "purge_job")
    jobs = [in_state("discarded") for _number in range(2)]
    Job.objects.update(dead_letter=True)
    data = {"action": "purge", "_selected_action": [str(job.id) for job in jobs], "index": "0"}
    path = "/admin/django_ojs/deadletter/"
    assert "_confirmed" in browser.post(path, data).content.decode()
    Job.objects.filter(pk=jobs[0].id).update(dead_letter=False)
    confirmed = {**data, "_confirmed": "1", "typed": "purge"}
    text = browser.post(path, confirmed, follow=True).content.decode()
    assert "1 done" in text
    assert f"{jobs[0].id} is no longer there." in text
    assert Job.objects.get().pk == jobs[0].id


@pytest.mark.slow
def test_all_that_match_up_to_a_thousand_at_once() -> None:
    browser = login("view_job", "cancel_job")
    make(450)
    make(3, queue="other")
    data = {"action": "cancel", "_selected_action": ["x"], "select_across": "1", "index": "0"}
    keys = [str(Job.objects.first().pk)]  # type: ignore[union-attr]
    data["_selected_action"] = keys
    browser.post(f"{LIST}?queue=default", {**data, "_confirmed": "1"})
    assert Job.objects.filter(state="cancelled").count() == 450
    assert Job.objects.filter(queue="other", state="available").count() == 3


@pytest.mark.fault("S9")
def test_an_action_of_the_list_that_is_forged_is_refused_and_noted() -> None:
    browser = login("view_job")
    jobs = make(2)
    keys = [str(job.id) for job in jobs]
    action = {"action": "cancel", "_selected_action": keys, "index": "0"}
    for more in ({}, {"_confirmed": "1"}, {"_confirmed": "1", "select_across": "1"}):
        AuditEntry.objects.all().delete()
        assert browser.post(LIST, {**action, **more}).status_code == 403
        noted = AuditEntry.objects.values_list("action", "target_id", "result", "data__count")
        assert list(noted) == [("job.cancel", "", "denied", 2)]
    flood = [str(number) for number in range(150)]
    assert browser.post(LIST, {**action, "_selected_action": flood}).status_code == 403
    assert len(AuditEntry.objects.latest("pk").data["ids"]) == 10
    assert {get(job.id).state for job in jobs} == {"available"}


def test_who_may_not_look_leaves_no_trace_and_learns_nothing() -> None:
    browser = login("view_queue")
    (job,) = make(1)
    nobody = clock.new_id()
    action = {"action": "cancel", "_selected_action": [str(job.id)], "index": "0"}
    assert browser.post(LIST, action).status_code == 403
    for key in (job.id, nobody):
        assert browser.get(f"{LIST}{key}/do/cancel/").status_code == 403
        assert browser.post(f"{LIST}{key}/do/cancel/", {"_confirmed": "1"}).status_code == 403
    assert AuditEntry.objects.count() == 0


def test_a_refusal_is_noted_with_a_transaction_for_each_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    browser = login("view_job")
    (job,) = make(1)
    assert do(browser, job, "cancel").status_code == 403
    action = {"action": "cancel", "_selected_action": [str(job.id)], "index": "0"}
    assert browser.post(LIST, action).status_code == 403
    noted = AuditEntry.objects.values_list("action", "target_id", "result")
    assert list(noted) == [("job.cancel", str(job.id), "denied")] * 2


def test_the_history_of_a_job_is_its_audit() -> None:
    browser = login("view_job", "view_auditentry", "cancel_job")
    job, other = make(2)
    for each in (job, other):
        do(browser, each, "cancel", reason=f"of {each.id}")
    path = f"{LIST}{job.id}/history/"
    assert f'<a href="{path}" class="historylink">' in page(browser, f"job/{job.id}/change/")
    text = browser.get(path, follow=True).content.decode()
    assert f"of {job.id}" in text
    assert f"of {other.id}" not in text
    stranger = login("view_job", name="eva")
    assert "historylink" not in page(stranger, f"job/{job.id}/change/")
    assert stranger.get(path).status_code == 403


@pytest.mark.parametrize(
    ("state", "names"),
    [
        ("discarded", {"retry", "purge"}),
        ("completed", {"purge"}),
        ("active", {"extend", "cancel"}),
        ("scheduled", {"run_now", "reschedule", "edit", "cancel", "discard"}),
    ],
)
def test_a_tab_offers_what_its_jobs_can_be_done(state: str, names: set[str]) -> None:
    browser = login(superuser=True)
    in_state(state)
    text = page(browser, "job/", state=state).partition('name="action"')[2].partition("</select>")[0]
    assert set(re.findall(r'value="(\w+)"', text)) == names
    everywhere = page(browser, "job/").partition('name="action"')[2].partition("</select>")[0]
    assert len(re.findall(r'value="(\w+)"', everywhere)) == 8


def test_words_of_buttons_are_not_those_of_the_way_back() -> None:
    browser = login(superuser=True)
    job = in_state("available")
    path = f"/admin/django_ojs/job/{job.id}/do/cancel/"
    with override_settings(LANGUAGE_CODE="de"):
        text = browser.get(path).content.decode()
    assert 'value="Job abbrechen"' in text
    assert ">Job behalten</a>" in text


def test_a_job_that_has_ended_is_not_loaded_anew() -> None:
    browser = login(superuser=True)
    ended, live = in_state("completed"), in_state("available")
    page(browser, f"job/{live.id}/change/", refresh="5")
    assert "refresh.js" in page(browser, f"job/{live.id}/change/")
    assert "refresh.js" not in page(browser, f"job/{ended.id}/change/")


@override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 1}})
def test_a_list_of_one_queue_says_how_far_it_looked() -> None:
    browser = login("view_job")
    make(2)
    said = "Looked among the newest"
    assert said not in page(browser, "job/")
    assert page(browser, "job/", queue="default").count(said) == 1
    assert page(browser, "job/", queue="default", q="type:test.job").count(said) == 1


@pytest.mark.parametrize("name", ["job", "queue", "worker", "auditentry", "event"])
def test_lists_say_what_they_are(name: str) -> None:
    text = page(login(superuser=True), f"{name}/")
    assert "to view" not in text
    assert "to change" not in text


def test_the_confirmation_asks_about_this_job_and_its_buttons_are_no_riddle() -> None:
    """*Cancel* beside *Go back* could each be taken for the other, and for another job."""
    browser = login("view_job", "cancel_job", "discard_job", "retry_job")
    job = in_state("active")
    text = page(browser, f"job/{job.id}/do/cancel/")
    assert (
        f'<p class="ojs-question"><strong>Cancel job?</strong> <code>test.job {job.id}</code>' in text
    )
    assert re.findall(r'name="_confirmed" value="([^"]+)"', text) == ["Cancel job"]
    assert re.findall(r'class="closelink">([^<]+)<', text) == ["Keep job"]
    text = page(browser, f"job/{in_state('available').id}/do/discard/")
    assert re.findall(r'class="closelink">([^<]+)<', text) == ["Keep job"]
    text = page(browser, f"job/{in_state('discarded').id}/do/retry/")
    assert "<strong>Retry?</strong>" in text
    assert re.findall(r'class="closelink">([^<]+)<', text) == ["Go back"]


def test_the_confirmation_for_several_jobs_speaks_of_several() -> None:
    browser = login("view_job", "cancel_job")
    ids = [str(job.id) for job in make(3)]
    for chosen, asked, kept in ((ids, "Cancel jobs", "Keep jobs"), (ids[:1], "Cancel job", "Keep job")):
        answer = browser.post(LIST, {"action": "cancel", "_selected_action": chosen})
        text = answer.content.decode()
        assert f"<strong>{asked}?</strong>" in text
        assert re.findall(r'name="_confirmed" value="([^"]+)"', text) == [asked]
        assert re.findall(r'class="closelink">([^<]+)<', text) == [kept]
