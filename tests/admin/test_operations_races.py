"""Two people at once: what one of them did is neither undone nor overlooked by the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.db.models.signals import pre_save
from django.test import Client

from django_ojs import api, clock
from django_ojs.admin.forms import ExtendForm
from django_ojs.admin.operations import runner
from django_ojs.admin.tokens import TokenForm
from django_ojs.domain.envelope import from_call
from django_ojs.domain.errors import Conflict
from django_ojs.domain.job import Actor
from django_ojs.domain.reserved import OWN_QUEUE
from django_ojs.models import ApiToken, AuditEntry, Event, Job, Worker
from django_ojs.services import operate, tokens, workers
from django_ojs.services.enqueue import enqueue
from tests.admin.support import at, do, do_to, login, page, worker
from tests.apart import Apart, uncommitted
from tests.services.support import ack, fail, make, take

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("no_users")]
ADA = Actor("admin", "ada")
LIST = "/admin/django_ojs/job/"
TOKENS = "/admin/django_ojs/apitoken/"
NEW = {"args": "[2]", "meta": "{}", "queue": "q2"}


@contextmanager
def during_an_edit(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> Iterator[None]:
    """Somebody else does it when the form of a token has been sent and its row has been read; where
    that has to wait for the edit (SQLite), it is done afterwards.
    """
    check = tokens.check_queues
    others: list[Apart] = []

    def meanwhile(value: Any) -> list[str]:
        if not others:
            others.append(Apart(work))
            others[0].goes_as_far_as_it_can()
        return check(value)

    monkeypatch.setattr(tokens, "check_queues", meanwhile)
    yield
    others[0].outcome()


@contextmanager
def broken_audit() -> Iterator[None]:
    """No row gets into the audit."""

    def refuse(**_given: Any) -> None:
        raise RuntimeError("no audit")

    pre_save.connect(refuse, sender=AuditEntry)
    try:
        yield
    finally:
        pre_save.disconnect(refuse, sender=AuditEntry)


def ended(count: int = 1, **options: Any) -> list[Any]:
    """Completed jobs."""
    make(count, **options)
    jobs = take(count)
    ack(*jobs)
    return jobs


def dead(**options: Any) -> Any:
    """A job in the dead letter."""
    make(retry={"max_attempts": 1, "on_exhaustion": "dead_letter"}, **options)
    job = take()[0]
    fail(job)
    return job


# Tokens


@pytest.fixture
def clerk() -> Client:
    return login(superuser=True)


def narrow(browser: Client, token: ApiToken) -> Any:
    form = {"scopes": ["produce"], "queues": "q1", "expires_at_0": "", "expires_at_1": ""}
    return browser.post(f"{TOKENS}{token.pk}/change/", form)


def test_a_revocation_during_an_edit_holds(clerk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    token, text = tokens.create("c", scopes=["produce", "work"])
    with during_an_edit(monkeypatch, lambda: tokens.revoke("c")):
        narrow(clerk, token)
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert tokens.verify(text) is None


def test_a_use_during_an_edit_is_not_forgotten(clerk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    token, text = tokens.create("c", scopes=["produce", "work"])
    with during_an_edit(monkeypatch, lambda: tokens.verify(text)):
        assert narrow(clerk, token).status_code == 302
    token.refresh_from_db()
    assert token.last_used_at is not None
    assert (token.scopes, token.queues) == (["produce"], ["q1"])


def test_a_revocation_waits_for_an_edit_that_has_checked_the_token(
    clerk: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the edit would be of a token that is revoked."""
    token, text = tokens.create("c", scopes=["produce", "work"])
    check = TokenForm._check_change
    others: list[Apart] = []

    def checked(form: TokenForm, *given: Any) -> None:
        check(form, *given)
        others.append(Apart(lambda: tokens.revoke("c")))
        assert others[0].goes_as_far_as_it_can(), "it waits for the edit"

    monkeypatch.setattr(TokenForm, "_check_change", checked)
    assert narrow(clerk, token).status_code == 302
    assert others[0].outcome() == 1
    token.refresh_from_db()
    assert (token.scopes, token.queues) == (["produce"], ["q1"])
    assert tokens.verify(text) is None


