"""Lists of the admin from the replica, and the primary for who has just changed something."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import SimpleTemplateResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _

from django_ojs import conf
from django_ojs.admin import switch
from django_ojs.admin.charts import plain
from django_ojs.services import reading
from django_ojs.store.contention import alone, repeating_statements

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


def routed(page: ModelAdmin, patterns: Iterable[URLPattern]) -> list[URLPattern]:
    """The views of a model, on the database that was chosen: its list reads the replica, and every form
    is remembered.
    """
    found = list(patterns)
    for pattern in found:
        lists = str(pattern.name).endswith("_changelist")
        pattern.callback = _view(page, pattern.callback, lists=lists)
    return found


def _view(page: ModelAdmin, view: Callable[..., Any], *, lists: bool) -> Callable[..., Any]:
    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        first = switch.answer_first(page, request)
        if first is not None:
            return first
        latest, using = not lists or reading.needs_latest(request), switch.chosen(request)
        show = partial(reading.on_replica, partial(view, request, *args, **kwargs), latest=latest)
        with _on(using):
            silent = switch.silent(page, request)
            if silent is not None:
                return silent
            response: HttpResponse
            response = alone(using, show) if request.method in reading.SAFE else show()
            reading.remember_write(request, response)
        if isinstance(response, SimpleTemplateResponse):
            _render_within(response, lambda: _on(using))
        return response

    return answer


@contextmanager
def _on(using: str) -> Iterator[None]:
    with conf.on(using), repeating_statements(using):
        yield


def _render_within(
    response: SimpleTemplateResponse, context: Callable[[], AbstractContextManager[None]]
) -> None:
    """Have the page rendered within a context: its template reads rows too, after the view."""
    render = response.render

    def rendered() -> SimpleTemplateResponse:
        del response.render
        with context():
            return render()

    response.render = rendered  # type: ignore[method-assign]


def note() -> str:
    """What the reader of a list has to know about where it comes from; empty without a replica."""
    found = reading.current()
    if found is None:
        return ""
    if found.refused == "failed":
        return _("The replica does not answer: read from the primary.")
    if found.refused == "lag":
        return _("The replica is more than %s s behind: read from the primary.") % reading.MOST_BEHIND_S
    return _("Read from a replica, %s s behind.") % plain(round(found.lag or 0, 1))
