"""The audit: shown, filtered, searched; never written by a form; token operations are in it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import clock
from django_ojs.domain.job import Actor
from django_ojs.models import ApiToken, AuditEntry
from django_ojs.services import audit, http_workers, queues, tokens
from tests.admin.support import login, page, reads
from tests.services.support import make

pytestmark = pytest.mark.usefixtures("no_users")
LIST = "/admin/django_ojs/auditentry/"
TOKENS = "/admin/django_ojs/apitoken/"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}"


def note(action: str, name: str = "ada", target: str = "mail", **more: Any) -> None:
    """An entry of the admin."""
    source = more.pop("source", "admin")
    kind = action.partition(".")[0]
    audit.note(action, Actor(source, name, "why", "192.0.2.1"), target=(kind, target), **more)


def listed(browser: Client, **query: str) -> list[str]:
    """The targets of a list, in its order."""
    text = page(browser, "auditentry/", **query)
    cells = text.split('class="field-target">')[1:]
    plain = (cell.partition("</td>")[0] for cell in cells)
    return [cell.replace("</a>", "").rpartition(">")[2].rpartition(" ")[2] for cell in plain]


def test_the_list_and_the_page_show_who_did_what() -> None:
    browser = login("view_auditentry")
    queues.pause(["mail"], actor=Actor("admin", "kim", "relay", "192.0.2.7"))
    note("token.created", target="shop", prefix="ojs_abc")
    text = page(browser, "auditentry/")
    for said in ("queue.paused", "kim", "relay", "192.0.2.7", "prefix: ojs_abc", ">done</span>"):
        assert said in text, said
    assert 'href="/admin/django_ojs/queue/mail/change/"' in text
    assert listed(browser) == ["shop", "mail"]
    entry = AuditEntry.objects.get(action="queue.paused")
    text = page(browser, f"auditentry/{entry.pk}/change/")
    for said in ("queue.paused", "kim", "relay", "192.0.2.7", ">done</span>"):
        assert said in text, said
    assert "/do/" not in text
    assert 'name="_save"' not in text


@pytest.mark.slow
def test_filters_and_search() -> None:
    browser = login("view_auditentry")
    note("job.cancelled", "ada", "j1")
    note("job.cancel", "bob", "j2", result="denied")
    note("queue.paused", "bob", "mail", source="http")
    note("token.rotated", "a b", "shop", source="command")
    assert listed(browser) == ["shop", "mail", "j2", "j1"]
    assert listed(browser, did="cancel") == ["j2", "j1"]
    assert listed(browser, did="token") == ["shop"]
    assert listed(browser, did="nonsense") == ["shop", "mail", "j2", "j1"]
    assert listed(browser, **{"from": "http"}) == ["mail"]
    assert listed(browser, ended="denied") == ["j2"]
    assert listed(browser, did="cancel", ended="done") == ["j1"]
    assert listed(browser, q="actor:bob") == ["mail", "j2"]
    assert listed(browser, q='actor:"a b"') == ["shop"]
    assert listed(browser, q="target:j1") == ["j1"]
    assert listed(browser, q="mail") == ["mail"]
    assert listed(browser, q="target:j1 actor:bob") == []
    assert "Not understood" in page(browser, "auditentry/", q="color:red")


def test_filters_look_among_the_newest_only() -> None:
    browser = login("view_auditentry")
    for number in range(12):
        note("queue.paused", "ada" if number < 3 else "bob", f"q{number}")
    with override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 10}}):
        assert listed(browser, q="actor:ada") == ["q2"]
        assert len(listed(browser, did="queue")) == 10
        assert listed(browser, q="target:q0") == ["q0"]
        assert "newest 10 entries" in page(browser, "auditentry/", q="actor:ada")


@pytest.mark.every_database
def test_entries_whose_ids_are_far_apart_are_found() -> None:
    """As they are where several servers give ids."""
    browser = login("view_auditentry")
    for number in range(12):
        note("queue.paused", target=f"q{number}")
    for key in AuditEntry.objects.order_by("-pk").values_list("pk", flat=True):
        AuditEntry.objects.filter(pk=key).update(id=key * 10**6)
    with override_settings(OJS={"ADMIN": {"SEARCH_WINDOW": 10}}):
        assert listed(browser, did="queue") == [f"q{number}" for number in range(11, 1, -1)]
    assert len(listed(browser, did="queue")) == len(listed(browser, q="actor:ada")) == 12


def test_pages_by_the_key() -> None:
    browser = login("view_auditentry")
    for number in range(60):
        note("queue.paused", target=f"q{number}")
    assert listed(browser) == [f"q{number}" for number in range(59, 9, -1)]
    last = AuditEntry.objects.get(target_id="q10")
    assert listed(browser, after=str(last.pk)) == [f"q{number}" for number in range(9, -1, -1)]
    first = AuditEntry.objects.get(target_id="q9")
    assert listed(browser, before=str(first.pk))[-1] == "q10"


@pytest.mark.parametrize("where", ["add/", "{}/change/", "{}/delete/"])
@pytest.mark.fault("S26")
def test_nobody_writes_by_a_form(where: str) -> None:
    browser = login(superuser=True)
    note("queue.paused")
    before = AuditEntry.objects.values().get()
    fields = {"action": "x", "actor": "nobody", "post": "yes", "_save": "1"}
    assert browser.post(LIST + where.format(before["id"]), fields).status_code == 403
    browser.post(LIST, {"action": "delete_selected", "_selected_action": [before["id"]], "post": "yes"})
    assert AuditEntry.objects.values().get() == before


def test_who_may_not_see_it_does_not() -> None:
    browser = login("view_job")
    note("queue.paused")
    pk = AuditEntry.objects.get().pk
    for path in (LIST, f"{LIST}{pk}/change/"):
        assert browser.get(path).status_code == 403


@pytest.mark.slow
def test_few_queries() -> None:
    browser = login(superuser=True)
    for number in range(60):
        note("queue.paused", target=f"q{number}")
    for query in ({}, {"did": "queue"}, {"q": "actor:ada"}, {"q": "actor:ada", "ended": "done"}):
        page(browser, "auditentry/", **query)
        with CaptureQueriesContext(connection) as asked:
            page(browser, "auditentry/", **query)
        statements = reads(asked)
        assert len(statements) <= 5, "\n".join(statements)
        assert not any("DISTINCT" in sql or "OFFSET" in sql for sql in statements)


@pytest.mark.fault("S10")
def test_everything_shown_is_escaped() -> None:
    browser = login(superuser=True)
    AuditEntry.objects.create(
        created_at=clock.now("default"),
        action=HOSTILE[:64],
        result="<b>",
        source="<i>",
        actor=HOSTILE,
        address=HOSTILE[:64],
        reason=HOSTILE,
        target_type="job",
        target_id=HOSTILE,
        data={"changed": HOSTILE, HOSTILE: HOSTILE},
    )
    pk = AuditEntry.objects.get().pk
    for text in (page(browser, "auditentry/"), page(browser, f"auditentry/{pk}/change/")):
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "&lt;script&gt;alert" in text


# What is in it


@pytest.mark.fault("S26")
def test_token_operations_of_the_service() -> None:
    tokens.create("shop", scopes=["produce"], actor=Actor(name="kim"))
    made, _text = tokens.rotate("shop", actor=Actor("command", "ada", "leaked"))
    tokens.revoke("shop", actor=Actor("command", "ada"))
    rows = AuditEntry.objects.order_by("pk")
    assert [(row.action, row.source, row.actor) for row in rows] == [
        ("token.created", "api", "kim"),
        ("token.rotated", "command", "ada"),
        ("token.revoked", "command", "ada"),
    ]
    assert {(row.target_type, row.target_id) for row in rows} == {("token", "shop")}
    assert rows[1].reason == "leaked"
    assert rows[1].data["prefix"] == made.prefix
    assert len(rows[2].data["prefixes"]) == 2
    assert ApiToken.objects.order_by("pk")[0].created_by == "kim"
    assert made.created_by == "ada"


def test_what_failed_leaves_no_row() -> None:
    tokens.create("shop", scopes=["produce"])
    for attempt in (
        lambda: tokens.create("shop", scopes=["produce"]),
        lambda: tokens.rotate("nobody"),
        lambda: tokens.revoke("nobody"),
    ):
        with pytest.raises(Exception, match="token"):
            attempt()
    assert AuditEntry.objects.count() == 1


def test_token_operations_of_the_admin() -> None:
    browser = login(superuser=True)
    form = {"scopes": ["produce"], "queues": "*", "expires_at_0": "", "expires_at_1": ""}
    browser.post(f"{TOKENS}add/", {"name": "shop", **form})
    token = ApiToken.objects.get()
    browser.post(f"{TOKENS}{token.pk}/change/", {**form, "queues": "mail"})
    for action in ("rotate_selected", "revoke_selected"):
        browser.post(TOKENS, {"_selected_action": [token.pk], "action": action})
    rows = AuditEntry.objects.order_by("pk")
    assert [row.action for row in rows] == [
        f"token.{name}" for name in ("created", "changed", "rotated", "revoked")
    ]
    assert {(row.source, row.actor, row.address, row.target_id) for row in rows} == {
        ("admin", "ada", "127.0.0.1", "shop")
    }
    assert token.created_by == "ada"
    assert rows[1].data == {
        "prefix": token.prefix,
        "old": {"queues": ["*"]},
        "new": {"queues": ["mail"]},
    }
    stored = " ".join(str(row.data) for row in rows)
    assert all(item.secret_hash not in stored for item in ApiToken.objects.all())


def test_read_only_takes_the_tokens_away_too() -> None:
    browser = login(superuser=True)
    token, text = tokens.create("shop", scopes=["produce"])
    form = {"scopes": ["administer"], "queues": "*", "expires_at_0": "", "expires_at_1": ""}
    with override_settings(OJS={"ADMIN": {"READ_ONLY": True}}):
        assert browser.get(TOKENS).status_code == 200
        assert browser.post(f"{TOKENS}add/", {"name": "x", **form}).status_code == 403
        assert browser.post(f"{TOKENS}{token.pk}/change/", form).status_code == 403
        browser.post(TOKENS, {"_selected_action": [token.pk], "action": "revoke_selected"})
        browser.post(TOKENS, {"_selected_action": [token.pk], "action": "rotate_selected"})
    assert tokens.verify(text) is not None
    assert ApiToken.objects.get().scopes == ["produce"]


@pytest.mark.fault("S26")
def test_denied_operations_are_in_it() -> None:
    browser = login("view_auditentry", "view_job", "view_queue", "view_worker")
    (job,) = make()
    key = http_workers.seen("w1", None, beats=True).pk
    for path in (f"job/{job.id}/do/cancel", "queue/default/do/pause", f"worker/{key}/do/stop"):
        answer = browser.post(f"/admin/django_ojs/{path}/", {"_confirmed": "1"})
        assert answer.status_code == 403, path
    assert listed(browser, ended="denied") == ["w1", "default", str(job.id)]
    assert set(AuditEntry.objects.values_list("actor", "address", "source")) == {
        ("ada", "127.0.0.1", "admin")
    }
