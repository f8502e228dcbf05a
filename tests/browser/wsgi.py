"""The project with its static files, under the strictest Content-Security-Policy that it must bear; in
German for who asks for that. A theme has scripts within its pages, and is under none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application
from django.utils import translation

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = [] if "OJS_TEST_THEME" in os.environ else [("Content-Security-Policy", POLICY)]
_project = StaticFilesHandler(get_wsgi_application())


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer as the project does, with the policy in addition."""

    def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
        return start_response(status, [*headers, *_HEADERS], *rest)

    if environ["PATH_INFO"] == "/favicon.ico":
        # Browsers ask for it by themselves, and would log that there is none.
        start("204 No Content", [])
        return []
    german = environ.get("HTTP_ACCEPT_LANGUAGE", "").startswith("de")
    with translation.override("de" if german else "en"):
        answer: Iterable[bytes] = _project(environ, start)
    return answer
