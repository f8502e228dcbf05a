"""The query parameters that a list takes are those of the document."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.http.support import Api
from tests.support import ROOT

pytestmark = pytest.mark.usefixtures("ojs_db")
PATHS: dict[str, Any] = json.loads((ROOT / "docs/reference/openapi.json").read_text())["paths"]
_NAMES = {"event_types", "queue", "type"}
ALIASES = {"/ojs/v1/events": _NAMES, "/ojs/v1/events/stream": _NAMES}
"""Other names of the same, which are taken and not advertised."""
LISTS = [path for path, item in PATHS.items() if "get" in item and "{" not in path]


def test_an_unknown_parameter_is_answered_with_those_of_the_document(api: Api) -> None:
    compared = []
    for path in LISTS:
        answer = api.get(path.removeprefix("/ojs/v1") + "?nonsense=1")
        known = re.search(r"known are ([a-z_, ]*)", answer.raw.decode())
        if known is not None:
            named = {
                one["name"] for one in PATHS[path]["get"].get("parameters", []) if one["in"] == "query"
            }
            assert set(known[1].split(", ")) - ALIASES.get(path, set()) == named, path
            compared.append(path)
    assert len(compared) >= 6, compared
