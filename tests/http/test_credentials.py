"""Who is let in: no route takes a bad credential."""

from __future__ import annotations

import functools
import json
from datetime import timedelta
from itertools import cycle
from typing import Any

import pytest
from django.test import override_settings

from django_ojs.clock import FrozenClock
from django_ojs.http import limits
from django_ojs.http.base import OPEN, OJSViewSet, ScopePermission
from django_ojs.models import Job, Queue, Worker
from django_ojs.services import tokens
from tests.http.conftest import Caller
from tests.http.guarding import call
from tests.http.support import Api
from tests.http.test_matrix import ALL

pytestmark = pytest.mark.usefixtures("one_window")


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


@pytest.mark.slow
@pytest.mark.parametrize("rest_framework", [{}, ALLOW_ANY], ids=["default", "AllowAny"])
@pytest.mark.fault("S1")
def test_no_route_takes_a_bad_credential(
    bad_credentials: dict[str, str | None],
    rest_framework: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every route and method, with every bad credential: 401, and always the same answer.

    With other defaults of the project each with two: none, and one of the others in turn.
    """
    monkeypatch.setattr(limits, "MAX_FAILURES", 10**9)
    monkeypatch.setattr(tokens, "_hash", functools.cache(tokens._hash))
    bodies = set()
    with override_settings(REST_FRAMEWORK=rest_framework):
        turn = cycle([name for name in bad_credentials if name != "none"])
        for op in ALL:
            names = ("none", next(turn)) if rest_framework else [*bad_credentials]
            for name in names:
                value = bad_credentials[name]
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
