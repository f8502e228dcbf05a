"""What all viewsets share: authentication, scopes, one body, one form of answer.

Django REST framework dispatches actions, authenticates, asks for permissions and handles
exceptions: projects know how to add an authentication class, and every refusal takes one path. Its
parsers, serializers, routers and content negotiation are not used. A body is read by the view once
the caller is known and may write, field names have aliases that no serializer has, one path means
several spellings, and there is one form of answer, never 406. Everything is set on the class, so
that a project's ``REST_FRAMEWORK`` changes nothing. Extensions build their viewsets on
:class:`OJSViewSet` too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from django.http import HttpResponse
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import NotAuthenticated
from rest_framework.exceptions import NotFound as RouteNotFound
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_ojs import clock, conf
from django_ojs.domain.errors import InvalidRequest, NotFound, OJSError, PermissionDenied
from django_ojs.domain.job import Actor, JobRow
from django_ojs.domain.reserved import is_own
from django_ojs.http import media, problems, refusals, response_warnings, waiting
from django_ojs.http.authentication import classes
from django_ojs.http.body import as_object, read
from django_ojs.http.limits import LONG_POLLS, Quota
from django_ojs.http.principal import Principal, of_user, parse_reason
from django_ojs.services import databases, inspect, queues, reading, up_to_date
from django_ojs.store.contention import alone, repeating_statements

T = TypeVar("T")

OPEN = "open"
"""The scope of actions that need no authentication."""


_OWN = "This is a job of django_ojs itself: act on it in the admin."
_TENANT = "X-OJS-Tenant"
EXTENSIONS: set[str] = set()
"""The URNs of the extensions that are complete; ``routing.register`` adds them."""


class ScopePermission(BasePermission):
    """Deny by default: an action without an entry in ``scopes`` is always refused."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the principal has one of the action's scopes."""
        assert isinstance(view, OJSViewSet)
        needed = view.needed_scopes()
        if OPEN in needed:
            return True
        principal = view.principal
        if principal is None:
            return False
        # Only authenticated callers learn by a 405 that a method does not exist.
        return not view.action or request.method == "OPTIONS" or principal.may(*needed)


