"""Who is let in, what they see, and what an answer gives away."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.db import DataError, IntegrityError, InterfaceError, OperationalError, connections
from django.test import Client, override_settings

from django_ojs import clock
from django_ojs.api import get
from django_ojs.clock import FrozenClock
from django_ojs.http import authentication, limits
from django_ojs.http.base import OPEN, OJSViewSet, ScopePermission
from django_ojs.http.principal import Principal, of_token
from django_ojs.http.routing import slices
from django_ojs.http.views import events as event_views
from django_ojs.models import ApiToken, Attempt, Event, Job, Queue, Worker
from django_ojs.services import stream, tokens
from django_ojs.services.stream import Wanted
from tests.http.conftest import Caller
from tests.http.support import MEDIA, Answer, Api, enqueue, fetch, look
from tests.http.test_matrix import ALL, Operation

MISSING = "019539a4-b68c-7def-8000-1a2b3c4d5e6f"
GOOD = json.dumps({"type": "test.job", "args": []}).encode()


@pytest.fixture(autouse=True)
def one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh counters, in a window that does not end during the test."""
    cache.clear()
    monkeypatch.setattr(limits, "_key", lambda name, window: f"ojs-test:{name}")


def error(answer: Answer, status: int, code: str) -> dict[str, Any]:
    assert (answer.status, answer.code) == (status, code), answer.raw[:500]
    found: dict[str, Any] = answer.body["error"]
    return found


def call(op: Operation, api: Api, **headers: str) -> Answer:
    return api(op.method, f"/{op.path}", {} if op.method != "GET" else None, **headers)


# Credentials (S1)


@pytest.fixture
def bad_credentials(ojs_db: None, frozen: FrozenClock) -> dict[str, str | None]:
    """Everything that is none, by name: the value of ``Authorization``."""
    everything: dict[str, Any] = {"scopes": tokens.SCOPES}
    good = tokens.create("good", **everything)[1]
    expired = tokens.create("old", **everything, expires_at=frozen.time + timedelta(hours=1))[1]
    revoked = tokens.create("gone", **everything)[1]
    tokens.revoke("gone")
    frozen.advance(3601)
    prefix, _, secret = good.partition(".")
    return {
        "none": None,
        "no value": "Bearer",
        "no secret": f"Bearer {prefix}",
        "empty secret": f"Bearer {prefix}.",
        "malformed": "Bearer x",
        "odd characters": "Bearer ojs_\x7f\u00e9.\u00fc" + "x" * 30,
        "long": "Bearer " + "x" * 8000,
        "injection": "Bearer ojs_aaaaaaaaaaaa.' or 1=1 -- aaaaaaaaaa",
        "another scheme": f"Basic {good}",
        "no scheme": good,
        "two": f"Bearer {good} {good}",
        "unknown": f"Bearer ojs_{'a' * 12}.{secret}",
        "wrong secret": f"Bearer {prefix}.{'a' * len(secret)}",
        "longer secret": f"Bearer {good}a",
        "case of the prefix": f"Bearer {prefix.upper()}.{secret}",
        "expired": f"Bearer {expired}",
        "revoked": f"Bearer {revoked}",
    }


ALLOW_ANY = {
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.AllowAny"],
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.BasicAuthentication"],
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}


