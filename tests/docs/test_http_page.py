"""The page about HTTP has every route and every error: the tables are made from the code.

``python -m tests.docs.test_http_page`` writes them into the page.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "http.md"
HOW = "run: python -m tests.docs.test_http_page"


def routes() -> str:
    """A table of routes for each slice."""
    import django_ojs.urls  # noqa: F401
    from django_ojs.http.routing import features

    lines: list[str] = []
    for part in features():
        if not part.routes:
            continue
        lines += ["", f"### {part.name.replace('_', ' ').capitalize()}", ""]
        lines += ["| Method | Path | Scope | What it does |", "|---|---|---|---|"]
        for route in part.routes:
            paths = "<br>".join(f"`{_full(path)}`" for path in (route.path, *route.aliases))
            for method, action in route.actions.items():
                scopes = " or ".join(_scope(scope) for scope in route.view.scopes[action])
                what = _first_sentence(getattr(route.view, action))
                lines.append(f"| {method.upper()} | {paths} | {scopes} | {what} |")
    return "\n".join([*lines[1:], ""])


def errors() -> str:
    """The table of error codes."""
    from django_ojs.http.problems import PROBLEMS

    lines = ["| Code | Status | Retryable | What to do |", "|---|---|---|---|"]
    for code, problem in PROBLEMS.items():
        answer = "yes" if problem.retryable else "no"
        lines.append(
            f"| `{code}` | {problem.status} | {answer} | {problem.hint.replace('<', '&lt;')} |"
        )
    return "\n".join([*lines, ""])


TABLES = {"routes": routes, "errors": errors}


def _full(path: str) -> str:
    return path if path.startswith("/") else f"/ojs/v1/{path}"


def _scope(scope: str) -> str:
    return "anybody" if scope == "open" else f"`{scope}`"


def _first_sentence(action: object) -> str:
    text = (inspect.getdoc(action) or "").partition("\n\n")[0]
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def _parts(text: str, name: str) -> tuple[str, str, str]:
    """The page before, in and after the part between two marks."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, found, rest = text.partition(start)
    inside, closed, after = rest.partition(end)
    assert found
    assert closed
    return before + found, inside, closed + after


def _rows(text: str) -> Iterator[tuple[str, ...]]:
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith(("| Method", "| Code")):
            yield tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])


def test_the_page_has_every_route_and_no_other() -> None:
    shown = list(_rows(_parts(PAGE.read_text(), "routes")[1]))
    real = list(_rows(routes()))
    assert len(real) > 50
    assert [row for row in real if row not in shown] == [], HOW
    assert [row for row in shown if row not in real] == [], HOW


def test_every_error_code_is_on_the_page() -> None:
    assert _parts(PAGE.read_text(), "errors")[1] == errors(), HOW


def test_every_http_setting_is_documented() -> None:
    from django_ojs import conf

    page = (PAGE.parent / "settings.md").read_text()
    shown = dict(re.findall(r'^\| `HTTP\["(\w+)"\]` \| `?([^`|]*?)`? \|', page, re.MULTILINE))
    settings = conf.read({})[0].http
    names = {name.upper(): getattr(settings, name) for name in settings.__slots__}
    assert shown.keys() == names.keys()
    for name, value in names.items():
        if isinstance(value, int | None):
            assert shown[name].replace(",", "") == str(value), name


def main() -> None:
    """Write the tables into the page."""
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    text = PAGE.read_text()
    for name, table in TABLES.items():
        before, _, after = _parts(text, name)
        text = before + table() + after
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