def test_a_revoked_token_is_not_edited(clerk: Client) -> None:
    token, _text = tokens.create("c", scopes=["produce", "work"])
    tokens.revoke("c")
    said = narrow(clerk, token)
    assert said.status_code == 200
    assert "was revoked" in said.content.decode()
    token.refresh_from_db()
    assert token.scopes == ["produce", "work"]
    assert not AuditEntry.objects.filter(action="token.changed").exists()


# Edit and requeue


def test_a_requeue_without_its_audit_row_makes_no_job(clerk: Client) -> None:
    old = ended()[0]
    with broken_audit(), pytest.raises(RuntimeError):
        do(clerk, old, "requeue", **NEW)
    assert Job.objects.get().pk == old.id


def test_a_requeue_waits_for_what_is_done_to_the_old_job(clerk: Client) -> None:
    old = dead()
    with uncommitted(lambda: operate.retry_dead([old.id])):
        do(clerk, old, "requeue", **NEW)
    assert Job.objects.get().state == "available"


def test_a_requeued_job_has_the_tags_and_unknown_fields_of_the_old_one(clerk: Client) -> None:
    extra = {"schema": "urn:x", "x_more": {"keys": ["a"]}}
    now = clock.now("default")
    envelope = from_call("test.job", [1], now=now, tags=["a", "b"], scheduled_at=now.isoformat())
    enqueue([envelope._replace(extra=extra)])
    old = take()[0]
    ack(old)
    response = do(clerk, old, "requeue", **NEW)
    new = Job.objects.exclude(pk=old.id).get()
    assert (new.tags, new.extra) == (["a", "b"], extra)
    assert response["Location"].endswith(f"/job/{new.pk}/change/")


def test_a_requeue_from_the_dead_letter_leads_to_the_page_of_the_new_job(clerk: Client) -> None:
    old = dead()
    response = do_to(clerk, "deadletter", str(old.id), "requeue", **NEW)
    new = Job.objects.exclude(pk=old.id).get()
    assert response["Location"] == f"{LIST}{new.pk}/change/"
    assert clerk.get(response["Location"]).status_code == 200


@pytest.mark.parametrize(
    "bad", [{"queue": "No Such"}, {"args": "[NaN]"}, {"meta": '{"a": "%s"}' % ("x" * 70_000)}]
)
def test_what_was_typed_for_a_requeue_is_kept_when_it_is_refused(
    clerk: Client, bad: dict[str, str]
) -> None:
    old = ended()[0]
    said = do(clerk, old, "requeue", **{**NEW, "args": '["long work"]', **bad})
    assert said.status_code == 200
    assert "errorlist" in said.content.decode()
    assert "args" in bad or "long work" in said.content.decode()
    assert Job.objects.count() == 1


# Our own jobs


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("retry", {}),
        ("run_now", {}),
        ("reschedule", {"when": "0s"}),
        ("edit", {"queue": "q2"}),
        ("requeue", NEW),
    ],
)
def test_our_own_jobs_are_not_edited_or_started_again(
    clerk: Client, name: str, fields: Mapping[str, str]
) -> None:
    later: dict[str, Any] = {"delay": "1h"} if name in ("run_now", "reschedule", "edit") else {}
    job = make(job_type="ojs.test", queue=OWN_QUEUE, retry={"max_attempts": 1}, **later)[0]
    if not later:
        job = take(queues=(OWN_QUEUE,), types=("ojs.test",))[0]
        fail(job)
    before = api.get(job.id)
    assert f"do/{name}/" not in page(clerk, f"job/{job.id}/change/")
    said = clerk.post(f"{LIST}{job.id}/do/{name}/", {**fields, "_confirmed": "1"}, follow=True)
    assert "is a job of django_ojs itself" in said.content.decode()
    assert api.get(job.id) == before
    assert Job.objects.count() == 1


def test_our_own_jobs_can_be_ended_and_deleted(clerk: Client) -> None:
    job = make(job_type="ojs.test")[0]
    do(clerk, job, "cancel")
    assert api.get(job.id).state == "cancelled"
    do(clerk, job, "purge", typed="purge")
    assert not Job.objects.exists()