@pytest.mark.parametrize("rest_framework", [{}, ALLOW_ANY], ids=["default", "AllowAny"])
@pytest.mark.fault("S1")
def test_no_route_takes_a_bad_credential(
    bad_credentials: dict[str, str | None],
    rest_framework: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every route and method, with every bad credential: 401, and always the same answer."""
    monkeypatch.setattr(authentication, "_FAILURES", 10**9)
    monkeypatch.setattr(tokens, "_hash", functools.cache(tokens._hash))
    bodies = set()
    with override_settings(REST_FRAMEWORK=rest_framework):
        for op in ALL:
            for name, value in bad_credentials.items():
                headers = {} if value is None else {"Authorization": value}
                answer = call(op, Api(None), **headers)
                where = f"{op.method} {op.path} with {name}"
                if OPEN in op.view.scopes[op.action]:
                    assert answer.status in (200, 401, 404), where
                    continue
                assert (answer.status, answer.code) == (401, "unauthenticated"), where
                assert answer.headers["WWW-Authenticate"].startswith("Bearer"), where
                found = answer.body
                del found["error"]["request_id"]
                bodies.add(json.dumps(found))
    assert len(bodies) == 1
    assert not Job.objects.exists() and not Queue.objects.exists() and not Worker.objects.exists()


@pytest.mark.fault("S1")
def test_viewsets_do_not_ask_the_projects_defaults() -> None:
    for name in (
        "permission_classes",
        "parser_classes",
        "renderer_classes",
        "throttle_classes",
        "content_negotiation_class",
        "versioning_class",
        "metadata_class",
        "get_authenticators",
        "get_exception_handler",
    ):
        assert name in OJSViewSet.__dict__, name
    for op in ALL:
        assert op.view.permission_classes == (ScopePermission,), op.view
        assert op.view.get_authenticators is OJSViewSet.get_authenticators, op.view
        assert op.view.initial is OJSViewSet.initial, op.view


@pytest.mark.fault("S25")
def test_strangers_learn_nothing_from_paths(api: Api) -> None:
    """A path that is not there, and a method that is not allowed, are 401 as well."""
    for method, path in (
        ("GET", "/nothing"),
        ("GET", ""),
        ("POST", "/x/y/z"),
        ("PUT", "/jobs"),
        ("TRACE", "/jobs"),
    ):
        assert Api(None)(method, path).status == 401, path
        assert api(method, path).status in (404, 405), path


def test_another_class_of_authentication_alone(caller: Caller) -> None:
    """What ``OJS["HTTP"]["AUTHENTICATION"]`` leaves out does not work."""
    api = caller()
    session = "django_ojs.http.authentication.StaffSessionAuthentication"
    with override_settings(OJS={"HTTP": {"AUTHENTICATION": [session]}}):
        assert api.get("/jobs").status == 401
    with override_settings(OJS={"HTTP": {"AUTHENTICATION": []}}):
        assert api.get("/jobs").status in (401, 403)


# Queues of a credential (S3, S4)


@pytest.fixture
def tenants(caller: Caller) -> tuple[Api, Api]:
    """One who may use ``q1`` only, and one who may use everything."""
    return caller(name="mine", queues=["q1"]), caller(name="all")


def foreign(every: Api) -> dict[str, dict[str, Any]]:
    """Jobs of ``q2`` in every state that an operation is about, with signs."""
    pending = enqueue(every, queue="q2", pending=True)
    dead = enqueue(every, queue="q2", retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    fetch(every, "q2", worker="foreign-worker")
    every.post("/workers/nack", {"job_id": dead["id"], "error": "foreign-error"})
    enqueue(every, queue="q2", args=["foreign-secret"])
    active = fetch(every, "q2", worker="foreign-worker")[0]
    lease = {"lease_id": active["lease"]["id"]}
    path = f"/jobs/{active['id']}"
    assert every.post(f"{path}/checkpoint", {**lease, "state": "foreign-state"}).status == 200
    assert (
        every.post(f"{path}/progress", {**lease, "progress": 0.3, "message": "foreign"}).status == 200
    )
    waiting = enqueue(every, queue="q2")
    return {"pending": pending, "dead": dead, "active": active, "waiting": waiting}


def leveled(answer: Answer, *names: str) -> tuple[int, Any]:
    """The answer without what must differ: the name that was asked for, and the request's id."""
    text = re.sub(rb'"request_id":"[^"]*"', b'"request_id":""', answer.raw).decode()
    for name in names:
        text = text.replace(name, "*")
    return answer.status, json.loads(text)


def everything() -> tuple[list[Any], ...]:
    tables = (Job, Attempt, Queue, Event)
    return tuple(list(model.objects.order_by("pk").values()) for model in tables)


def job_operations() -> Iterator[tuple[str, str]]:
    for part in slices():
        for route in part.routes:
            for method in route.actions:
                for path in (route.path, *route.aliases):
                    if "{job_id}" in path:
                        yield method.upper(), path


@pytest.mark.fault("S3", "S4", "F126")
def test_a_foreign_job_does_not_exist(tenants: tuple[Api, Api]) -> None:
    """Every operation on a job, by every path: the same answer as for an id that is nobody's."""
    mine, every = tenants
    jobs = foreign(every)
    before = everything()
    seen = 0
    for method, path in job_operations():
        for job in jobs.values():
            body = None
            if method != "GET":
                body = {
                    "priority": 9,
                    "extend_timeout": 60,
                    "progress": 0.9,
                    "state": "x",
                    "queue": "q1",
                }
                body |= {"lease_id": job["lease"]["id"]} if "lease" in job else {}
            answer = mine(method, "/" + path.format(job_id=job["id"]), body)
            missing = mine(method, "/" + path.format(job_id=MISSING), body)
            assert answer.status == 404, (method, path, answer.raw)
            assert leveled(answer, job["id"]) == leveled(missing, MISSING), (method, path)
            seen += 1
    assert seen > 80
    assert everything() == before


@pytest.mark.parametrize(
    "path", ["/workers/ack", "/workers/nack", "/workers/fail", "/workers/progress"]
)
@pytest.mark.fault("S3")
def test_a_foreign_job_named_in_the_body(tenants: tuple[Api, Api], path: str) -> None:
    mine, every = tenants
    job = foreign(every)["active"]
    before = everything()
    more = {
        "progress": 0.9,
        "lease_id": job["lease"]["id"],
        "worker_id": "foreign-worker",
        "attempt": 1,
    }
    answer = mine.post(path, {"job_id": job["id"], **more})
    missing = mine.post(path, {"job_id": MISSING, **more})
    assert answer.status == 404
    assert leveled(answer, job["id"]) == leveled(missing, MISSING)
    assert everything() == before


@pytest.mark.fault("S3")
def test_a_beat_for_a_foreign_job(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    jobs = foreign(every)
    every("DELETE", f"/jobs/{jobs['waiting']['id']}")
    before = everything()[0]
    for job in jobs.values():
        beats = []
        for job_id in (job["id"], MISSING):
            item: Any = {"id": job_id, "lease_id": jobs["active"]["lease"]["id"]}
            body = {"worker_id": "w1", "active_jobs": [item], "extend_timeout": 60}
            answer = mine.post("/workers/heartbeat", body)
            found = leveled(answer, job_id)
            del found[1]["server_time"]
            beats.append(found)
        assert beats[0] == beats[1]
        assert (beats[0][1]["jobs_lost"], beats[0][1]["jobs_extended"]) == (["*"], [])
    assert everything()[0] == before


@pytest.mark.fault("S3")
def test_a_foreign_queue_does_not_exist(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    foreign(every)
    before = everything()[2]
    for method, path in (
        ("GET", "/queues/{}"),
        ("GET", "/queues/{}/stats"),
        ("GET", "/queues/{}/events"),
        ("POST", "/queues/{}/pause"),
        ("POST", "/queues/{}/resume"),
        ("GET", "/admin/queues/{}"),
        ("POST", "/admin/queues/{}/pause"),
        ("POST", "/admin/queues/{}/resume"),
        ("GET", "/events/stream?channel=queue:{}"),
    ):
        answer, missing = mine(method, path.format("q2")), mine(method, path.format("q-none"))
        assert answer.status == 404, (method, path, answer.raw)
        assert leveled(answer, "q2") == leveled(missing, "q-none"), path
    assert everything()[2] == before
    assert mine.get("/queues/q1").status == 200


def test_a_foreign_worker_does_not_exist(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    foreign(every)
    before = list(Worker.objects.values())
    for method, path in (
        ("GET", "/workers/{}"),
        ("GET", "/workers/{}/health"),
        ("POST", "/workers/{}/quiet"),
        ("POST", "/workers/{}/terminate"),
        ("POST", "/workers/{}/resume"),
        ("DELETE", "/workers/{}"),
        ("GET", "/admin/workers/{}"),
        ("DELETE", "/admin/workers/{}"),
    ):
        answer, missing = (
            mine(method, path.format("foreign-worker")),
            mine(method, path.format("nobody")),
        )
        assert answer.status == 404, (method, path)
        assert leveled(answer, "foreign-worker") == leveled(missing, "nobody"), path
    assert list(Worker.objects.values()) == before


def test_events_of_a_foreign_job(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    job = foreign(every)["active"]
    for path in ("/events?job_id={}", "/events/stream?channel=job:{}", "/events/stream?job_id={}"):
        answer, missing = mine.get(path.format(job["id"])), mine.get(path.format(MISSING))
        assert answer.status == 404
        assert leveled(answer, job["id"]) == leveled(missing, MISSING)


@pytest.mark.fault("S3")
def test_nothing_goes_into_or_comes_out_of_a_foreign_queue(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    foreign(every)
    own = enqueue(mine, queue="q1")
    before = everything()
    job = {"type": "test.job", "args": []}
    error(mine.post("/jobs", {**job, "queue": "q2"}), 403, "permission_denied")
    error(
        mine.post("/jobs", {**job, "queue": "q1", "options": {"queue": "q2"}}), 403, "permission_denied"
    )
    error(mine.post("/jobs", job), 403, "permission_denied")
    batch = [{**job, "queue": "q1"}, {**job, "queue": "q2"}]
    found = error(mine.post("/jobs/batch", {"jobs": batch}), 403, "permission_denied")
    assert found["details"]["index"] == 1
    for queues in (["q2"], ["q1", "q2"], ["q"], ["q10"]):
        answer = mine.post("/workers/fetch", {"queues": queues, "worker_id": "w1"})
        error(answer, 403, "permission_denied")
    error(mine.post("/workers/fetch", {"queue": "q2"}), 403, "permission_denied")
    error(mine.post("/queues", {"name": "q2"}), 403, "permission_denied")
    error(mine("PATCH", f"/jobs/{own['id']}", {"queue": "q2"}), 403, "permission_denied")
    assert everything() == before


@pytest.mark.fault("S4")
def test_lists_show_nothing_foreign(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    jobs = foreign(every)
    secrets = [*(job["id"] for job in jobs.values()), "q2", "foreign"]
    own = enqueue(mine, queue="q1")
    paths = [
        "/jobs",
        "/admin/jobs",
        "/jobs?state=active",
        "/jobs?worker_id=foreign-worker",
        "/dead-letter",
        "/admin/dead-letter",
        "/dead-letter/stats",
        "/admin/dead-letter/stats",
        "/queues",
        "/admin/queues",
        "/workers",
        "/admin/workers",
        "/events",
        "/events?types=job.*",
        "/admin/stats",
        "/health",
    ]
    for path in paths:
        answer = mine.get(path)
        assert answer.status == 200, (path, answer.raw)
        for text in secrets:
            assert text.encode() not in answer.raw, (path, text)
    for path in ("/jobs?queue=q2", "/dead-letter?queue=q2", "/events?queues=q2"):
        assert mine.get(path).body["items"] == [], path
    assert [job["id"] for job in mine.get("/jobs").body["jobs"]] == [own["id"]]
    assert mine.get("/jobs").body["pagination"]["total"] == 1
    assert mine.get("/dead-letter/stats").body["total"] == 0
    assert every.get("/jobs").body["pagination"]["total"] == 5


@pytest.mark.fault("S4")
def test_an_id_of_a_foreign_job_tells_nothing_of_it(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    job = enqueue(every, queue="q2", id=MISSING, args=["foreign-secret"])
    body = {"type": "test.job", "args": ["foreign-secret"], "queue": "q1", "id": job["id"]}
    answer = mine.post("/jobs", body)
    found = error(answer, 409, "duplicate")
    assert "existing_job_state" not in found["details"]
    for text in (b"q2", b"available", b"foreign-secret"):
        assert text not in answer.raw
    assert look(every, job)["queue"] == "q2"


def test_prefixes_of_queues(caller: Caller) -> None:
    team = caller(name="team", queues=["team-*", "q"])
    assert team.post("/jobs", {"type": "test.job", "args": [], "queue": "team-a"}).status == 201
    for queue in ("team", "teams", "tea", "q1", "xteam-a"):
        answer = team.post("/jobs", {"type": "test.job", "args": [], "queue": queue})
        error(answer, 403, "permission_denied")
    other = caller(name="other", queues=["team-b*"])
    assert other.get("/jobs").body["items"] == []


# Workers of another credential (S5, S6)


@pytest.mark.fault("S6")
def test_another_credentials_worker_id(caller: Caller, frozen: FrozenClock) -> None:
    mine, other = caller(name="mine"), caller(name="other")
    job = enqueue(mine)
    claimed = fetch(mine, worker="w1")[0]
    enqueue(mine)
    frozen.advance(20)
    before, workers = everything(), list(Worker.objects.values())
    named = {"worker_id": "w1", "active_jobs": [{"id": job["id"], "lease_id": claimed["lease"]["id"]}]}
    for path, body in (
        ("/workers/heartbeat", named),
        ("/workers/beat", {**named, "extend_timeout": 60}),
        ("/workers/fetch", {"worker_id": "w1", "queues": ["default"]}),
        ("/workers/register", {"worker_id": "w1"}),
        ("/workers/deregister", {"worker_id": "w1"}),
    ):
        found = error(other.post(path, body), 403, "permission_denied")
        assert found["details"]["field"] == "worker_id", path
    assert everything() == before
    assert list(Worker.objects.values()) == workers
    beat = other.post("/workers/heartbeat", {**named, "worker_id": "w2"})
    assert (beat.body["jobs_extended"], beat.body["jobs_lost"]) == ([], [job["id"]])
    assert everything()[:3] == before[:3]


def test_a_worker_of_this_project_is_not_for_callers(api: Api, frozen: FrozenClock) -> None:
    """Whose row has no credential at all."""
    now = clock.now("default")
    Worker.objects.create(id="host-1", incarnation=clock.new_id(), started_at=now, heartbeat_at=now)
    for path in ("/workers/heartbeat", "/workers/register", "/workers/deregister"):
        error(api.post(path, {"worker_id": "host-1"}), 403, "permission_denied")
    assert Worker.objects.get().phase == "running"


@pytest.mark.fault("S6")
def test_another_credential_may_not_end_a_worker(caller: Caller) -> None:
    mine, other = caller("work", name="mine"), caller("work", name="other")
    mine.post("/workers/register", {"worker_id": "w1"})
    error(other("DELETE", "/workers/w1"), 404, "not_found")
    assert Worker.objects.get().phase == "running"
    assert mine("DELETE", "/workers/w1").status == 200


@pytest.mark.fault("S5")
def test_a_stolen_lease_is_worth_nothing(caller: Caller) -> None:
    mine, other = caller(name="mine"), caller("work", "inspect", name="other")
    enqueue(mine)
    job = fetch(mine)[0]
    before = everything()
    stolen = {"job_id": job["id"], "lease_id": job["lease"]["id"], "worker_id": "w1", "attempt": 1}
    for path in ("/workers/ack", "/workers/nack"):
        error(other.post(path, stolen), 409, "conflict")
    for path in ("progress", "checkpoint", "extend"):
        body = {**stolen, "progress": 0.5, "state": 1, "by": 60}
        error(other.post(f"/jobs/{job['id']}/{path}", body), 409, "conflict")
    assert everything() == before


# Sessions (S8)


@pytest.fixture
def people(ojs_db: None) -> Iterator[None]:
    """Users and sessions of a test, gone after it."""
    yield
    Session.objects.all().delete()
    User.objects.filter(username__startswith="http-").delete()


def person(name: str, *permissions: str, csrf: bool = True, **more: Any) -> Client:
    user = User.objects.create_user(f"http-{name}", password="x", **more)
    chosen = Permission.objects.filter(codename__in=permissions, content_type__app_label="django_ojs")
    user.user_permissions.set(chosen)
    client = Client(enforce_csrf_checks=csrf, raise_request_exception=False)
    client.force_login(user)
    return client


def post(
    client: Client,
    path: str = "/ojs/v1/jobs",
    data: bytes = GOOD,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    response = client.generic("POST", path, data, content_type=MEDIA, headers=headers)
    return Answer(response.status_code, dict(response.items()), response.content)


def read(client: Client, path: str = "/ojs/v1/jobs", **headers: str) -> Answer:
    response = client.get(path, headers=headers)
    return Answer(response.status_code, dict(response.items()), response.content)


@pytest.mark.fault("S8")
def test_a_session_needs_the_csrf_token(people: None) -> None:
    client = person("chief", is_staff=True, is_superuser=True)
    assert read(client).status == 200
    found = error(post(client), 403, "permission_denied")
    assert "CSRF" in found["message"]
    error(post(client, "/ojs/v1/queues/default/pause", b""), 403, "permission_denied")
    for method in ("PUT", "PATCH", "DELETE"):
        response = client.generic(method, f"/ojs/v1/jobs/{MISSING}", b"{}", content_type=MEDIA)
        assert response.status_code == 403, method
    form = client.post("/ojs/v1/jobs", {"type": "test.job", "csrfmiddlewaretoken": "x"})
    assert form.status_code in (400, 403)
    assert not Job.objects.exists()
    secret = "a" * 32
    client.cookies["csrftoken"] = secret
    error(post(client, headers={"X-CSRFToken": "b" * 32}), 403, "permission_denied")
    assert post(client, headers={"X-CSRFToken": secret}).status == 201
    wrong = {"X-CSRFToken": secret, "Origin": "https://evil.example"}
    error(post(client, headers=wrong), 403, "permission_denied")
    assert Job.objects.count() == 1


def test_permissions_of_staff_are_scopes(people: None) -> None:
    nobody = person("nobody", is_staff=True, csrf=False)
    error(read(nobody), 403, "permission_denied")
    error(post(nobody), 403, "permission_denied")
    reader = person("reader", "http_inspect", is_staff=True, csrf=False)
    assert read(reader).status == 200
    error(post(reader), 403, "permission_denied")
    producer = person("producer", "http_produce", is_staff=True, csrf=False)
    assert post(producer).status == 201
    error(read(producer), 403, "permission_denied")


def test_sessions_of_others_count_for_nothing(people: None) -> None:
    member = person("member", "http_inspect", "http_produce", csrf=False)
    error(read(member), 401, "unauthenticated")
    error(post(member), 401, "unauthenticated")
    root = person("root", is_superuser=True, csrf=False)
    error(read(root), 401, "unauthenticated")
    left = person("left", is_staff=True, is_superuser=True, csrf=False)
    User.objects.filter(username="http-left").update(is_active=False)
    error(read(left), 401, "unauthenticated")
    out = person("out", is_staff=True, is_superuser=True, csrf=False)
    assert read(out).status == 200
    out.logout()
    error(read(out), 401, "unauthenticated")


def test_a_cookie_beside_a_token_is_not_used(people: None, caller: Caller) -> None:
    client = person("chief", is_staff=True, is_superuser=True)
    producer = f"Bearer {caller('produce', name='p').token}"
    error(read(client, Authorization=producer), 403, "permission_denied")
    assert post(client, headers={"Authorization": producer}).status == 201, (
        "and no CSRF token is needed"
    )
    inspector = f"Bearer {caller('inspect', name='i').token}"
    error(post(client, headers={"Authorization": inspector}), 403, "permission_denied")
    for bad in ("Bearer x", "bearer x", f"Bearer ojs_{'a' * 12}.{'a' * 43}", "Bearer "):
        answer = read(client, Authorization=bad)
        if bad.strip().lower() != "bearer":
            error(answer, 401, "unauthenticated")


# What errors give away (S11, S29)

SECRET = "SELECT password FROM auth_user WHERE dsn='postgres://me:hunter2@db/x'"
GIVEAWAYS = (
    b"SELECT",
    b"hunter2",
    b"Traceback",
    b"django_ojs/",
    b".py",
    b"Error(",
    b"auth_user",
    b"<html",
)


def breaking(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setattr("django_ojs.http.views.jobs.enqueue", fail)
    monkeypatch.setattr("django_ojs.http.views.work.claiming.claim", fail)
    monkeypatch.setattr("django_ojs.http.listing.jobs", fail)
    monkeypatch.setattr("django_ojs.services.inspect.find", fail)
    monkeypatch.setattr("django_ojs.services.stream.read", fail)
    monkeypatch.setattr("django_ojs.services.workers.seen", fail)
    monkeypatch.setattr("django_ojs.services.queues.ensure", fail)


def failing_requests(api: Api) -> Iterator[Answer]:
    yield api.post("/jobs", {"type": "test.job", "args": []})
    yield api.post("/jobs/batch", {"jobs": [{"type": "test.job", "args": []}]})
    yield api.post("/workers/fetch", {"queues": ["default"]})
    yield api.post("/workers/heartbeat", {"worker_id": "w1"})
    yield api.get("/jobs")
    yield api.get(f"/jobs/{MISSING}")
    yield api.get("/events")
    yield api.post("/queues", {"name": "q"})


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize(
    "cause",
    [
        RuntimeError(SECRET),
        KeyError(SECRET),
        RecursionError(SECRET),
        MemoryError(SECRET),
        DataError(SECRET),
        IntegrityError(SECRET),
        AssertionError(SECRET),
        UnicodeError(SECRET),
    ],
    ids=lambda cause: type(cause).__name__,
)
@pytest.mark.fault("S29")
def test_a_500_says_nothing_but_its_request_id(
    api: Api, monkeypatch: pytest.MonkeyPatch, cause: Exception, debug: bool
) -> None:
    breaking(monkeypatch, cause)
    with override_settings(DEBUG=debug):
        for answer in failing_requests(api):
            found = error(answer, 500, "internal_error")
            assert found["request_id"] == answer.headers["X-Request-Id"]
            assert (found["details"], found["retryable"]) == ({}, False)
            for text in GIVEAWAYS:
                assert text not in answer.raw, answer.raw
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("kind", [OperationalError, InterfaceError])
@pytest.mark.fault("S29")
def test_a_database_that_is_away_is_a_503(
    api: Api, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    breaking(monkeypatch, kind(SECRET))
    for answer in failing_requests(api):
        found = error(answer, 503, "backend_error")
        assert found["retryable"] is True
        assert int(answer.headers["Retry-After"]) > 0
        for text in GIVEAWAYS:
            assert text not in answer.raw, answer.raw


def test_a_database_that_is_away_while_the_token_is_looked_up(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a 401: the client must come back, not throw its token away."""

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError(SECRET)

    monkeypatch.setattr("django_ojs.services.tokens.verify", fail)
    answer = api.get("/jobs")
    error(answer, 503, "backend_error")
    assert b"hunter2" not in answer.raw


@pytest.mark.fault("S5")
def test_the_lease_of_a_job_is_in_no_answer_but_the_fetch(api: Api) -> None:
    enqueue(api)
    job = fetch(api)[0]
    lease = job["lease"]["id"].encode()
    for op in ALL:
        if op.action in ("stream", "of_job", "of_queue") or op.method != "GET":
            continue
        path = re.sub(rf"{MISSING}", job["id"], op.path)
        assert lease not in api.get(f"/{path}").raw, path
    other = {"job_id": job["id"], "lease_id": MISSING}
    assert lease not in api.post("/workers/ack", other).raw


# Adversarial patterns and names (S15, S20)


@pytest.mark.timeout(30)
@pytest.mark.fault("S15")
def test_patterns_are_not_regular_expressions(api: Api) -> None:
    evil = ["(a+)+$", "(.*)*x", ".*", "a" * 255, "[", "(?P<x>", "a.*"]
    enqueue(api, retry={"non_retryable_errors": evil, "jitter": False})
    job = fetch(api)[0]
    failure = {"type": "a" * 200_000 + "!", "message": "aaaa", "code": "ab"}
    answer = api.post("/workers/nack", {"job_id": job["id"], "error": failure})
    assert answer.body["state"] in ("retryable", "discarded")
    enqueue(api, queue="two", retry={"non_retryable_errors": ["(a+)+$", "b.*"], "jitter": False})
    job = fetch(api, "two")[0]
    answer = api.post("/workers/nack", {"job_id": job["id"], "error": {"type": "aaaa"}})
    assert answer.body["state"] == "retryable"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("unit", ["a.", "a-", "a", "-", ".", "1", "P", "T1", "1h", "0"])
@pytest.mark.fault("S15")
def test_names_and_times_are_matched_in_linear_time(api: Api, unit: str) -> None:
    long = unit * 300_000
    for name in ("type", "queue", "id", "timeout", "scheduled_at", "specversion"):
        body = {"type": "test.job", "args": [], name: long + "!"}
        assert api.post("/jobs", body).status in (400, 422), name
    for path in ("/jobs?cursor=", "/jobs?since=", "/jobs?type=", "/events?after="):
        assert api.get(path + quote(long[:5000] + "!")).status == 400, path
    assert api.get("/health", X_Request_Id=long[:5000]).status == 200
    assert api.get("/jobs", OJS_Version=long[:5000] + "!").status == 422
    assert Api(long[:5000]).get("/jobs").status in (401, 429)


@pytest.mark.fault("S20")
def test_a_type_is_a_name_and_nothing_is_imported(api: Api) -> None:
    for name in ("this", "antigravity"):
        assert name not in sys.modules
    enqueue(api)
    api.get("/jobs")
    fetch(api, "none")
    before = set(sys.modules)
    for kind in ("os.system", "this.s", "antigravity.fly", "subprocess.popen", "builtins.eval", "this"):
        job = enqueue(api, type=kind, args=["echo pwned"])
        assert look(api, job)["type"] == kind
    for kind in ("subprocess.Popen", "../../x", "os:system", "__main__.x", "this\x00"):
        error(api.post("/jobs", {"type": kind, "args": []}), 400, "invalid_request")
    assert len(fetch(api, count=10)) == 7
    assert set(sys.modules) == before


# Rates (S24, S25)


@pytest.mark.fault("S24")
def test_the_rate_of_enqueues(caller: Caller) -> None:
    mine, other = caller(name="mine"), caller(name="other")
    with override_settings(OJS={"HTTP": {"ENQUEUE_RATE": 2}}):
        for _ in range(2):
            enqueue(mine)
        answer = mine.post("/jobs", {"type": "test.job", "args": []})
        found = error(answer, 429, "rate_limited")
        assert found["retryable"] is True
        assert int(answer.headers["Retry-After"]) >= 1
        job = {"type": "test.job", "args": []}
        error(mine.post("/jobs/batch", {"jobs": [job, job]}), 429, "rate_limited")
        assert Job.objects.count() == 2
        enqueue(other)
        assert mine.get("/jobs").status == 200, "only enqueues are counted"


def test_a_rate_that_is_used_up_says_so_in_headers(api: Api) -> None:
    with override_settings(OJS={"HTTP": {"ENQUEUE_RATE": 1}}):
        answers = [api.post("/jobs", {"type": "a.b", "args": []}) for _ in range(5)]
    refused = [answer for answer in answers if answer.status == 429]
    assert refused
    assert refused[0].headers["Retry-After"] == "1"
    assert refused[0].headers["X-RateLimit-Limit"] == "1"
    assert refused[0].headers["X-RateLimit-Remaining"] == "0"
    assert refused[0].headers["X-RateLimit-Reset"].isdigit()


def test_the_rate_is_of_the_client_not_of_its_token(caller: Caller) -> None:
    mine = caller(name="mine")
    with override_settings(OJS={"HTTP": {"ENQUEUE_RATE": 2}}):
        enqueue(mine)
        renewed = Api(tokens.rotate("mine")[1])
        enqueue(renewed)
        error(renewed.post("/jobs", {"type": "test.job", "args": []}), 429, "rate_limited")


def test_requests_that_are_refused_cost_nothing(caller: Caller) -> None:
    mine = caller(name="mine")
    with override_settings(OJS={"HTTP": {"ENQUEUE_RATE": 2}}):
        for _ in range(5):
            assert mine.post("/jobs", {"type": "Bad", "args": []}).status == 400
        enqueue(mine)
        enqueue(mine)


@pytest.mark.fault("S25")
def test_guessing_a_secret(caller: Caller) -> None:
    good, other = caller(name="good"), caller(name="other")
    assert good.token is not None
    prefix = good.token.partition(".")[0]
    wrong = Api(f"{prefix}.{'a' * 43}")
    assert other.get("/jobs").status == 200
    for _ in range(30):
        error(wrong.get("/jobs"), 401, "unauthenticated")
    answer = wrong.get("/jobs")
    error(answer, 429, "rate_limited")
    assert int(answer.headers["Retry-After"]) > 0
    error(wrong.get("/jobs", X_Forwarded_For="10.9.8.7", X_Real_IP="10.9.8.7"), 429, "rate_limited")
    error(Api(f"{prefix}.{'b' * 43}").get("/jobs"), 429, "rate_limited")
    assert good.get("/jobs").status == 429, "the thirty-first guess finds out nothing"
    assert other.get("/jobs").status == 200
    elsewhere = Client(REMOTE_ADDR="10.0.0.9", raise_request_exception=False)
    assert read(elsewhere, Authorization=f"Bearer {good.token}").status == 200


def test_guessing_does_not_lock_out_whoever_is_known(caller: Caller) -> None:
    """Of one address, as behind a proxy."""
    good = caller(name="good")
    assert good.token is not None
    assert good.get("/jobs").status == 200
    wrong = Api(f"{good.token.partition('.')[0]}.{'a' * 43}")
    assert [wrong.get("/jobs").status for _ in range(31)][-1] == 429
    assert good.get("/jobs").status == 200
    tokens.revoke("good")
    assert good.get("/jobs").status in (401, 429)


@pytest.mark.fault("S25")
def test_guessing_prefixes(api: Api) -> None:
    """What is no token at all is counted together."""
    statuses = [Api(f"guess-{n}").get("/jobs").status for n in range(31)]
    assert statuses == [401] * 30 + [429]
    assert api.get("/jobs").status == 200


def test_limits_do_not_stop_work_when_the_cache_is_away(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away:
        def __getattr__(self, name: str) -> Any:
            raise ConnectionError("no cache")

    monkeypatch.setattr(limits, "cache", Away())
    enqueue(api)
    assert Api("x").get("/jobs").status == 401


# Headers (S27, S28, S32)

SPOOFED = {
    "X-OJS-Tenant": "q2",
    "X-OJS-Tenant-ID": "q2",
    "X-Forwarded-For": "127.0.0.1",
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-User": "root",
    "X-Remote-User": "root",
    "Remote-User": "root",
    "X-User": "root",
    "X-HTTP-Method-Override": "DELETE",
    "X-Original-URL": "/ojs/v1/admin/stats",
    "Forwarded": "for=127.0.0.1;host=evil.example",
}


@pytest.mark.fault("S27")
def test_spoofed_headers_change_nothing(tenants: tuple[Api, Api]) -> None:
    mine, every = tenants
    job = enqueue(every, queue="q2")
    error(Api(None).get("/jobs", **SPOOFED), 401, "unauthenticated")
    error(mine.get(f"/jobs/{job['id']}", **SPOOFED), 404, "not_found")
    assert mine.get("/jobs", **SPOOFED).body["items"] == []
    body = {"type": "test.job", "args": [], "queue": "q1"}
    answer = mine.post("/jobs", body, **SPOOFED)
    assert answer.status == 201
    assert answer.headers["Location"] == f"/ojs/v1/jobs/{answer.body['id']}"
    assert b"evil" not in answer.raw
    assert look(every, job)["state"] == "available"


@pytest.mark.fault("S28")
def test_no_cross_origin_header_at_all(api: Api) -> None:
    asked = {
        "Origin": "https://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    for client in (api, Api(None)):
        for method, path in (
            ("OPTIONS", "/jobs"),
            ("OPTIONS", f"/jobs/{MISSING}"),
            ("GET", "/jobs"),
            ("POST", "/jobs"),
            ("GET", "//health"),
            ("OPTIONS", "//health"),
            ("GET", "//ojs/manifest"),
            ("OPTIONS", "/nothing"),
        ):
            answer = client(method, path, None, **asked)
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]
            if method == "OPTIONS":
                assert answer.status in (401, 403, 404, 405), (path, answer.status)


@pytest.mark.fault("S32")
def test_headers_of_every_answer(api: Api) -> None:
    """Whatever the answer is: nothing to sniff, nothing to keep, an id and the version."""
    seen = set()
    for op in ALL:
        for client in (api, Api(None)):
            if client is api and op.action in ("stream", "of_job", "of_queue"):
                continue
            answer = call(op, client)
            seen.add(answer.status)
            headers = answer.headers
            assert headers["X-Content-Type-Options"] == "nosniff", op
            assert headers["Cache-Control"] == "no-store", op
            assert headers["OJS-Version"] == "1.0", op
            assert headers["X-Request-Id"].startswith("req_"), op
            assert int(headers["Content-Length"]) == len(answer.raw), op
            assert headers["Content-Type"].startswith("application/openjobspec+json"), op
    assert {200, 400, 401, 404} <= seen


@pytest.mark.parametrize("given", ["abc", "req_1", "x" * 255, "!~", "a,b;c=d", "<script>"])
def test_a_request_id_is_echoed(api: Api, given: str) -> None:
    for path in ("/jobs", f"/jobs/{MISSING}", "/nothing"):
        answer = api.get(path, X_Request_Id=given)
        assert answer.headers["X-Request-Id"] == given
        if answer.status >= 400:
            assert answer.body["error"]["request_id"] == given


@pytest.mark.parametrize(
    "given", ["", " ", "a b", "x" * 256, "é", "\x7f", "a\tb", "\x00", "a\x1b[31mb", "٣"]
)
def test_a_request_id_that_is_not_printable_is_replaced(api: Api, given: str) -> None:
    for path in ("/jobs", "/nothing"):
        answer = api.get(path, X_Request_Id=given)
        assert re.fullmatch(r"req_[0-9a-f-]{36}", answer.headers["X-Request-Id"])


@pytest.mark.parametrize(
    "version", ["2", "2.0", "0", "0.9", "x", "1.x", "11", "", "1.0; x", "1.0\x00", "-1", "1."]
)
def test_other_versions_are_unsupported(api: Api, version: str) -> None:
    found = error(api.get("/jobs", OJS_Version=version), 422, "unsupported")
    assert found["details"]["field"] == "OJS-Version"
    error(api.post("/jobs", {"type": "test.job", "args": []}, OJS_Version=version), 422, "unsupported")
    assert not Job.objects.exists()


@pytest.mark.parametrize("version", ["1", "1.0", "1.0.0", "1.0.0-rc.1", "1.7"])
def test_every_version_one_is_supported(api: Api, version: str) -> None:
    answer = api.get("/jobs", OJS_Version=version)
    assert (answer.status, answer.headers["OJS-Version"]) == (200, "1.0")


# Streams (S30)


def of(api: Api) -> Principal:
    assert api.token is not None
    token = tokens.verify(api.token)
    assert token is not None
    return of_token(token)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that asks after its token before every step, and does not sleep."""
    monkeypatch.setattr(event_views, "RECHECK_SECONDS", 0.0)
    monkeypatch.setattr(event_views, "LOOK_EVERY", 0.001)
    monkeypatch.setattr(event_views, "STREAM_SECONDS", 20.0)


def follow(api: Api, **wanted: Any) -> Iterator[bytes]:
    lines = event_views._follow(of(api), Wanted(**wanted), stream.newest(), "default")
    assert next(lines) == b"retry: 1000\n\n"
    return lines


@pytest.mark.fault("S30")
def test_a_stream_ends_when_its_token_is_revoked(caller: Caller, hasty: None) -> None:
    every, mine = caller(name="all"), caller("inspect", name="mine")
    lines, others = follow(mine), follow(every)
    job = enqueue(every)
    assert job["id"].encode() in next(lines)
    tokens.revoke("mine")
    more = enqueue(every)
    assert list(lines) == []
    assert job["id"].encode() in next(others)
    assert more["id"].encode() in next(others)


def test_a_stream_ends_when_its_token_expires(caller: Caller, hasty: None, frozen: FrozenClock) -> None:
    every = caller(name="all")
    mine = caller("inspect", name="mine", expires_at=frozen.time + timedelta(minutes=1))
    lines = follow(mine)
    enqueue(every)
    next(lines)
    frozen.advance(60)
    enqueue(every)
    assert list(lines) == []


@pytest.mark.fault("S30")
def test_a_stream_shows_what_its_token_may_see(caller: Caller, hasty: None) -> None:
    every, mine = caller(name="all"), caller("inspect", name="mine", queues=["q1"])
    lines = follow(mine, within=list(of(mine).queues))
    enqueue(every, queue="q2")
    every.post("/workers/register", {"worker_id": "foreign"})
    own = enqueue(every, queue="q1")
    assert own["id"].encode() in next(lines)


def test_places_of_streams_are_given_back(caller: Caller) -> None:
    mine = caller("inspect", name="mine")
    with override_settings(OJS={"HTTP": {"STREAMS_PER_TOKEN": 1}}):
        client = Client(raise_request_exception=False)
        headers = {"Authorization": f"Bearer {mine.token}"}
        response = client.get("/ojs/v1/events/stream", headers=headers)
        assert response.status_code == 200
        answer = mine.get("/events/stream")
        error(answer, 429, "rate_limited")
        assert int(answer.headers["Retry-After"]) > 0
        response.close()
        again = client.get("/ojs/v1/events/stream", headers=headers)
        assert again.status_code == 200
        again.close()
        for path in ("/events/stream?channel=x", f"/jobs/{MISSING}/events"):
            assert mine.get(path).status in (400, 404), "a refused one takes no place"
        last = client.get("/ojs/v1/events/stream", headers=headers)
        assert (last.status_code, last.headers["X-Content-Type-Options"]) == (200, "nosniff")
        last.close()


# Tokens


def test_a_rotated_token_works_until_it_expires(caller: Caller, frozen: FrozenClock) -> None:
    old = caller(name="mine")
    enqueue(old)
    job = fetch(old, worker="w1", visibility_timeout_ms=0)[0]
    new = Api(tokens.rotate("mine", overlap=timedelta(minutes=10))[1])
    assert old.token != new.token
    beat = {"worker_id": "w1", "active_jobs": [job["id"]]}
    assert new.post("/workers/heartbeat", beat).body["jobs_extended"] == [job["id"]]
    done = {"job_id": job["id"], "lease_id": job["lease"]["id"]}
    assert new.post("/workers/ack", done).status == 200
    frozen.advance(599)
    assert old.get("/jobs").status == new.get("/jobs").status == 200
    frozen.advance(1)
    assert (old.get("/jobs").status, new.get("/jobs").status) == (401, 200)


def test_a_rotation_changes_neither_scopes_nor_queues(caller: Caller) -> None:
    caller("inspect", name="mine", queues=["q1"])
    new = Api(tokens.rotate("mine")[1])
    error(new.post("/jobs", {"type": "test.job", "args": [], "queue": "q1"}), 403, "permission_denied")
    error(new.get("/queues/q2"), 404, "not_found")


def test_a_revocation_holds_at_once(caller: Caller) -> None:
    mine, other = caller(name="mine"), caller(name="other")
    second = Api(tokens.rotate("mine")[1])
    assert mine.get("/jobs").status == second.get("/jobs").status == 200
    tokens.revoke("mine")
    assert mine.get("/jobs").status == second.get("/jobs").status == 401
    assert other.get("/jobs").status == 200


def test_one_of_two_tokens_is_revoked_by_its_prefix(caller: Caller) -> None:
    mine = caller(name="mine")
    second = Api(tokens.rotate("mine")[1])
    assert mine.token is not None
    tokens.revoke(mine.token.partition(".")[0])
    assert (mine.get("/jobs").status, second.get("/jobs").status) == (401, 200)


def test_the_secret_is_nowhere_but_with_its_owner(api: Api) -> None:
    assert api.token is not None
    prefix, _, secret = api.token.partition(".")
    job = enqueue(api)
    fetch(api)
    api.post("/workers/ack", {"job_id": job["id"]})
    connection = connections["default"]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            assert secret not in repr(cursor.fetchall()), table
    row = ApiToken.objects.get()
    assert row.prefix == prefix
    salt, _, data = row.secret_hash.partition("$")
    assert (len(bytes.fromhex(salt)), len(bytes.fromhex(data))) == (16, 64)
    assert secret not in repr(row) and secret not in str(row)
    for path in ("/jobs", "/workers", "/events", "/admin/stats", "//ojs/manifest"):
        assert secret.encode() not in api.get(path).raw


def test_two_tokens_of_the_same_secret_have_other_hashes() -> None:
    assert tokens._hash("x", b"a" * 16) != tokens._hash("x", b"b" * 16)


def test_the_developers_token_works_in_development_only(ojs_db: None) -> None:
    dev = Api("dev")
    with override_settings(OJS={"HTTP": {"DEV_TOKEN": "dev"}}):
        with override_settings(DEBUG=False):
            error(dev.get("/jobs"), 401, "unauthenticated")
        with override_settings(DEBUG=True):
            assert dev.get("/jobs").status == 200
            error(Api("Dev").get("/jobs"), 401, "unauthenticated")
            error(Api("").get("/jobs"), 401, "unauthenticated")
    for nothing in (None, ""):
        with override_settings(DEBUG=True, OJS={"HTTP": {"DEV_TOKEN": nothing}}):
            for token in ("dev", "", "None"):
                error(Api(token).get("/jobs"), 401, "unauthenticated")


def test_directives_in_metadata_are_for_suites_only(api: Api) -> None:
    """Decision L7: nobody steers workers through the metadata of jobs."""
    enqueue(api, meta={"test_directive": "terminate"})
    job = fetch(api)[0]
    beat = {"worker_id": "w1", "active_jobs": [job["id"]]}
    for debug, allowed in ((False, True), (True, False)):
        with override_settings(DEBUG=debug, OJS={"HTTP": {"TEST_DIRECTIVES": allowed}}):
            assert api.post("/workers/heartbeat", beat).body["directive"] == "continue"


def test_a_credential_without_a_scope_for_it_changes_nothing(caller: Caller) -> None:
    every, reader = caller(name="all"), caller("inspect", name="reader")
    job = enqueue(every)
    before = get(job["id"])
    for op in ALL:
        if op.method != "GET" and op.action != "nothing":
            path = op.path.replace(MISSING, job["id"])
            error(reader(op.method, f"/{path}", {}), 403, "permission_denied")
    assert get(job["id"]) == before
