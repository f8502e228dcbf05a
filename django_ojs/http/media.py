"""Media types and the version switch of the binding (OJS HTTP binding 3 and 4).

Headers are read from ``META`` in modules that serve every request: ``request.headers`` copies all of
them first.
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
"""For clients that send ``OJS-Version``: an SDK looks for ``application/json`` in the type."""
VERSION = "1.0"

_SUPPORTED = re.compile(r"1(\.[0-9]+)*(-[0-9A-Za-z.-]+)?", re.ASCII)
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Renderer(BaseRenderer):
    """Renders compact JSON."""

    media_type = OJS
    format = "json"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        """The JSON of the response; nothing for one without data."""
        # An error may repeat a lone surrogate of the request, which cannot be encoded.
        return b"" if data is None else _encode(data).encode(errors="replace")


class Parser(BaseParser):
    """Leaves the body unread: the views read it once the caller is authenticated.

    Without it the CSRF check of sessions would parse the body in search of a form field.
    """

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """An empty form."""
        return {}


class Negotiation(BaseContentNegotiation):
    """Always the same parser; the renderer is set before anything can fail: never 406."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser:
        return next(iter(parsers))


def check_version(request: Request) -> None:
    """Raise :class:`Unsupported` unless the major version is 1, which is the default."""
    requested = request.META.get("HTTP_OJS_VERSION")
    if requested is not None and not _SUPPORTED.fullmatch(requested.strip()):
        raise Unsupported(
            f"OJS-Version {requested[:40]!r} is not supported", field="OJS-Version", supported=VERSION
        )


def speaks_version(request: Any) -> bool:
    """Whether the client sent ``OJS-Version``, as all SDKs do."""
    return "HTTP_OJS_VERSION" in request.META


def content_type(request: Any) -> str:
    """The type of the answer to ``request``."""
    return FOR_SDKS if speaks_version(request) else OJS


def request_id(given: str | None, fresh: str) -> str:
    """The request's own id if it is printable and short, otherwise ``fresh``."""
    return given if given is not None and _REQUEST_ID.fullmatch(given) else fresh
