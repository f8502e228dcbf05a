"""Authentication: API tokens, sessions of staff users, or the classes in ``OJS["HTTP"]``."""

from __future__ import annotations

import hmac
from functools import lru_cache
from typing import Any

from django.conf import settings as django_settings
from django.utils.module_loading import import_string
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from django_ojs import conf
from django_ojs.http import limits
from django_ojs.http.principal import DEVELOPER, MONITORING, Principal, of_token, of_user
from django_ojs.services import tokens


class TokenAuthentication(BaseAuthentication):
    """``Authorization: Bearer <prefix>.<secret>``; cookies are not looked at."""

    def authenticate(self, request: Request) -> tuple[None, Principal] | None:
        """The principal of a valid token; ``None`` without a Bearer header."""
        scheme, _, text = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        text = text.strip()
        if _is_dev_token(text):
            return None, DEVELOPER
        if _is(text, conf.current().http.metrics_token):
            return None, MONITORING
        token = tokens.verify(text)
        if token is None:
            limits.charge_failure(request.META.get("REMOTE_ADDR", ""))
            raise AuthenticationFailed
        return None, of_token(token)

    def authenticate_header(self, request: Request) -> str:
        """Makes the refusal a 401."""
        return "Bearer"


class StaffSessionAuthentication(SessionAuthentication):
    """The Django session of a staff user, with CSRF protection; scopes are Django permissions."""

    def authenticate(self, request: Request) -> tuple[Any, Principal] | None:
        """The principal of a logged-in staff user."""
        found = super().authenticate(request)
        if found is None or not found[0].is_staff:
            return None
        return found[0], of_user(found[0])

    def authenticate_header(self, request: Request) -> str:
        """Makes the refusal a 401."""
        return "Session"


def _is_dev_token(text: str) -> bool:
    return django_settings.DEBUG and _is(text, conf.current().http.dev_token)


def _is(text: str, expected: str | None) -> bool:
    if expected is None:
        return False
    return hmac.compare_digest(text.encode(errors="replace"), expected.encode())


@lru_cache(maxsize=8)
def classes(names: tuple[str, ...]) -> tuple[type[BaseAuthentication], ...]:
    """The authentication classes with these dotted names."""
    return tuple(import_string(name) for name in names)
