"""What a second review of the binding found: silent parameters and health, tokens, lost reports."""

from __future__ import annotations

import re
import shlex
import threading
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections

from django_ojs import clock
from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import InvalidRequest, NotFound
from django_ojs.http import listing
from django_ojs.models import ApiToken, ChoreRun, JobSchema, Queue, Worker
from django_ojs.services import scan, tokens
from tests.http.conftest import Caller
from tests.http.support import Answer, Api, enqueue, fetch, look
from tests.support import ROOT


def refused(answer: Answer, field: str) -> None:
    """A 400 that names the field."""
    assert (answer.status, answer.code) == (400, "invalid_request"), answer.raw
    assert answer.body["error"]["details"]["field"] == field


# Tokens from a shell, as the pages show them.


def documented() -> list[list[str]]:
    """Every ``ojs token create`` and ``rotate`` of the pages, as words."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    shown = re.compile(r"^\$ python manage\.py (ojs token (?:create|rotate) .*)$", re.MULTILINE)
    return [shlex.split(line) for page in pages for line in shown.findall(page.read_text())]


def run(*words: str) -> str:
    """What a command prints."""
    out = StringIO()
    call_command(*words, stdout=out, stderr=StringIO())
    return out.getvalue()


@pytest.mark.parametrize("words", documented(), ids=" ".join)
def test_the_documented_token_commands_work(ojs_db: None, words: list[str]) -> None:
    if "rotate" in words:
        tokens.create(words[3], scopes=["work"])
    assert tokens.verify(run(*words).strip())


def test_days_are_whole_days(ojs_db: None, frozen: FrozenClock) -> None:
    assert any("90d" in words for words in documented())
    run("ojs", "token", "create", "c", "--scope", "work", "--expires-at", "90d")
    assert ApiToken.objects.get().expires_at == frozen.now("default") + timedelta(days=90)


@pytest.mark.parametrize("text", ["1.5d", "d", "-3d", "soon", "0d", "99999d", "٣d"])
def test_what_is_no_expiry_names_the_forms(ojs_db: None, text: str) -> None:
    with pytest.raises(CommandError) as caught:
        run("ojs", "token", "create", "c", "--scope", "work", f"--expires-at={text}")
    assert caught.value.returncode == 2
    assert not ApiToken.objects.exists()
    if text != "0d":
        assert "RFC 3339" in str(caught.value)
        assert "90d" in str(caught.value)


def test_the_wire_knows_no_days(api: Api) -> None:
    refused(api.post("/jobs", {"type": "a.b", "args": [], "timeout": "90d"}), "timeout")


# Rotation and revocation.


def test_a_successor_lives_as_long_as_the_old_one_was_given(ojs_db: None, frozen: FrozenClock) -> None:
    start = frozen.now("default")
    tokens.create("c", scopes=["work"], expires_at=start + timedelta(days=90))
    frozen.advance(80 * 86400)
    made, _ = tokens.rotate("c")
    assert made.expires_at == start + timedelta(days=170)
    frozen.advance(86400)
    assert tokens.rotate("c")[0].expires_at == start + timedelta(days=171)


def test_the_successors_expiry_can_be_chosen(ojs_db: None, frozen: FrozenClock) -> None:
    tokens.create("c", scopes=["work"], expires_at=frozen.now("default") + timedelta(days=90))
    text = run("ojs", "token", "rotate", "c", "--expires-at", "30d").strip()
    made = tokens.verify(text)
    assert made is not None
    assert made.expires_at == frozen.now("default") + timedelta(days=30)
    forever = tokens.verify(run("ojs", "token", "rotate", "c", "--expires-at", "never").strip())
    assert forever is not None
    assert forever.expires_at is None
    assert tokens.rotate("c")[0].expires_at is None
    with pytest.raises(InvalidRequest):
        tokens.rotate("c", expires_at=frozen.now("default"))
    assert tokens.verify(text) is None
    assert len(live()) == 2


def live() -> list[str]:
    """The prefixes of the live tokens."""
    now = clock.now("default")
    return [token.prefix for token in tokens.listed() if tokens.is_live(token, now)]


def test_two_rotations_leave_two_tokens(ojs_db: None) -> None:
    first = tokens.create("c", scopes=["work"])[1]
    second = tokens.rotate("c")[1]
    third = tokens.rotate("c")[1]
    assert [tokens.verify(text) is not None for text in (first, second, third)] == [False, True, True]
    assert len(live()) == 2


def test_two_rotations_at_once_leave_two_tokens(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens.create("c", scopes=["work"])
    issue = tokens._issue
    other: list[threading.Thread] = []

    def rotate() -> None:
        try:
            tokens.rotate("c")
        finally:
            connections["default"].close()

    def interrupted(*args: Any) -> Any:
        if not other:
            other.append(threading.Thread(target=rotate))
            other[0].start()
            other[0].join(0.5)
        return issue(*args)

    monkeypatch.setattr(tokens, "_issue", interrupted)
    tokens.rotate("c")
    other[0].join(10)
    assert len(tokens.listed()) == 3
    assert len(live()) == 2


def test_a_revocation_counts_the_living(ojs_db: None, frozen: FrozenClock) -> None:
    tokens.create("c", scopes=["work"])
    tokens.rotate("c", overlap=timedelta(seconds=10))
    frozen.advance(11)
    assert tokens.revoke("c") == 1
    assert live() == []
    assert ApiToken.objects.filter(revoked_at=None).count() == 1, "it had expired by itself"
    assert tokens.revoke("c") == 0
    with pytest.raises(NotFound):
        tokens.revoke("nobody")


# Health.


def health(api: Api) -> tuple[str, int]:
    """The status and how many troubles are told."""
    body = api.get("/health").body
    return body["status"], len(body["troubles"])


def test_a_reaper_that_never_ran_degrades_health_while_something_runs(api: Api) -> None:
    assert ChoreRun.objects.count() == 0
    enqueue(api, heartbeat_timeout=1, timeout=3600)
    assert health(api) == ("ok", 0), "nothing runs, no deadline has passed"
    job = fetch(api)[0]
    assert health(api) == ("degraded", 1)
    assert Api(None).get("/health").body["status"] == "degraded"
    scan.scan(cadence=None, ran_by="test")
    assert health(api) == ("ok", 0)
    ended = {"job_id": job["id"], "lease_id": job["lease"]["id"]}
    assert api.post("/workers/ack", ended).status == 200
    ChoreRun.objects.all().delete()
    assert health(api) == ("ok", 0)


def test_a_reaper_that_died_degrades_health_while_something_runs(api: Api, frozen: FrozenClock) -> None:
    enqueue(api, heartbeat_timeout=1, timeout=3600)
    scan.scan(cadence=timedelta(seconds=1), ran_by="test")
    fetch(api)
    frozen.advance(60)
    assert health(api) == ("ok", 0)
    frozen.advance(61)
    assert health(api) == ("degraded", 1)


# Beats.

LISTS = ("active_job_ids", "jobs", "leases")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            (field, value)
            for field in ("active_job_ids", "jobs", "leases")
            for value in (3, "x", {}, True)
        ),
        *(("active_jobs", value) for value in ("x", {}, True, 1.5)),
        *(("shutdown", value) for value in ("true", 1, 0, "", [], {})),
    ],
)
def test_a_beat_refuses_what_it_cannot_read(api: Api, field: str, value: Any) -> None:
    refused(api.post("/workers/beat", {"worker_id": "w1", field: value}), field)
    listed = {"worker_id": "w1", "active_job_ids": [], field: value}
    refused(api.post("/workers/heartbeat", listed), field)
    assert not Worker.objects.exists()


def test_a_beat_takes_null_for_nothing(api: Api) -> None:
    fields = ("active_job_ids", "jobs", "leases", "active_jobs", "shutdown", "job_id")
    body = {"worker_id": "w1", **dict.fromkeys(fields)}
    assert api.post("/workers/heartbeat", body).body["state"] == "running"
    assert api.post("/workers/heartbeat", {**body, "shutdown": False}).body["state"] == "running"
    assert api.post("/workers/heartbeat", {**body, "active_jobs": 2}).status == 200


# Lists and streams that do what they are asked, or say that they do not.


@pytest.mark.parametrize("name", ["page", "offset", "per_page"])
def test_events_are_paged_by_cursor_only(api: Api, name: str) -> None:
    refused(api.get(f"/events?limit=1&{name}=2"), name)


@pytest.mark.parametrize("path", ["/queues", "/workers", "/admin/queues", "/admin/schemas"])
def test_small_tables_are_paged_by_number_only(
    api: Api, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(api.get(f"{path}?cursor=x"), "cursor")
    refused(api.get(f"{path}?nothing=x"), "nothing")
    assert api.get(f"{path}?limit=1&offset=0").status == 200
    assert api.get(f"{path}?per_page=1&page=1").status == 200


def test_more_is_promised_only_where_it_can_be_fetched(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_OFFSET", 2)
    Queue.objects.bulk_create(Queue(name=f"q{n}") for n in range(5))
    found, offset = [], 0
    while True:
        page = api.get(f"/queues?limit=2&offset={offset}")
        assert page.status == 200, page.raw
        found += [queue["name"] for queue in page.body["queues"]]
        if not page.body["pagination"]["has_more"]:
            break
        offset += 2
    assert found == ["default", "q0", "q1", "q2"]


@pytest.mark.parametrize("name", ["chanel", "cursor", "limit", "since", "Types"])
def test_a_stream_refuses_a_parameter_that_it_does_not_have(api: Api, name: str) -> None:
    job = enqueue(api)
    for path in ("/events/stream", f"/jobs/{job['id']}/events", "/queues/default/events"):
        refused(api.get(f"{path}?{name}=x"), name)


def test_a_stream_refuses_what_its_channel_has_fixed(api: Api) -> None:
    job = enqueue(api)
    for path in (f"/jobs/{job['id']}/events?", f"/events/stream?channel=job:{job['id']}&"):
        refused(api.get(f"{path}job_id={job['id']}"), "job_id")
        assert api("HEAD", f"{path}types=job.*&queues=default").status == 200
    for path in ("/queues/default/events?", "/events/stream?channel=queue:default&"):
        refused(api.get(f"{path}queues=other"), "queues")
        assert api("HEAD", f"{path}event_types=job.*&job_id={job['id']}").status == 200
    refused(api.get(f"/jobs/{job['id']}/events?channel=all"), "channel")
    assert api("HEAD", f"/events/stream?job_id={job['id']}&queue=default&after=").status == 200


# Names and ids.


@pytest.mark.parametrize("name", ["a/b", "/", "w/", ".", ".."])
def test_a_worker_id_that_no_path_can_hold_is_refused(api: Api, name: str) -> None:
    body = {"worker_id": name, "queues": ["default"]}
    for path in ("fetch", "heartbeat", "register", "deregister"):
        refused(api.post(f"/workers/{path}", body), "worker_id")
    assert not Worker.objects.exists()


def test_what_is_accepted_as_a_worker_id_has_an_address(api: Api) -> None:
    for name, path in (("box-7.example-4711-x", "box-7.example-4711-x"), ("a b%?#", "a%20b%25%3F%23")):
        assert api.post("/workers/beat", {"worker_id": name}).status == 200
        assert api.get(f"/workers/{path}").body["worker_id"] == name


@pytest.mark.parametrize("path", ["ack", "nack", "progress"])
def test_a_job_id_of_another_kind_says_so(api: Api, path: str) -> None:
    for field in ("job_id", "id"):
        answer = api.post(f"/workers/{path}", {field: 5, "progress": 0.5})
        refused(answer, field)
        assert "must be a string" in answer.body["error"]["message"]
    answer = api.post(f"/workers/{path}", {"progress": 0.5})
    refused(answer, "job_id")
    assert "is required" in answer.body["error"]["message"]


@pytest.mark.parametrize("path", ["ack", "nack", "fail", "progress"])
def test_path_and_body_must_mean_the_same_job(api: Api, path: str) -> None:
    enqueue(api)
    enqueue(api)
    one, other = fetch(api, count=2)
    for field in ("job_id", "id"):
        body = {field: other["id"], "lease_id": one["lease"]["id"], "progress": 0.5}
        refused(api.post(f"/jobs/{one['id']}/{path}", body), field)
        refused(api.post(f"/jobs/{one['id']}/{path}", {**body, field: 5}), field)
    assert look(api, one)["state"] == "active"
    body = {"job_id": one["id"], "lease_id": one["lease"]["id"], "progress": 0.5}
    assert api.post(f"/jobs/{one['id']}/{path}", body).status == 200


# What a retry cannot do, and who may write schemas.


@pytest.mark.parametrize("path", ["/jobs/{}/retry", "/admin/jobs/{}/retry", "/dead-letter/{}/retry"])
def test_a_retry_may_place_the_job_elsewhere(api: Api, caller: Caller, path: str) -> None:
    enqueue(api, retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    job = fetch(api)[0]
    api.post("/workers/nack", {"job_id": job["id"], "lease_id": job["lease"]["id"]})
    refused(api.post(path.format(job["id"]), {"retry": {"max_attempts": 9}}), "retry")
    refused(api.post(path.format(job["id"]), {"priority": 101}), "priority")
    refused(api.post(path.format(job["id"]), {"queue": "Not"}), "queue")
    some = caller("administer", "inspect", queues=["default"])
    assert some.post(path.format(job["id"]), {"queue": "foreign"}).status == 403
    assert look(api, job)["state"] == "discarded"
    again = {"reason": "again", "queue": "other", "priority": 7}
    assert api.post(path.format(job["id"]), again).status == 200
    found = fetch(api, "other")[0]
    assert (found["id"], found["priority"], found["attempt"]) == (job["id"], 7, 1)


def test_schemas_are_written_by_those_who_see_all_queues(api: Api, caller: Caller) -> None:
    JobSchema.objects.all().delete()
    some = caller("administer", "inspect", queues=["mine"])
    body = {"schema": {"type": "array"}}
    assert some("PUT", "/admin/schemas/a.b/1", body).code == "permission_denied"
    assert not JobSchema.objects.exists()
    assert api("PUT", "/admin/schemas/a.b/1", body).status == 201
    answer = some("DELETE", "/admin/schemas/a.b/1")
    assert (answer.status, answer.code) == (403, "permission_denied")
    assert some.get("/admin/schemas/a.b").status == 200
    assert api("DELETE", "/admin/schemas/a.b/1").status == 200
