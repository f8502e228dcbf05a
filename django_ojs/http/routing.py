"""The registered features, from which both the routes and the manifest are made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from django.db import connections, transaction
from django.urls import URLPattern, re_path

from django_ojs.http.base import EXTENSIONS, OJSViewSet

BASE = "ojs/v1/"


@dataclass(frozen=True, slots=True)
class Route:
    """A path below ``/ojs/v1/``, its viewset, and the action of each method.

    ``{name}`` in a path is one segment, given to the action as ``name``. ``aliases`` are further
    paths with the same parameters. A path that begins with ``/`` stands outside ``/ojs/v1/``.
    """

    path: str
    view: type[OJSViewSet]
    actions: Mapping[str, str]
    aliases: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Feature:
    """A part of the binding: its routes, and its entries in the manifest.

    ``extension`` is the URN of an OJS extension that the feature implements completely.
    ``endpoints`` are paths as in routes. ``holds`` has a condition for capabilities that depend on
    settings.
    """

    name: str
    routes: Sequence[Route]
    capabilities: Sequence[str] = ()
    extension: str | None = None
    endpoints: Mapping[str, str] = field(default_factory=dict)
    holds: Mapping[str, Callable[[], bool]] = field(default_factory=dict)

    def declared(self) -> dict[str, bool]:
        """The capabilities, and whether each is available under the current settings."""
        return {name: self.holds[name]() if name in self.holds else True for name in self.capabilities}


_features: dict[str, Feature] = {}


def register(part: Feature) -> None:
    """Add a feature. Raises ``ValueError`` for a second one of the same name."""
    if _features.get(part.name, part) is not part:
        raise ValueError(f"a feature named {part.name!r} is registered already")
    _features[part.name] = part
    if part.extension:
        EXTENSIONS.add(part.extension)


def features() -> tuple[Feature, ...]:
    """All registered features, in the order of registration."""
    return tuple(_features.values())


LEVELS: Sequence[frozenset[str]] = (
    frozenset({"jobs", "work", "queues", "events", "system"}),
    frozenset({"workers", "dead_letter"}),
    frozenset({"cron"}),
    frozenset({"workflows"}),
    frozenset({"unique", "rate_limits"}),
)
"""The features that each conformance level adds to those of the levels below it."""


def conformance_level() -> int:
    """The highest level whose features, and those of the levels below it, are registered."""
    complete = takewhile(lambda needed: needed <= _features.keys(), LEVELS)
    return sum(1 for _ in complete) - 1


def patterns() -> list[URLPattern]:
    """The URL patterns: a trailing slash and a doubled prefix do not matter."""
    views = [
        (template, _view(route))
        for part in features()
        for route in part.routes
        for template in (route.path, *route.aliases)
    ]
    # Literal segments before parameters: ``jobs/fetch`` before ``jobs/{job_id}``.
    views.sort(key=lambda item: [segment.startswith("{") for segment in item[0].split("/")])
    return [re_path(_regex(template), view, name=url_of(template)[1:]) for template, view in views]


def _view(route: Route) -> Any:
    # A long poll must not hold a transaction open, and services open their own.
    return non_atomic(route.view.as_view(dict(route.actions)))


def non_atomic(view: Any) -> Any:
    """The view, outside of ``ATOMIC_REQUESTS`` of every database."""
    for alias in connections:
        view = transaction.non_atomic_requests(alias)(view)
    return view


def url_of(path: str) -> str:
    """The path of a route from the root of the site."""
    return path if path.startswith("/") else f"/{BASE}{path}"


def _regex(template: str) -> str:
    inside = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template.lstrip("/").replace(".", r"\."))
    prefix = "" if template.startswith("/") else "ojs/v1/(?:ojs/v1/)?"
    return rf"^{prefix}{inside}/?\Z"