# Many jobs


def test_jobs_that_are_gone_or_alive_again_are_left_out_of_a_purge() -> None:
    jobs = ended(3)
    waiting = make()[0]
    gone = jobs[0]
    operate.purge([gone.id])
    report = runner("purge")([job.id for job in (*jobs, waiting)], {}, ADA)
    assert report.done == 2
    said = " ".join(report.skipped)
    assert len(report.skipped) == 2
    assert str(gone.id) in said
    assert str(waiting.id) in said
    assert set(Job.objects.values_list("pk", flat=True)) == {waiting.id}


def test_a_purge_sees_what_happens_while_it_waits_for_the_lock() -> None:
    kept, lost, other = dead(), dead(), dead()

    def meanwhile() -> None:
        operate.retry_dead([kept.id])
        operate.purge([lost.id])

    with uncommitted(meanwhile):
        report = runner("purge")([kept.id, lost.id, other.id], {}, ADA)
    assert (report.done, len(report.skipped)) == (1, 2)
    assert set(Job.objects.values_list("pk", flat=True)) == {kept.id}


def test_jobs_that_go_while_a_decision_waits_for_the_lock_are_left_out() -> None:
    lost, other = dead(), dead()
    with uncommitted(lambda: operate.purge([lost.id])):
        report = runner("retry")([lost.id, other.id], {}, ADA)
    assert report.done == 1
    assert len(report.skipped) == 1
    assert str(lost.id) in report.skipped[0]
    assert api.get(other.id).state == "available"


class _Deadlock(OperationalError):
    """As the database says it: the transaction is to be run again."""

    sqlstate = "40001"


def test_a_transaction_that_is_run_again_says_everything_once() -> None:
    jobs = [dead(), *ended(2)]
    lost: list[str] = []

    def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("UPDATE") and not lost:
            lost.append(sql)
            raise _Deadlock("database is locked")
        return execute(sql, params, many, context)

    with connections["default"].execute_wrapper(wrapper):
        report = runner("retry")([job.id for job in jobs], {}, ADA)
    assert lost
    assert report.done == 1
    assert len(report.skipped) == 2


# Extending


@pytest.mark.parametrize(
    ("by", "other", "ms"),
    [("5m", "", 300_000), ("5m", "2h", 7_200_000), ("", "90s", 90_000), ("15m", " ", 900_000)],
)
def test_a_time_that_was_typed_is_the_one_that_is_added(by: str, other: str, ms: int) -> None:
    form = ExtendForm({"by": by, "other": other})
    assert form.is_valid()
    assert form.cleaned_data["by_ms"] == ms


@pytest.mark.parametrize(("by", "other"), [("5m", "soon"), ("", ""), ("", "-5")])
def test_a_bad_time_is_said_at_its_field(by: str, other: str) -> None:
    assert set(ExtendForm({"by": by, "other": other}).errors) == {"other"}


# Workers


def test_a_worker_that_was_told_nothing_has_nothing_to_take_back(clerk: Client) -> None:
    worker("w1")
    said = clerk.post(f"/admin/django_ojs/{at()}/do/resume/", {"_confirmed": "1"}, follow=True)
    assert "w1 was told nothing" in said.content.decode()
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("order", ["quiet", "terminate", None])
def test_a_worker_that_has_stopped_is_told_nothing(order: str | None) -> None:
    key = worker("w1", phase="stopped").pk
    with pytest.raises(Conflict):
        workers.direct(key, order, actor=ADA)
    assert Worker.objects.get().directive is None
    assert not AuditEntry.objects.exists()
    assert not Event.objects.exists()


def test_a_worker_that_stops_while_it_is_told(clerk: Client) -> None:
    worker("w1", principal="token:a")
    with uncommitted(lambda: workers.deregister("w1", "token:a")):
        said = do_to(clerk, "worker", "w1", "quiet")
    assert said.status_code == 302
    assert "w1 has stopped" in page(clerk, f"{at()}/change/")
    assert Worker.objects.get().directive is None