class OJSViewSet(ViewSet):
    """A resource of the binding.

    ``scopes`` maps each action to scopes, of which the caller needs one.
    """

    scopes: ClassVar[Mapping[str, Sequence[str]]] = {}
    http_method_names = ["get", "post", "put", "patch", "delete", "head"]
    permission_classes = (ScopePermission,)
    parser_classes = (media.Parser,)
    renderer_classes = (media.Renderer,)
    content_negotiation_class = media.Negotiation
    throttle_classes = ()
    versioning_class = None
    metadata_class = None
    request: Request
    request_id: str
    quota: Quota | None = None
    """What the caller may still enqueue, if this request was counted."""

    def needed_scopes(self) -> Sequence[str]:
        """The scopes of the action, of which the caller needs one."""
        return self.scopes.get(self.action or "", ())

    @property
    def principal(self) -> Principal | None:
        """The caller, ``None`` if it is not authenticated."""
        request = self.request
        if isinstance(request.auth, Principal):
            return request.auth
        return of_user(request.user) if request.user and request.user.is_authenticated else None

    @property
    def caller(self) -> Principal:
        """The caller of an action that requires authentication."""
        principal = self.principal
        assert principal is not None
        return principal

    def should_stop_waiting(self) -> bool:
        """Whether a long poll should end: the client has disconnected, or the caller has lost the scope
        or queues that it began with. Raises :class:`NotAuthenticated` for a credential that has ended.
        """
        now = self.caller.renewed(using=self.using)
        if now is None:
            raise NotAuthenticated
        # Last: a job claimed for a client that disconnects after this check is lost to it.
        return not now.covers(self.caller, self.needed_scopes()) or waiting.hung_up(self.request.META)

    def long_poll(
        self, look: Callable[[], T], queues: Collection[str], wait_ms: int, **options: Any
    ) -> T | None:
        """:func:`waiting.until` on a place of the caller. Raises :class:`RateLimited` without one."""
        limits = conf.current().http
        with LONG_POLLS.take(
            self.caller, most=limits.long_polls, most_each=limits.long_polls_per_token
        ):
            gone = self.should_stop_waiting
            return waiting.until(look, queues, wait_ms, gone=gone, using=self.using, **options)

    def actor(self, reason: str = "") -> Actor:
        """The caller as the actor of events and audit entries."""
        return Actor("http", self.caller.name, reason, self.request.META.get("REMOTE_ADDR", ""))

    def acting(self) -> Actor:
        """The actor, with the ``reason`` in the body if the request has one."""
        return self.actor(parse_reason(self.body(required=False)))

    _elsewhere: str | None = None

    @property
    def using(self) -> str:
        """The database that holds the jobs; in an action ``from_replica`` perhaps its replica. After
        :meth:`use` the one that was named.
        """
        return self._elsewhere or reading.database()

    def use(self, alias: str) -> None:
        """Answer from this database: that of the queue, or of the job, which the request names."""
        self._elsewhere = None if alias == conf.current().database else alias

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Instances of the classes in ``OJS["HTTP"]["AUTHENTICATION"]``."""
        return [kind() for kind in classes(conf.current().http.authentication)]

    def get_exception_handler(self) -> Callable[..., Response]:
        """The handler of this package, whatever the project's settings are."""
        return problems.handle

    def handle_exception(self, exc: Exception) -> Response:
        """The response to an error; 401 and 403 are recorded in the audit."""
        response = super().handle_exception(exc)
        if response.status_code in (401, 403):
            error = response.data["error"]
            refusals.note(self, error["code"], error["message"])
        return response

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer the request; statements that lost a race are run again. Routes that are included with
        ``{"database": alias}`` are those of that database.
        """
        alias = kwargs.pop("database", None)
        here = conf.current().database if alias is None else str(alias)
        with conf.on(here), repeating_statements(here):
            return super().dispatch(request, *args, **kwargs)

    def initialize_request(self, request: Any, *args: Any, **kwargs: Any) -> Request:
        """Assign the request id before anything can fail."""
        fresh = f"req_{clock.new_id()}"
        self.warnings: list[dict[str, Any]] = []
        self.request_id = media.request_id(request.META.get("HTTP_X_REQUEST_ID"), fresh)
        return super().initialize_request(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate, check permissions, then the version and extensions that are required."""
        request.accepted_renderer, request.accepted_media_type = media.Renderer(), media.OJS
        self.perform_authentication(request)
        self.check_permissions(request)
        media.check_version(request)
        self._check_extensions(request.META.get("HTTP_OJS_REQUIRES_EXTENSION", ""))
        if (tenant := request.META.get("HTTP_X_OJS_TENANT")) is not None:
            text_field({_TENANT: tenant}, _TENANT)
            self.warn(_TENANT, "ignored: tenants are not kept apart, use tokens for some queues")
        # No name contains NUL, and not every database accepts it as a parameter.
        if any("\x00" in str(value) for value in kwargs.values()):
            raise RouteNotFound
        name = str(request.method).lower()
        if request.method in SAFE_METHODS and hasattr(self, name):
            # What only reads is read again as a whole where it lost a race.
            act = getattr(self, name)
            read = partial(alone, conf.current().database)
            setattr(self, name, lambda *args, **kwargs: read(partial(act, *args, **kwargs)))

    def _check_extensions(self, requested: str) -> None:
        """Raise :class:`ExtensionNotSupported` for an extension that the manifest does not list."""
        for name in filter(None, map(str.strip, requested.split(","))):
            if name not in EXTENSIONS:
                raise problems.ExtensionNotSupported(
                    f"Extension {name[:200]!r} is not supported here.", extension=name[:200]
                )

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Set the headers of every response, errors included."""
        if isinstance(response, Response):
            response.content_type = media.content_type(request)
        if response.status_code < 400:
            response_warnings.add_warnings(response, self.warnings)
        response = super().finalize_response(request, response, *args, **kwargs)
        response["OJS-Version"] = media.VERSION
        response["X-Request-Id"] = self.request_id
        if self.quota is not None and "X-RateLimit-Limit" not in response:
            for name, value in self.quota.headers().items():
                response[name] = value
        response["X-Content-Type-Options"] = "nosniff"
        response["Cache-Control"] = "no-store"
        if isinstance(request, Request):
            reading.remember_write(request._request, response)
        if isinstance(response, Response):
            response.add_post_render_callback(_say_length)
        return response

    def warn(self, field: str, message: str, **more: Any) -> None:
        """Add a warning to a successful response: part of the request was not done as requested."""
        self.warnings.append({**more, "field": field, "message": message})

    def body(self, *, required: bool = True) -> Mapping[str, Any]:
        """The JSON object in the body; without ``required`` an empty body is ``{}``."""
        if not hasattr(self, "_body"):
            limit = conf.current().http.max_body_bytes
            self._body, self.body_bytes = read(self.request._request, limit=limit)
        value = self._body
        if value is None and not required:
            return {}
        return as_object(value)

    def job(self, job_id: str, *, fresh: bool = False) -> JobRow:
        """A job that the caller may see; with ``fresh`` it is first promoted or ended if that is due.

        Raises :class:`NotFound` for a job that does not exist or is in a foreign queue, and
        :class:`PermissionDenied` for writes to an internal job.
        """
        key = self.key(job_id)
        self.use(databases.of_job(key))
        with suppress(NotFound):
            job = inspect.find(key, using=self.using)
            if self.caller.sees(job.queue):
                if is_own(type=job.type) and self.request.method not in SAFE_METHODS:
                    raise PermissionDenied(_OWN)
                return up_to_date.find_up_to_date(key, using=self.using) if fresh else job
        raise missing("job", job_id)

    def key(self, text: str, kind: str = "job") -> UUID:
        """The primary key for an id. Raises :class:`NotFound` for text that is no canonical UUID."""
        with suppress(ValueError):
            key = UUID(text)
            if str(key) == text:
                return key
        raise missing(kind, text)

    def job_id_of(self, job_id: str | None, body: Mapping[str, Any]) -> str:
        """The id of the reported job: from the path, or ``job_id`` or ``id`` of the body.

        Raises :class:`InvalidRequest`, also when the two differ.
        """
        field = "id" if body.get("job_id") is None and body.get("id") is not None else "job_id"
        value = body.get(field)
        if value is None and job_id is None:
            raise InvalidRequest("job_id", "is required")
        if value is not None and (not isinstance(value, str) or not value):
            raise InvalidRequest(field, "must be a string, the id of a job")
        if value is not None and job_id is not None and value != job_id:
            raise InvalidRequest(field, "must be the id in the path")
        return str(job_id or value)

    def may_use(self, queue: str, field: str) -> str:
        """The queue, if the caller may use it. Raises :class:`PermissionDenied`."""
        if self.caller.sees(queue) and not is_own(queue=queue):
            return queue
        message = f"This credential may not use the queue {queue!r}."
        if is_own(queue=queue):
            message = f"The queue {queue!r} is for the work of django_ojs itself."
        raise PermissionDenied(message, field=field, queue=queue)

    def first_use(self, names: Iterable[str]) -> list[str]:
        """Create the queues that do not exist yet. Raises :class:`RateLimited`."""
        return queues.first_use(names, self.caller.key, token_id=self.caller.token_id, using=self.using)


def missing(kind: str, name: str) -> NotFound:
    """The 404 of a resource, the same for one that does not exist and one that is hidden."""
    return NotFound(f"There is no {kind} {name!r}.", resource_type=kind, resource_id=name)


def parse_each(name: str, items: Sequence[Any], parse: Callable[[Any], T]) -> list[T]:
    """Apply ``parse`` to every item of a list in the body; errors name the index of the item."""
    found = []
    for index, item in enumerate(items):
        try:
            found.append(parse(item))
        except OJSError as error:
            error.details = {**error.details, "index": index}
            error.message = f"{name}[{index}]: {error.message}"
            raise
    return found


def text_field(body: Mapping[str, Any], name: str, *, most: int = 255) -> str | None:
    """A string field, ``None`` if it is absent. Raises :class:`InvalidRequest`."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        raise InvalidRequest(name, f"must be a string of 1 to {most} printable characters")
    return value


def integer_field(
    source: Mapping[str, Any], *names: str, least: int, most: int | None = None
) -> int | None:
    """An integer field under the first of its names that is given. Raises :class:`InvalidRequest`."""
    for name in names:
        value = source.get(name)
        if value is None:
            continue
        if type(value) is not int or value < least or (most is not None and value > most):
            span = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise InvalidRequest(name, f"must be an integer {span}")
        return value
    return None


def _say_length(response: HttpResponse) -> None:
    if not response.has_header("Content-Length"):
        response["Content-Length"] = str(len(response.content))
