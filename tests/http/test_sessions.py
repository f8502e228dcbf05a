"""Sessions of a browser: permissions are scopes, and a write needs the CSRF token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.test import Client

from django_ojs.models import Job
from tests.http.conftest import Caller
from tests.http.guarding import GOOD, MISSING, error, read
from tests.http.support import MEDIA, Answer

pytestmark = pytest.mark.usefixtures("one_window")


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
