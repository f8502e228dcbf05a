"""The workers: what the list and the page show, quiet, stop and resume, and that workers hear it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin.utils import quote as admin_quote
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import clock
from django_ojs.clock import FrozenClock
from django_ojs.models import AuditEntry, Worker
from django_ojs.services import heartbeat, workers
from django_ojs.services.heartbeat import WorkerInfo
from tests.admin.support import cell, do_to, login, page, reads, worker
from tests.services.support import make, take

pytestmark = pytest.mark.usefixtures("no_users")
LIST = "/admin/django_ojs/worker/"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}"


def test_list_and_page_show_the_facts(frozen: FrozenClock) -> None:
    browser = login("view_worker", "view_job")
    make(2, queue="mail", timeout="60s")
    (job,) = take(queues=("mail",))
    frozen.advance(20)
    assert job.worker_id is not None
    worker(
        job.worker_id,
        age=7,
        hostname="web-1",
        pid=4711,
        version="django-ojs 9.9",
        concurrency=4,
        running=1,
        queues=["mail", "other"],
        labels={"zone": "eu", "password": "secret-thing"},
    )
    text = page(browser, "worker/")
    for column, said in (
        ("badges", "running"),
        ("heartbeat", ">7 s</time>"),
        ("slots", ">1/4</a>"),
        ("hostname", "web-1"),
        ("pid", "4711"),
        ("version", "django-ojs 9.9"),
        ("served", "mail, other"),
        ("uptime", ">2 h</time>"),
    ):
        assert said in cell(text, job.worker_id, column), column
    text = page(browser, f"worker/{admin_quote(job.worker_id)}/change/")
    assert f'href="/admin/django_ojs/job/{job.id}/change/"' in text
    for said in ("web-1", "4711", "1/4", "mail, other", "zone", ">20 s<"):
        assert said in text, said
    assert "secret-thing" not in text
    assert str(job.lease_id) not in text
    assert "/do/" not in text


@pytest.mark.parametrize(
    ("columns", "age", "said"),
    [
        ({}, 60, "running"),
        ({}, 61, "stale"),
        ({"phase": "quiet"}, 0, "quiet"),
        ({"phase": "drain"}, 0, "draining"),
        ({"phase": "terminate"}, 0, "terminating"),
        ({"phase": "terminate"}, 61, "stale"),
        ({"phase": "stopped"}, 99, "stopped"),
        ({"directive": "quiet"}, 0, "told to be quiet"),
        ({"directive": "terminate"}, 0, "told to stop"),
    ],
)
def test_status(frozen: FrozenClock, columns: dict[str, Any], age: int, said: str) -> None:
    browser = login("view_worker")
    worker(age=age, **columns)
    assert f">{said}</span>" in cell(page(browser, "worker/", status="all"), "w1", "badges")
    assert f">{said}</span>" in page(browser, "worker/w1/change/")


def test_filter_by_status(frozen: FrozenClock) -> None:
    browser = login("view_worker")
    worker("a")
    worker("b", age=61)
    worker("c", phase="quiet")
    worker("d", phase="stopped", age=99)

    def listed(**query: str) -> str:
        text = page(browser, "worker/", **query)
        return "".join(name for name in "abcd" if f">{name}</a></th>" in text)

    assert listed() == "abc"
    assert listed(status="all") == "abcd"
    assert listed(status="running") == "a"
    assert listed(status="stale") == "b"
    assert listed(status="quiet") == "c"
    assert listed(status="stopped") == "d"
    assert listed(status="nonsense") == "abc"


@pytest.mark.parametrize(
    ("name", "before", "after", "action"),
    [
        ("quiet", None, "quiet", "worker.quiet"),
        ("stop", None, "terminate", "worker.quiet"),
        ("stop", "quiet", "terminate", "worker.quiet"),
        ("resume", "quiet", None, "worker.resumed"),
    ],
)
def test_an_operation_asks_acts_and_leaves_an_audit_row(
    frozen: FrozenClock, name: str, before: str | None, after: str | None, action: str
) -> None:
    browser = login("view_worker", "direct_worker")
    worker("web-1_a", directive=before)
    key = "web-1_5Fa"
    assert f"{key}/do/{name}/" in page(browser, f"worker/{key}/change/")
    asked = browser.get(f"{LIST}{key}/do/{name}/")
    assert asked.status_code == 200
    assert "claim" in asked.content.decode()
    again = browser.post(f"{LIST}{key}/do/{name}/", {"reason": "x"})
    assert (again.status_code, Worker.objects.get().directive) == (200, before)
    done = do_to(browser, "worker", key, name, reason="update")
    assert (done.status_code, done["Location"]) == (302, f"{LIST}{key}/change/")
    assert Worker.objects.get().directive == after
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.result, entry.source) == (action, "done", "admin")
    assert (entry.actor, entry.reason, entry.address) == ("ada", "update", "127.0.0.1")
    assert (entry.target_type, entry.target_id) == ("worker", "web-1_a")
    assert entry.data.get("directive") == after


def test_a_worker_in_process_hears_it(frozen: FrozenClock) -> None:
    browser = login("view_worker", "direct_worker")
    info = WorkerInfo("w1", clock.new_lease(), queues=("default",))
    heartbeat.register(info)
    for name, order in (("quiet", "quiet"), ("resume", None), ("stop", "terminate")):
        assert do_to(browser, "worker", "w1", name).status_code == 302
        assert heartbeat.report_worker(info, phase="running", running=0).order == order


def test_a_worker_over_http_hears_it(frozen: FrozenClock) -> None:
    browser = login("view_worker", "direct_worker")
    workers.seen("w1", None, beats=True)
    do_to(browser, "worker", "w1", "quiet")
    assert not workers.may_fetch(workers.seen("w1", None, beats=True))
    do_to(browser, "worker", "w1", "resume")
    assert workers.may_fetch(workers.seen("w1", None, beats=True))


def test_a_stopped_worker_is_left_alone() -> None:
    browser = login("view_worker", "direct_worker")
    worker("gone", phase="stopped")
    worker("told", directive="quiet")
    worker("w1")
    assert "/do/" not in page(browser, "worker/gone/change/")
    assert "do/quiet/" not in page(browser, "worker/told/change/")
    keys = ["gone", "told", "w1"]
    data = {"action": "quiet", "_selected_action": keys, "select_across": "0", "index": "0"}
    done = browser.post(f"{LIST}?status=all", {**data, "_confirmed": "1"}, follow=True)
    text = done.content.decode()
    assert "1 done" in text
    assert "gone has stopped" in text
    assert "told was told that already" in text
    assert Worker.objects.get(pk="gone").directive is None
    assert AuditEntry.objects.get().target_id == "w1"


@pytest.mark.parametrize("name", ["quiet", "stop", "resume"])
def test_a_forged_post_is_refused_and_noted(name: str) -> None:
    browser = login("view_worker", "pause_queue")
    worker(directive="quiet" if name == "resume" else None)
    before = Worker.objects.values().get()
    assert "/do/" not in page(browser, "worker/w1/change/")
    assert do_to(browser, "worker", "w1", name).status_code == 403
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.result, entry.actor) == (f"worker.{name}", "denied", "ada")
    assert (entry.target_id, entry.address, entry.source) == ("w1", "127.0.0.1", "admin")
    browser.post(LIST, {"action": name, "_selected_action": ["w1"], "_confirmed": "1"})
    assert Worker.objects.values().get() == before


def test_read_only_takes_everything_away() -> None:
    browser = login(superuser=True)
    worker()
    with override_settings(OJS={"ADMIN": {"READ_ONLY": True}}):
        assert "/do/" not in page(browser, "worker/w1/change/")
        assert do_to(browser, "worker", "w1", "stop").status_code == 403
        browser.post(LIST, {"action": "stop", "_selected_action": ["w1"], "_confirmed": "1"})
    assert Worker.objects.get().directive is None


def test_few_queries() -> None:
    browser = login(superuser=True)
    for number in range(60):
        worker(f"w{number}", running=1, concurrency=2)
    page(browser, "worker/")
    with CaptureQueriesContext(connection) as asked:
        page(browser, "worker/")
    assert len(reads(asked)) <= 4, "\n".join(reads(asked))


def test_everything_shown_is_escaped() -> None:
    browser = login(superuser=True)
    worker(
        HOSTILE,
        hostname=HOSTILE,
        version=HOSTILE,
        queues=[HOSTILE],
        types=[HOSTILE],
        labels={HOSTILE: HOSTILE},
        directive="<script>1",
        running=1,
    )
    path = f"worker/{quote(admin_quote(HOSTILE))}/change/"
    for text in (page(browser, "worker/"), page(browser, path)):
        assert "<script>alert" not in text
        assert "<script>1" not in text
        assert "<img src=x" not in text
        assert "&lt;script&gt;alert" in text
        assert " style=" not in text.partition('id="content"')[2]
