"""The caller of a request, and what it may do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.jsonvalue import sanitise_text
from django_ojs.models import ApiToken
from django_ojs.services import tokens
from django_ojs.services.tokens import SCOPES

EVERYTHING = ("*",)


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller. Leases and workers are bound to ``key``, which the rotation of a token keeps.

    ``queues`` are names, or prefixes that end in ``*``. ``token_id`` is set for API tokens, ``user``
    for users of the project.
    """

    key: str
    name: str
    scopes: frozenset[str]
    queues: Collection[str] = EVERYTHING
    token_id: int | None = None
    user: Any = field(default=None, compare=False, repr=False)
    database: str | None = field(default=None, compare=False)
    """That of the token."""

    def may(self, *scopes: str) -> bool:
        """Whether the caller has one of the scopes."""
        return not self.scopes.isdisjoint(scopes)

    @property
    def unrestricted(self) -> bool:
        """Whether every queue is visible."""
        return "*" in self.queues

    def sees(self, queue: str) -> bool:
        """Whether the queue and its jobs are visible to the caller."""
        return any(
            queue.startswith(pattern[:-1]) if pattern.endswith("*") else queue == pattern
            for pattern in self.queues
        )

    def renewed(self, *, using: str) -> Principal | None:
        """The caller as its credential is now, ``None`` if it has ended; for long polls and streams.

        Callers that an authentication class of the project made of other objects than users are
        returned unchanged.
        """
        if self.token_id is not None:
            token = tokens.live(self.token_id, using=self.database or using)
            return None if token is None else of_token(token)
        users = getattr(self.user.__class__, "_default_manager", None)
        if users is None:
            return self
        user = users.filter(pk=self.user.pk).first()
        if user is None or not user.is_active or (self.user.is_staff and not user.is_staff):
            return None
        return of_user(user)

    def covers(self, earlier: Principal, scopes: Collection[str]) -> bool:
        """Whether a request that began as ``earlier`` may go on: with a scope and the same queues."""
        return self.may(*scopes) and self.queues == earlier.queues


def of_token(token: ApiToken) -> Principal:
    """The principal that an API token stands for."""
    return Principal(
        f"token:{token.name}",
        token.name,
        frozenset(token.scopes),
        tuple(token.queues),
        token.pk,
        database=token._state.db,
    )


def of_user(user: Any) -> Principal:
    """The principal of a Django user: the scopes are the permissions ``django_ojs.http_*``."""
    scopes = [scope for scope in SCOPES if user.has_perm(f"django_ojs.http_{scope}")]
    return Principal(f"user:{user.pk}", user.get_username(), frozenset(scopes), user=user)


DEVELOPER = Principal("dev", "dev", frozenset(SCOPES))
"""The caller with ``OJS["HTTP"]["DEV_TOKEN"]``, while ``DEBUG`` is on."""
MONITORING = Principal("monitoring", "monitoring", frozenset({"metrics"}))
"""The caller with ``OJS["HTTP"]["METRICS_TOKEN"]``."""


def parse_reason(body: Mapping[str, Any] | None) -> str:
    """The ``reason`` of a request, sanitised and cut; :class:`InvalidRequest` unless it is text."""
    reason = (body or {}).get("reason")
    if reason is not None and not isinstance(reason, str):
        raise InvalidRequest("reason", "must be a string")
    return sanitise_text(reason or "", 1000)
