"""Rate limits: look, override, restore (OJS rate limiting 7.2 and 10)."""

from __future__ import annotations

from collections.abc import Sequence

from rest_framework.request import Request
from rest_framework.response import Response

from django_ojs import clock
from django_ojs.domain.durations import parse_instant
from django_ojs.domain.errors import InvalidRequest, NotFound
from django_ojs.domain.names import check_queue_name
from django_ojs.domain.rate_limit import QUEUE_PREFIX, check_key, queue_key
from django_ojs.http import listing, responses
from django_ojs.http.base import OJSViewSet, missing
from django_ojs.http.replica import from_replica
from django_ojs.models import RateLimit
from django_ojs.services import databases
from django_ojs.services.rate_limits import operate, read


class RateLimitViewSet(OJSViewSet):
    """The rate limits, by key. Credentials for some queues see the limits of these queues only."""

    scopes = {
        "list": ("inspect",),
        "retrieve": ("inspect",),
        "update": ("administer",),
        "destroy_override": ("administer",),
        "update_queue": ("administer",),
    }

    @from_replica
    def list(self, request: Request) -> Response:
        """The rate limits that were ever used, as they are now."""
        listing.allow(request)
        rows = RateLimit.objects.using(self.using).all()
        only = None if self.caller.unrestricted else ("key", self._sees)

        def shape(found: Sequence[RateLimit]) -> list[responses.JsonObject]:
            states = read.states(found, clock.now(self.using), self.using)
            return [responses.rate_limit(state) for state in states]

        return Response(listing.listed(request, rows, shape, "rate_limits", keys=("key",), only=only))

    def retrieve(self, request: Request, key: str) -> Response:
        """One rate limit: what is taken, who waits, when it opens."""
        return self._answer(self._seen(key))

    def update(self, request: Request, key: str) -> Response:
        """Override the limits of a key, until ``expires_at`` or for good."""
        return self._override(self._changeable(key))

    def update_queue(self, request: Request, name: str) -> Response:
        """Limit all jobs of a queue, whatever limits they have of their own."""
        queue = self.may_use(check_queue_name(name, "name"), "name")
        return self._override(self._found(queue_key(queue)))

    def destroy_override(self, request: Request, key: str) -> Response:
        """Let the limits that the jobs ask for hold again."""
        key = self._changeable(key)
        try:
            operate.clear_override(key, actor=self.acting(), using=self.using)
        except NotFound:
            raise missing("rate_limit", key) from None
        return self._answer(key)

    def _override(self, key: str) -> Response:
        limits = dict(self.body())
        limits.pop("reason", None)
        ends, until = limits.pop("expires_at", None), None
        if ends is not None:
            until, _ = parse_instant(ends, "expires_at", clock.now(self.using))
        operate.override(key, limits, until=until, actor=self.acting(), using=self.using)
        return self._answer(key)

    def _answer(self, key: str) -> Response:
        try:
            state = read.state_of(key, using=self.using)
        except NotFound:
            raise missing("rate_limit", key) from None
        return Response(responses.rate_limit(state))

    def _seen(self, key: str) -> str:
        """The key in the path. Raises :class:`NotFound` if no rate limit can have it, or only one that
        the caller does not see.
        """
        if not self.caller.unrestricted and not self._sees(key):
            raise missing("rate_limit", key)
        try:
            return self._found(check_key(key))
        except InvalidRequest:
            raise missing("rate_limit", key) from None

    def _changeable(self, key: str) -> str:
        """As :meth:`_seen`. Raises for the key of a queue that nobody may act on."""
        key = self._seen(key)
        if key.startswith(QUEUE_PREFIX):
            self.may_use(key.removeprefix(QUEUE_PREFIX), "key")
        return key

    def _found(self, key: str) -> str:
        """Answer from the database in which the key counts."""
        self.use(databases.of_rate_limit(key))
        return key

    def _sees(self, key: str) -> bool:
        return key.startswith(QUEUE_PREFIX) and self.caller.sees(key.removeprefix(QUEUE_PREFIX))
