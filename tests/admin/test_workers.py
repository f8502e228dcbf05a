"""The workers: what the list and the page show, quiet, stop and resume, and that workers hear it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlencode

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils.html import escape

from django_ojs import clock
from django_ojs.clock import FrozenClock
from django_ojs.models import AuditEntry, Worker
from django_ojs.services import http_workers, workers
from django_ojs.services.workers import WorkerInfo
from tests.admin.support import at, cell, do_to, login, page, reads, worker
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
        rss_bytes=300 * 2**20,
        concurrency=4,
        running=1,
        queues=["mail", "other"],
        labels={"zone": "eu", "password": "secret-thing"},
    )
    text = page(browser, "worker/")
    for column, said in (
        ("badges", "running"),
        ("heartbeat", ">7 s</time>"),
        ("slots", 'value="1" title="1 of 4 slots are busy"'),
        ("memory", "300.0\xa0MB"),
        ("runs", f'<a href="/admin/django_ojs/job/{job.id}/change/">test.job</a> <time'),
        ("version", "django-ojs 9.9"),
        ("served", "mail, other"),
        ("uptime", ">2 h</time>"),
    ):
        assert said in cell(text, job.worker_id, column), column
    assert '<small class="ojs-quiet">web-1 · 4711</small>' in text
    text = page(browser, f"{at(job.worker_id)}/change/")
    assert f'href="/admin/django_ojs/job/{job.id}/change/"' in text
    for said in ("web-1", "4711", "1/4", "mail, other", "zone", ">20 s<", "300.0\xa0MB"):
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
    assert f">{said}</span>" in page(browser, f"{at()}/change/")


def test_filter_by_status(frozen: FrozenClock) -> None:
    browser = login("view_worker")
    worker("a")
    worker("b", age=61)
    worker("c", phase="quiet")
    worker("d", phase="stopped", age=99)

    def listed(**query: str) -> str:
        text = page(browser, "worker/", **query)
        return "".join(sorted(re.findall(r">([abcd])</a></th>", text)))

    assert listed() == "abc"
    assert listed(status="all") == "abcd"
    assert listed(status="running") == "a"
    assert listed(status="stale") == "b"
    assert listed(status="quiet") == "c"
    assert listed(status="stopped") == "d"
    assert listed(status="nonsense") == "abc"


def names(text: str) -> list[str]:
    """The workers of the board, in its order."""
    return re.findall(r">([^<]*)</a>(?: <small[^>]*>[^<]*</small>)?</th>", text)


def test_the_worst_come_first_then_the_busiest(frozen: FrozenClock) -> None:
    browser = login("view_worker", "view_job")
    make(2, timeout="10s", grace_period="0s")
    take(1, worker="late")
    take(1, worker="lost")
    frozen.advance(20)
    worker("fine", concurrency=4, running=1)
    worker("busy", concurrency=4, running=3)
    worker("gone", phase="stopped", age=5)
    worker("silent", age=61)
    worker("lost", age=61, running=1)
    worker("late", concurrency=2, running=1)
    worker("leaving", directive="quiet")
    text = page(browser, "worker/", status="all")
    assert names(text) == ["lost", "late", "silent", "leaving", "busy", "fine", "gone"]
    assert '<li class="ojs-bad" title="over its deadline">' in cell(text, "late", "runs")
    assert "ojs-trouble ojs-bad" in text.partition(">lost</a>")[0].rpartition("<tr")[2]
    assert "ojs-trouble" not in text.partition(">fine</a>")[0].rpartition("<tr")[2]


def test_an_old_version_is_marked_among_those_of_its_client(frozen: FrozenClock) -> None:
    browser = login("view_worker")
    worker("old", version="django-ojs 1", labels={"release": "shop 1"})
    worker("js", version="js 7", principal="token:js")
    frozen.advance(60)
    worker("new", version="django-ojs 1", labels={"release": "shop 2"})
    text = page(browser, "worker/")
    found = {name: cell(text, name, "version") for name in ("old", "new", "js")}
    assert found["old"].startswith("shop 1 <span")
    assert (found["new"], found["js"]) == ("shop 2", "js 7")
    assert names(text)[0] == "old"


def test_what_each_runs(frozen: FrozenClock) -> None:
    browser = login("view_worker", "view_job")
    make(5)
    jobs = []
    for _number in range(5):
        jobs += take(1, worker="w1")
        frozen.advance(1)
    make(1)
    (foreign,) = take(1, worker="w1", principal="token:a")
    worker(running=5)
    runs = cell(page(browser, "worker/"), "w1", "runs")
    assert re.findall(r"job/([^/]*)/change", runs) == [str(job.id) for job in jobs[:3]]
    assert ">5 s</time>" in runs
    assert ">and 2 more</a>" in runs
    assert str(foreign.id) not in runs


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
    place = at("web-1_a")
    assert f"{place}/do/{name}/" in page(browser, f"{place}/change/")
    asked = browser.get(f"/admin/django_ojs/{place}/do/{name}/")
    assert asked.status_code == 200
    assert "claim" in asked.content.decode()
    again = browser.post(f"/admin/django_ojs/{place}/do/{name}/", {"reason": "x"})
    assert (again.status_code, Worker.objects.get().directive) == (200, before)
    done = do_to(browser, "worker", "web-1_a", name, reason="update")
    assert (done.status_code, done["Location"]) == (302, f"/admin/django_ojs/{place}/change/")
    assert Worker.objects.get().directive == after
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.result, entry.source) == (action, "done", "admin")
    assert (entry.actor, entry.reason, entry.address) == ("ada", "update", "127.0.0.1")
    assert (entry.target_type, entry.target_id) == ("worker", "web-1_a")
    assert entry.data.get("directive") == after


def test_a_worker_in_process_hears_it(frozen: FrozenClock) -> None:
    browser = login("view_worker", "direct_worker")
    info = WorkerInfo("w1", clock.new_lease(), queues=("default",))
    workers.register(info)
    for name, order in (("quiet", "quiet"), ("resume", None), ("stop", "terminate")):
        assert do_to(browser, "worker", "w1", name).status_code == 302
        assert workers.report(info, phase="running", running=0) == order


def test_a_worker_over_http_hears_it(frozen: FrozenClock) -> None:
    browser = login("view_worker", "direct_worker")
    http_workers.seen("w1", None, beats=True)
    do_to(browser, "worker", "w1", "quiet")
    assert not http_workers.may_fetch(http_workers.seen("w1", None, beats=True))
    do_to(browser, "worker", "w1", "resume")
    assert http_workers.may_fetch(http_workers.seen("w1", None, beats=True))


def test_a_stopped_worker_is_left_alone() -> None:
    browser = login("view_worker", "direct_worker")
    rows = [worker("gone", phase="stopped"), worker("told", directive="quiet"), worker("w1")]
    assert "/do/" not in page(browser, f"{at('gone')}/change/")
    assert "do/quiet/" not in page(browser, f"{at('told')}/change/")
    keys = [row.pk for row in rows]
    data = {"action": "quiet", "_selected_action": keys, "select_across": "0", "index": "0"}
    done = browser.post(f"{LIST}?status=all", {**data, "_confirmed": "1"}, follow=True)
    text = done.content.decode()
    assert "1 done" in text
    assert "gone has stopped" in text
    assert "told was told that already" in text
    assert Worker.objects.get(name="gone").directive is None
    assert AuditEntry.objects.get().target_id == "w1"


@pytest.mark.parametrize("name", ["quiet", "stop", "resume"])
def test_a_forged_post_is_refused_and_noted(name: str) -> None:
    browser = login("view_worker", "pause_queue")
    worker(directive="quiet" if name == "resume" else None)
    before = Worker.objects.values().get()
    assert "/do/" not in page(browser, f"{at()}/change/")
    assert do_to(browser, "worker", "w1", name).status_code == 403
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.result, entry.actor) == (f"worker.{name}", "denied", "ada")
    assert (entry.target_id, entry.address, entry.source) == ("w1", "127.0.0.1", "admin")
    browser.post(
        LIST, {"action": name, "_selected_action": [Worker.objects.get().pk], "_confirmed": "1"}
    )
    assert Worker.objects.values().get() == before


def test_read_only_takes_everything_away() -> None:
    browser = login(superuser=True)
    worker()
    with override_settings(OJS={"ADMIN": {"READ_ONLY": True}}):
        assert "/do/" not in page(browser, f"{at()}/change/")
        assert do_to(browser, "worker", "w1", "stop").status_code == 403
        browser.post(
            LIST, {"action": "stop", "_selected_action": [Worker.objects.get().pk], "_confirmed": "1"}
        )
    assert Worker.objects.get().directive is None


def test_few_queries() -> None:
    browser = login(superuser=True)
    for number in range(60):
        worker(f"w{number}", running=1, concurrency=2)
    page(browser, "worker/")
    with CaptureQueriesContext(connection) as asked:
        page(browser, "worker/")
    assert len(reads(asked)) <= 6, "\n".join(reads(asked))


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
    path = f"{at(HOSTILE)}/change/"
    for text in (page(browser, "worker/"), page(browser, path)):
        assert "<script>alert" not in text
        assert "<script>1" not in text
        assert "<img src=x" not in text
        assert "&lt;script&gt;alert" in text
        assert " style=" not in text.partition('id="content"')[2]


def test_workers_of_one_name_are_told_apart_by_their_client(frozen: FrozenClock) -> None:
    browser = login("view_worker", "view_job", "direct_worker", "view_auditentry")
    make(2)
    (own,) = take()
    (foreign,) = take(principal="token:a")
    mine = worker(running=1)
    theirs = worker(running=1, principal="token:a")
    text = page(browser, "worker/")
    assert names(text) == ["w1", "w1"]
    for client in ("", "token:a"):
        asked = urlencode({"state": "active", "q": f'worker:"w1" client:"{client}"'})
        assert f"?{escape(asked)}" in text
        found = page(browser, "job/", state="active", q=f'worker:"w1" client:"{client}"')
        shown, hidden = (foreign, own) if client else (own, foreign)
        assert (str(shown.id) in found, str(hidden.id) in found) == (True, False), client
    for row, shown, hidden in ((mine, own, foreign), (theirs, foreign, own)):
        text = page(browser, f"worker/{row.pk}/change/")
        assert (str(shown.id) in text, str(hidden.id) in text) == (True, False)
        assert (">token:a<" in text) == (row is theirs)
    assert ">token:a<" in page(browser, f"job/{foreign.id}/change/")
    path = f"{LIST}{theirs.pk}/do/quiet/"
    assert browser.post(path, {"_confirmed": "1"}).status_code == 302
    assert set(Worker.objects.values_list("principal", "directive")) == {
        ("", None),
        ("token:a", "quiet"),
    }
    entry = AuditEntry.objects.get()
    assert (entry.target_id, entry.data["client"]) == ("w1", "token:a")
    # A link by name: the worker may be forgotten, and others be called so.
    text = page(browser, "auditentry/")
    assert 'href="/admin/django_ojs/worker/?status=all&amp;q=w1"' in text
    assert browser.get(f"{LIST}{theirs.pk}/history/")["Location"].endswith("q=worker%3A%22w1%22")


def test_a_confirmation_and_a_refusal_name_workers_not_their_keys() -> None:
    row = worker("named-so")
    data = {"action": "quiet", "_selected_action": [row.pk], "select_across": "0", "index": "0"}
    asked = login("view_worker", "direct_worker").post(LIST, data)
    assert "<code>named-so</code>" in asked.content.decode()
    assert do_to(login("view_worker", name="bob"), "worker", "named-so", "quiet").status_code == 403
    assert AuditEntry.objects.get().target_id == "named-so"


@pytest.mark.parametrize("key", ["x", "-1", "9" * 18, "9" * 40, "%00"])
def test_what_can_be_no_key_is_no_error_of_the_database(key: str) -> None:
    browser = login("view_worker", "direct_worker", "view_auditentry")
    for path in (f"{key}/change/", f"{key}/do/quiet/", f"{key}/history/"):
        assert browser.get(f"{LIST}{path}").status_code in (302, 404), path
    assert browser.post(f"{LIST}{key}/do/quiet/", {"_confirmed": "1"}).status_code == 404
    data = {"action": "quiet", "_selected_action": [unquote(key)], "_confirmed": "1"}
    assert browser.post(LIST, data).status_code in (200, 302, 400)
    assert login("view_worker", name="bob").post(LIST, data).status_code == 403
