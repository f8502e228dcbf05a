"""Over HTTP as in the admin: what somebody does, or is refused, leaves a row in the audit."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import QuerySet
from django.test import Client

from django_ojs.models import AuditEntry
from tests.http.conftest import Caller
from tests.http.guarding import read
from tests.http.support import Api, enqueue, fetch

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("one_window")]


def noted(*columns: str) -> list[Any]:
    """What the audit has, the oldest first."""
    return list(rows().values_list(*columns, flat=len(columns) == 1))


def rows() -> QuerySet[AuditEntry]:
    """But for the tokens that the test has made."""
    return AuditEntry.objects.exclude(source="api").order_by("pk")


@pytest.mark.fault("S26")
def test_whoever_sends_away_anothers_worker_is_named(caller: Caller) -> None:
    """A worker that says good-bye for itself is no row: workers come and go."""
    boss, other = caller(name="boss"), caller("work", name="other")
    fetch(other, worker="w1")
    fetch(other, worker="w2")
    assert boss("DELETE", "/workers/w1", {"reason": "wild"}).status == 200
    assert noted("action", "actor", "reason", "address", "target_type", "target_id") == [
        ("worker.stopped", "boss", "wild", "127.0.0.1", "worker", "w1")
    ]
    assert boss("DELETE", "/workers/w1").status == 200
    assert other("DELETE", "/workers/w2").status == 200
    assert len(noted("pk")) == 1, "it was gone, and it went by itself"


@pytest.mark.fault("S26")
def test_schemas_queues_and_activations(api: Api) -> None:
    """Each once: what changes nothing leaves no row."""
    pending = enqueue(api, pending=True)["id"]
    for _ in range(2):
        api("PUT", "/admin/schemas/mail.send/1", {"schema": {"type": "array"}})
        api.post("/queues", {"name": "fresh"})
        api.post(f"/jobs/{pending}/activate")
        api("DELETE", "/admin/schemas/mail.send/2")
    api("DELETE", "/admin/schemas/mail.send/1")
    assert noted("action", "target_type", "target_id", "source", "result") == [
        ("schema.created", "schema", "mail.send/1", "http", "done"),
        ("queue.created", "queue", "fresh", "http", "done"),
        ("job.activated", "job", pending, "http", "done"),
        ("schema.deleted", "schema", "mail.send/1", "http", "done"),
    ]


@pytest.mark.fault("S26")
def test_what_a_client_may_not_do_is_noted_once_a_minute(caller: Caller) -> None:
    narrow = caller("produce", name="narrow", queues=["mail"])
    job = enqueue(narrow, queue="mail")["id"]
    for _ in range(3):
        assert narrow.post(f"/jobs/{job}/cancel").status == 403
        assert narrow.post("/jobs", {"type": "a.b", "args": [], "queue": "secret"}).status == 403
    found = rows()
    assert {(row.action, row.result, row.source, row.actor, row.address) for row in found} == {
        ("http.refused", "denied", "http", "narrow", "127.0.0.1")
    }
    assert [(row.target_type, row.target_id) for row in found] == [("job", job), ("", "")]
    assert [row.data["method"] for row in found] == ["POST", "POST"]
    assert found[0].data["route"] == "ojs/v1/jobs/{job_id}/cancel"
    assert "administer" in found[0].data["rule"]
    assert "secret" in found[1].data["rule"]


@pytest.mark.fault("S25", "S26")
def test_a_guess_is_noted_with_its_address(caller: Caller) -> None:
    """By the prefix that was guessed for, and without the secret."""
    good = caller(name="good")
    assert good.token is not None
    prefix = good.token.partition(".")[0]
    guesser = Client(REMOTE_ADDR="203.0.113.9", raise_request_exception=False)
    for letter in "abc":
        assert read(guesser, Authorization=f"Bearer {prefix}.{letter * 43}").status == 401
    (row,) = rows()
    assert (row.action, row.result, row.actor, row.address) == (
        *("http.refused", "denied", ""),
        "203.0.113.9",
    )
    assert (row.target_type, row.target_id) == ("token", prefix)
    assert "aaa" not in repr(vars(row))


def test_strangers_do_not_fill_the_table(caller: Caller) -> None:
    """Nor do they hide what clients are refused."""
    narrow = caller("produce", name="narrow")
    for n in range(50):
        stranger = Client(REMOTE_ADDR=f"203.0.113.{n}", raise_request_exception=False)
        assert read(stranger, Authorization="Bearer x").status == 401
    assert len(noted("pk")) == 10
    assert narrow.post("/queues", {"name": "x"}).status == 403
    assert noted("actor")[-1] == "narrow"


def test_neither_does_one_client(caller: Caller) -> None:
    """Whatever it names: another queue each time makes another message."""
    narrow, other = caller("work", name="narrow", queues=["mail"]), caller("work", name="other")
    for n in range(20):
        asked = {"queues": [f"q{n}"], "worker_id": "w1"}
        assert narrow.post("/workers/fetch", asked).status == 403
    assert noted("actor") == ["narrow"]
    for path in ("jobs", "queues", "workers", "events", "dead-letter", "admin/jobs", "admin/stats"):
        assert narrow.get(f"/{path}").status == 403
        assert narrow("POST", f"/{path}", {}).status in (403, 405)
    assert len(noted("pk")) == 10
    assert other.get("/jobs").status == 403
    assert noted("actor")[-1] == "other"


def test_who_shows_nothing_does_not_hide_who_guesses(caller: Caller) -> None:
    for n in range(20):
        stranger = Client(REMOTE_ADDR=f"203.0.113.{n}", raise_request_exception=False)
        assert read(stranger).status == 401
    assert len(noted("pk")) == 10
    guesser = Client(REMOTE_ADDR="203.0.113.99", raise_request_exception=False)
    assert read(guesser, Authorization="Bearer x").status == 401
    assert noted("address")[-1] == "203.0.113.99"


def test_odd_names_in_a_path_are_no_error_of_the_audit(caller: Caller) -> None:
    narrow = caller("produce", name="narrow")
    for name in ("a%00b", "%ED%A0%80", "x" * 3000, "%1b%5b2J"):
        assert narrow.post(f"/queues/{name}/pause").status == 403
    assert all(len(target) <= 255 for target in noted("target_id"))
