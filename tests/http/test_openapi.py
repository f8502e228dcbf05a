"""The OpenAPI document: what is checked in is what is served, all of it and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from drf_spectacular.validation import validate_schema

from django_ojs.http import openapi, routing
from django_ojs.http.base import OPEN
from django_ojs.http.openapi.operations import OPERATIONS
from tests.support import ROOT

CHECKED_IN = ROOT / "docs" / "reference" / "openapi.json"
WITHOUT = """
import sys
import django
django.setup()
import django_ojs.urls
assert django_ojs.urls.urlpatterns
print([name for name in sys.modules if name.startswith(("drf_spectacular", "django_ojs.http.openapi"))])
"""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document of this code."""
    return openapi.document()


def routes() -> Iterator[tuple[str, str, type[Any], str]]:
    """Path, method, viewset and action of all that is registered, without aliases."""
    for part in routing.features():
        for route in part.routes:
            path = route.path if route.path.startswith("/") else f"/{routing.BASE}{route.path}"
            for method, action in route.actions.items():
                yield path, method, route.view, action


def test_what_is_checked_in_is_what_is_served() -> None:
    """When this fails: the docstring of ``django_ojs.http.openapi`` says how to write it again."""
    assert CHECKED_IN.read_text(encoding="utf-8") == openapi.dump()


@pytest.mark.slow
def test_it_is_valid(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    validate_schema(document)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    used: set[str] = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            used.update([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
            value = list(value.values())
        for item in value if isinstance(value, list) else ():
            look(item)

    look(document)
    assert used == known


def test_every_route_is_in_it_and_nothing_else(document: dict[str, Any]) -> None:
    found = {(path, method) for path, item in document["paths"].items() for method in item}
    assert found == {(path, method) for path, method, _, _ in routes()}


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    """The table has an entry for every action, and no more."""
    served = {
        next(
            name
            for kind in view.__mro__
            if (name := f"{kind.__name__}.{action}") in OPERATIONS or kind is object
        )
        for _, _, view, action in routes()
    }
    assert served == set(OPERATIONS)
    ids = []
    for path, method, view, action in routes():
        operation = document["paths"][path][method]
        ids.append(operation["operationId"])
        assert operation["summary"], path
        assert operation["responses"]["default"], path
        scopes = view.scopes[action]
        wanted = [{}] if OPEN in scopes else [{"bearer": [scope]} for scope in scopes]
        assert operation["security"] == wanted, path
    assert len(set(ids)) == len(ids)


def test_a_projects_settings_change_nothing(settings: Any, document: dict[str, Any]) -> None:
    settings.LANGUAGE_CODE = "de"
    assert openapi.document() == document


def test_it_is_plain_json(document: dict[str, Any]) -> None:
    assert json.loads(json.dumps(document)) == document


@pytest.mark.slow
def test_serving_imports_nothing_of_it() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
