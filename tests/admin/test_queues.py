"""The queues: what the list and the page show, pause and resume, refusals, few queries."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.admin.queues import MOST_SHOWN
from django_ojs.clock import FrozenClock
from django_ojs.domain import histogram
from django_ojs.domain.job import Actor
from django_ojs.models import AuditEntry, MinuteStat, Queue
from django_ojs.services import queues, rollup
from django_ojs.store import selectors
from tests.admin.support import at, cell, do_to, login, page, reads, worker
from tests.services.support import ack, fail, make, take

pytestmark = pytest.mark.usefixtures("no_users")
LIST = "/admin/django_ojs/queue/"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}"
NONE_LIVE = "no live workers"


def test_the_list_shows_how_full_the_queues_are(frozen: FrozenClock) -> None:
    browser = login("view_queue")
    make(2, queue="mail", priority=5)
    frozen.advance(90)
    make(3, queue="mail", priority=9)
    make(1, queue="mail", delay="1h")
    make(2, queue="other", delay="1h")
    fail(*take(1, queues=("mail",)))
    take(1, queues=("mail",))
    frozen.advance(30)
    text = page(browser, "queue/")
    for column, said in (
        ("available", ">3</a>"),
        ("active", ">1</a>"),
        ("scheduled", ">1</a>"),
        ("retryable", ">1</a>"),
        ("oldest", ">2 min</time>"),
    ):
        assert said in cell(text, "mail", column), column
    assert cell(text, "other", "available") == "0"
    assert ">2</a>" in cell(text, "other", "scheduled")
    assert "—" in cell(text, "other", "oldest")
    assert NONE_LIVE in cell(text, "mail", "badges")


def test_counts_end_at_the_cap() -> None:
    make(4)
    make(3, delay="1h")
    make(1, queue="q2", delay="2h")
    found = selectors.depths(["default", "q2"], cap=3, among=3, using="default")
    assert found["default"].counts == {
        "available": 3,
        "active": 0,
        "scheduled": 3,
        "retryable": 0,
        "pending": 0,
    }
    assert found["default"].capped == {"available", "scheduled"}
    assert (found["q2"].counts["scheduled"], found["q2"].capped) == (0, frozenset({"scheduled"}))
    assert selectors.depths([], using="default") == {}


@pytest.mark.parametrize(
    ("columns", "age", "said"),
    [
        ({}, 0, None),
        ({"queues": ["a", "default"]}, 59, None),
        ({"queues": ["default2"]}, 0, NONE_LIVE),
        ({}, 61, NONE_LIVE),
        ({"phase": "stopped"}, 0, NONE_LIVE),
        ({"phase": "quiet"}, 0, "all workers are quiet"),
        ({"directive": "quiet"}, 0, "all workers are quiet"),
    ],
)
def test_whether_anybody_serves_it(
    frozen: FrozenClock, columns: dict[str, Any], age: int, said: str | None
) -> None:
    browser = login("view_queue")
    make()
    worker(age=age, **columns)
    for text in (
        cell(page(browser, "queue/"), "default", "badges"),
        page(browser, "queue/default/change/"),
    ):
        shown = [words for words in (NONE_LIVE, "all workers are quiet") if words in text]
        assert shown == ([said] if said else [])


def test_the_last_hour_comes_from_the_roll_up(frozen: FrozenClock) -> None:
    browser = login("view_queue", "view_worker")
    make(queue="mail")
    until = histogram.floor(frozen.now("default") - rollup.LATE, rollup.MINUTE)
    for minutes, done, failed in ((1, 5, 0), (60, 2, 1), (61, 100, 100)):
        MinuteStat.objects.create(
            at=until - timedelta(minutes=minutes), queue="mail", completed=done, failed=failed
        )
    worker(queues=["mail"])
    text = page(browser, "queue/")
    assert cell(text, "mail", "throughput").startswith("7 <svg")
    assert cell(text, "mail", "failures").startswith("1 <svg")
    text = page(browser, "queue/mail/change/")
    assert "<svg" in text
    assert "completed: 5" in text
    assert "completed: 100" not in text
    assert f'href="/admin/django_ojs/{at()}/change/"' in text


def test_the_page_shows_all_states() -> None:
    browser = login("view_queue")
    make(5)
    ack(*take(2))
    text = page(browser, "queue/default/change/")
    assert ">3</a>" in text
    assert "?state=completed&amp;queue=default" in text
    assert "/do/" not in text


@pytest.mark.parametrize(("name", "paused"), [("pause", True), ("resume", False)])
def test_an_operation_asks_acts_and_leaves_an_audit_row(
    frozen: FrozenClock, name: str, paused: bool
) -> None:
    browser = login("view_queue", "pause_queue")
    make(queue="mail-out.1")
    if not paused:
        queues.pause(["mail-out.1"], actor=Actor("command"))
        AuditEntry.objects.all().delete()
    path = "mail-out.1"
    assert f"{path}/do/{name}/" in page(browser, f"queue/{path}/change/")
    asked = browser.get(f"{LIST}{path}/do/{name}/")
    assert asked.status_code == 200
    assert ("clocks of its jobs keep running" in asked.content.decode()) is paused
    again = browser.post(f"{LIST}{path}/do/{name}/", {"reason": "x"})
    assert (again.status_code, Queue.objects.get().paused) == (200, not paused)
    done = do_to(browser, "queue", path, name, reason="the relay is down")
    assert (done.status_code, done["Location"]) == (302, f"{LIST}{path}/change/")
    row = Queue.objects.get()
    assert row.paused is paused
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.result) == (f"queue.{'paused' if paused else 'resumed'}", "done")
    assert (entry.source, entry.actor, entry.reason, entry.address) == (
        "admin",
        "ada",
        "the relay is down",
        "127.0.0.1",
    )
    assert (entry.target_type, entry.target_id) == ("queue", "mail-out.1")
    if paused:
        assert (row.paused_by, row.reason) == ("ada", "the relay is down")
        frozen.advance(120)
        for text in (
            cell(page(browser, "queue/"), row.name, "paused_because"),
            page(browser, f"queue/{path}/change/"),
        ):
            assert "ada" in text
            assert "2 min" in text
            assert "the relay is down" in text


def test_from_the_list_what_is_paused_already_is_left_alone() -> None:
    browser = login("view_queue", "pause_queue")
    for name in ("a", "b", "c"):
        make(queue=name)
    queues.pause(["b"])
    data = {"action": "pause", "_selected_action": ["a", "b"], "select_across": "0", "index": "0"}
    asked = browser.post(LIST, data)
    assert "clocks of its jobs keep running" in asked.content.decode()
    assert Queue.objects.filter(paused=True).count() == 1
    text = browser.post(LIST, {**data, "_confirmed": "1"}, follow=True).content.decode()
    assert "1 done" in text
    assert "The queue b was paused already" in text
    assert list(queues.paused()) == ["a", "b"]


@pytest.mark.parametrize("name", ["pause", "resume"])
def test_a_forged_post_is_refused_and_noted(name: str) -> None:
    browser = login("view_queue", "direct_worker")
    make()
    if name == "resume":
        queues.pause(["default"])
    before = Queue.objects.values().get()
    AuditEntry.objects.all().delete()
    assert "/do/" not in page(browser, "queue/default/change/")
    assert do_to(browser, "queue", "default", name, reason="x").status_code == 403
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.result, entry.actor) == (f"queue.{name}", "denied", "ada")
    assert (entry.target_id, entry.address, entry.source) == ("default", "127.0.0.1", "admin")
    browser.post(LIST, {"action": name, "_selected_action": ["default"], "_confirmed": "1"})
    assert Queue.objects.values().get() == before


@pytest.mark.every_database
def test_a_name_with_nul_is_refused() -> None:
    browser = login("view_queue", "pause_queue")
    action = {"action": "pause", "_selected_action": "a\0b", "index": "0"}
    assert browser.post(LIST, action).status_code == 400
    assert browser.post(f"{LIST}%00/do/pause/", {"_confirmed": "1"}).status_code == 404
    stranger = login("view_queue", name="eva")
    assert stranger.post(LIST, action).status_code == 403
    assert stranger.post(f"{LIST}%00/do/pause/", {"_confirmed": "1"}).status_code == 403
    noted = AuditEntry.objects.values_list("actor", "target_id", "result").order_by("pk")
    assert list(noted) == [("eva", r"a\x00b", "denied"), ("eva", r"\x00", "denied")]


@pytest.mark.parametrize("where", ["add/", "default/change/", "default/delete/"])
def test_no_form_changes_anything(where: str) -> None:
    browser = login(superuser=True)
    make()
    before = Queue.objects.values().get()
    answer = browser.post(f"{LIST}{where}", {"name": "x", "paused": "on", "post": "yes"})
    assert answer.status_code == 403
    assert Queue.objects.values().get() == before


def test_read_only_takes_everything_away() -> None:
    browser = login(superuser=True)
    make()
    with override_settings(OJS={"ADMIN": {"READ_ONLY": True}}):
        assert "/do/" not in page(browser, "queue/default/change/")
        assert do_to(browser, "queue", "default", "pause").status_code == 403
        action = {"action": "pause", "_selected_action": ["default"], "_confirmed": "1"}
        assert browser.post(LIST, action).status_code == 403
    assert not Queue.objects.get().paused
    noted = AuditEntry.objects.values_list("action", "target_id", "result")
    assert list(noted) == [("queue.pause", "default", "denied")] * 2


def test_pages_by_name_and_search() -> None:
    browser = login("view_queue")
    Queue.objects.bulk_create([Queue(name=f"q{number:03}") for number in range(MOST_SHOWN + 10)])
    first = page(browser, "queue/")
    assert (">q000</a>" in first, ">q199</a>" in first, ">q200</a>" in first) == (True, True, False)
    second = page(browser, "queue/", after="q199")
    assert (">q199</a>" in second, ">q200</a>" in second) == (False, True)
    back = page(browser, "queue/", before="q200")
    assert (">q000</a>" in back, ">q200</a>" in back) == (True, False)
    found = page(browser, "queue/", q="q01")
    assert (">q010</a>" in found, ">q020</a>" in found) == (True, False)


def names(text: str) -> list[str]:
    """The queues of a board, in their order."""
    return re.findall(r'<th class="field-name[^"]*"><a [^>]*>([^<]*)</a>', text)


def test_the_worst_comes_first(frozen: FrozenClock) -> None:
    browser = login("view_queue")
    until = histogram.floor(frozen.now("default") - rollup.LATE, rollup.MINUTE)
    for name in ("idle", "fails", "busy", "behind", "paused", "stuck"):
        Queue.objects.create(name=name)
    make(1, queue="paused")
    make(1, queue="stuck")
    make(1, queue="behind")
    frozen.advance(61)
    make(3, queue="busy")
    queues.pause(["paused"])
    worker(queues=["idle", "fails", "busy", "behind", "paused"])
    for name, done, failed in (("fails", 2, 3), ("busy", 100, 3)):
        at_ = until - timedelta(minutes=1)
        MinuteStat.objects.create(at=at_, queue=name, completed=done, failed=failed)
    text = page(browser, "queue/")
    assert names(text) == ["stuck", "paused", "behind", "fails", "busy", "idle"]
    tones = re.findall(r'<th class="field-name(?: ojs-trouble ojs-(\w+))?">', text)
    assert tones == ["bad", "warn", "warn", "warn", "", ""]


def test_how_busy_the_workers_of_a_queue_are() -> None:
    browser = login("view_queue")
    for name in ("mail", "other", "foreign", "unserved"):
        Queue.objects.create(name=name)
    worker("a", queues=["mail", "other"], concurrency=4, running=3)
    worker("b", queues=["mail"], concurrency=8, running=8)
    worker("c", queues=["foreign"], running=2)
    worker("gone", queues=["mail"], concurrency=50, age=100)
    text = page(browser, "queue/")
    assert '<meter min="0" max="12" value="11"' in cell(text, "mail", "busy")
    assert "11 of 12 slots of 2 workers are busy" in cell(text, "mail", "busy")
    assert cell(text, "other", "busy").endswith("</meter> 3/4")
    assert cell(text, "foreign", "busy") == "1 worker"
    assert "—" in cell(text, "unserved", "busy")


def test_pause_and_resume_in_place() -> None:
    browser = login("view_queue", "pause_queue")
    make(queue="mail")
    make(queue="other")
    for name, paused in (("pause", True), ("resume", False)):
        text = page(browser, "queue/", q="m")
        assert names(text) == ["mail"]
        (form,) = re.findall(r'<form id="(ojs-switch-[^"]*)" method="post" action="([^"]*)">', text)
        assert form[1] == f"{LIST}mail/do/{name}/?_list=q%3Dm"
        shown = cell(text, "mail", "switch")
        assert f'name="reason" form="{form[0]}"' in shown
        assert f'<button type="submit" form="{form[0]}"' in shown
        done = browser.post(form[1], {"_confirmed": "1", "reason": "the relay"})
        assert (done.status_code, done["Location"]) == (302, f"{LIST}?q=m")
        assert Queue.objects.get(name="mail").paused is paused
        entry = AuditEntry.objects.latest("pk")
        assert (entry.actor, entry.reason, entry.target_id) == ("ada", "the relay", "mail")
    evil = f"{LIST}mail/do/pause/?_list=//evil.example/?x=<b>"
    back = browser.post(evil, {"_confirmed": "1"})["Location"]
    assert back == f"{LIST}?%2F%2Fevil.example%2F%3Fx=%3Cb%3E"


def test_nothing_in_place_without_permission() -> None:
    make()
    for browser in (login("view_queue", "view_worker"), login(superuser=True, name="root")):
        text = page(browser, "queue/")
        assert ("<form id=" in text and "ojs-switch-" in text) is ("root" in text)
        assert ('class="action-select"' in text) is ("root" in text)
    with override_settings(OJS={"ADMIN": {"READ_ONLY": True}}):
        assert 'class="ojs-switch"' not in page(browser, "queue/")


def test_few_queries_however_many_queues() -> None:
    browser = login(superuser=True)
    for number in range(30):
        make(queue=f"q{number}")
    worker()
    page(browser, "queue/")
    with CaptureQueriesContext(
        connection,
    ) as asked:
        page(browser, "queue/")
    assert len(reads(asked)) <= 7, "\n".join(reads(asked))


def test_everything_shown_is_escaped(frozen: FrozenClock) -> None:
    browser = login(superuser=True)
    Queue.objects.create(
        name=HOSTILE, paused=True, paused_at=frozen.time, paused_by=HOSTILE, reason=HOSTILE
    )
    worker(HOSTILE, queues=[HOSTILE])
    from django.contrib.admin.utils import quote as admin_quote

    for text in (
        page(browser, "queue/"),
        page(browser, f"queue/{quote(admin_quote(HOSTILE))}/change/"),
    ):
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "&lt;script&gt;alert" in text
        assert " style=" not in text.partition('id="content"')[2]
    answer = do_to(browser, "queue", quote(admin_quote(HOSTILE)), "resume")
    assert answer.status_code == 302
