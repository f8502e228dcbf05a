"""Refused requests in the audit, at a bounded rate so that a flood leaves it readable."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.db import DatabaseError
from rest_framework.exceptions import APIException

from django_ojs.domain.job import Actor
from django_ojs.domain.jsonvalue import sanitise_text
from django_ojs.http.limits import RateWindow
from django_ojs.services import audit, tokens

logger = logging.getLogger("django_ojs.http")

MOST = {"clients": 100, "guesses": 10, "strangers": 10}
"""The most rows of each kind that one process writes per minute."""
MOST_EACH = 10
"""The most rows about one client or address per minute."""

_SEEN = RateWindow(60)
_EACH = RateWindow(60)
_ALL = RateWindow(60)
_TARGETS = {"job_id": "job", "worker_id": "worker", "name": "queue", "type": "schema"}


def note(view: Any, code: str, rule: str) -> None:
    """Write a row for a refusal: one per minute for each path and client or address.

    If the database is not available, the refusal is answered all the same.
    """
    request = view.request
    client = "" if code == "unauthenticated" else _client(view)
    actor = Actor("http", client, "", request.META.get("REMOTE_ADDR", ""))
    route = getattr(request.resolver_match, "url_name", None) or ""
    shown = request.META.get("HTTP_AUTHORIZATION", "")
    who, kind = client or actor.address, "clients" if client else "guesses" if shown else "strangers"
    if (
        _SEEN.count(f"{kind} {who} {request.method} {route}") > 1
        or _EACH.count(f"{kind} {who}") > MOST_EACH
        or _ALL.count(kind) > MOST[kind]
    ):
        return
    target = _target(view.kwargs) if client else _guessed(shown)
    data = {"method": request.method, "route": route, "rule": sanitise_text(rule, 1000)}
    try:
        audit.note("http.refused", actor, target=target, result="denied", using=view.using, **data)
    except DatabaseError as error:
        logger.warning("a refusal could not be recorded in the audit: %s", error)


def _client(view: Any) -> str:
    try:
        return "" if view.principal is None else view.principal.name
    except APIException:
        return ""


def _target(kwargs: Mapping[str, Any]) -> tuple[str, str]:
    for name, kind in _TARGETS.items():
        if name in kwargs:
            return kind, sanitise_text(str(kwargs[name]), 255)
    return "", ""


def _guessed(header: str) -> tuple[str, str]:
    prefix = tokens.prefix_of(header.partition(" ")[2].strip())
    return ("", "") if prefix is None else ("token", prefix)
