"""Media types and the version switch of the binding (OJS HTTP binding 3 and 4).

Headers are read from ``META``, here and in the other modules of every request: ``request.headers``
copies all of them first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from django_ojs.domain.errors import Unsupported

OJS = "application/openjobspec+json"
FOR_SDKS = f'{OJS}; profile="application/json"'
"""For those who send ``OJS-Version``: an SDK looks for ``application/json`` in the type."""
VERSION = "1.0"

_SUPPORTED = re.compile(r"1(\.[0-9]+)*(-[0-9A-Za-z.-]+)?", re.ASCII)
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Renderer(BaseRenderer):
    """Compact JSON."""

    media_type = OJS
    format = "json"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        """The bytes; an answer that is marked as empty has none."""
        # A refusal may repeat a lone surrogate of the request, for which there are no bytes.
        return b"" if data is None else _encode(data).encode(errors="replace")


class Parser(BaseParser):
    """Leaves the body unread: the viewsets read it themselves, once they know who asks.

    The CSRF check of sessions would have it parsed, in search of a form field.
    """

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Nothing."""
        return {}


class Negotiation(BaseContentNegotiation):
    """There is one form of answer, whatever is accepted (never 406)."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser:
        """The only parser."""
        return next(iter(parsers))

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """The only renderer."""
        chosen = next(iter(renderers))
        return chosen, OJS


def check_version(request: Request) -> None:
    """Raise :class:`Unsupported` for another major version than 1; none given is 1."""
    requested = request.META.get("HTTP_OJS_VERSION")
    if requested is not None and not _SUPPORTED.fullmatch(requested.strip()):
        raise Unsupported(
            f"OJS-Version {requested[:40]!r} is not supported", field="OJS-Version", supported=VERSION
        )


def speaks_version(request: Any) -> bool:
    """Whether the client sent ``OJS-Version``: all SDKs do, people and suites do not."""
    return "HTTP_OJS_VERSION" in request.META


def content_type(request: Any) -> str:
    """The type of the answer to ``request``."""
    return FOR_SDKS if speaks_version(request) else OJS


def request_id(given: str | None, fresh: str) -> str:
    """The request's own id if it is printable and short, otherwise ``fresh``."""
    return given if given is not None and _REQUEST_ID.fullmatch(given) else fresh
