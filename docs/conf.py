"""The pages of this folder as a site: ``make docs``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import django_ojs

DOCS = Path(__file__).parent
REPOSITORY = "https://github.com/django-ojs/django-ojs/blob/main/"
ADDRESS = "https://django-ojs.readthedocs.io/en/stable/"

project = "django-ojs"
author = "django-ojs developers"
release = version = django_ojs.__version__
extensions = ["myst_parser", "sphinx_copybutton", "sphinx_llms_txt"]
exclude_patterns = ["_build", "examples"]
html_theme = "furo"
html_title = f"django-ojs {release}"
html_baseurl = ADDRESS
html_extra_path = ["reference/openapi.json"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # of ``cron``, and requests without their version
copybutton_prompt_text = "$ "
llms_txt_summary = (
    "Background jobs in your own database, with deadlines that are kept: Open Job Spec for Django."
)
linkcheck_ignore = [r"https?://(localhost|127\.0\.0\.1|.*example\.(com|org))", re.escape(REPOSITORY)]

_LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(\))")
_HEADING = re.compile(r"^\*\*(.+?)\*\*")
_ENTRY = re.compile(r"\]\(([\w/-]+\.md)\)")


def setup(app: Any) -> None:
    """What Markdown on a code host means is made to mean the same here."""
    app.connect("source-read", _read)


def _read(app: Any, name: str, source: list[str]) -> None:
    """Links to files outside of this folder lead to the repository; a page that lists pages has them
    in the navigation.
    """
    folder = (DOCS / name).parent
    text = _LINK.sub(lambda link: _outside(folder, link), source[0])
    if name in ("index", "adr/README"):
        text += _navigation(source[0])
    source[0] = text


def _outside(folder: Path, link: re.Match[str]) -> str:
    target = (folder / link[2]).resolve()
    if not target.exists() or (
        target.is_relative_to(DOCS) and target.suffix in (".md", ".png", ".svg")
    ):
        return link[0]
    return f"{link[1]}{REPOSITORY}{target.relative_to(DOCS.parent)}{link[3] or ''}{link[4]}"


def _navigation(text: str) -> str:
    """A hidden ``toctree`` per heading, of the pages listed under it."""
    caption = ""
    listed: dict[str, list[str]] = {}
    for line in text.splitlines():
        if heading := _HEADING.match(line):
            caption = heading[1]
        elif line.startswith(("- ", "  ", "| ")):
            listed.setdefault(caption, []).extend(_ENTRY.findall(line))
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n{caption and f':caption: {caption}'}\n\n"
        + "\n".join(dict.fromkeys(pages))
        + "\n```\n"
        for caption, pages in listed.items()
        if pages
    )
