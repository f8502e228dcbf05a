"""Who comes in: API tokens, Django sessions of staff, or any class that ``OJS["HTTP"]`` names."""

from __future__ import annotations

import hmac
from functools import cache, lru_cache
from typing import Any

from django.conf import settings as django_settings
from django.utils.module_loading import import_string
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from django_ojs import conf
from django_ojs.http import limits
from django_ojs.http.principal import DEVELOPER, Principal, of_token, of_user
from django_ojs.http.problems import RateLimited
from django_ojs.services import tokens

_FAILURES = 30
_WINDOW = 60


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
        source = f"failed:{request.META.get('REMOTE_ADDR', '')}:{tokens.prefix_of(text) or ''}"
        # Guessing must not cost us much, nor lock out those who need not guess.
        guessing = cache(lambda: limits.used(source, window=_WINDOW) >= _FAILURES)
        token = tokens.verify(text, only_known=guessing)
        if token is None:
            if guessing():
                raise RateLimited("Too many wrong credentials.", retry_after=_WINDOW)
            limits.count(source, 1, window=_WINDOW)
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
    expected = conf.current().http.dev_token
    if expected is None or not django_settings.DEBUG:
        return False
    return hmac.compare_digest(text.encode(errors="replace"), expected.encode())


@lru_cache(maxsize=8)
def classes(names: tuple[str, ...]) -> tuple[type[BaseAuthentication], ...]:
    """The authentication classes with these dotted names."""
    return tuple(import_string(name) for name in names)
