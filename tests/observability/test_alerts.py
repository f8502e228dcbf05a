"""The rules, the dashboard and the runbooks that are shipped: what they name is exported, and fires."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import load_command_class

from django_ojs.domain.exposition import Family
from django_ojs.services import metrics
from tests.support import ROOT

SHIPPED = ROOT / "docs" / "observability"
SERIES = Path(__file__).parent / "alerts_test.yml"
NEEDS_PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)
_NAME = re.compile(r"\b(ojs_\w+?)(_bucket|_sum|_count)?\b(?!\w)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\b(?:by|on|without|ignoring) \(([^)]*)\)")
_COMMAND = re.compile(r"`python manage\.py ([^`]+)`")
_LABEL = re.compile(r"(\w+)=~?\"")


def rules() -> list[dict[str, Any]]:
    """The rules that are shipped."""
    found: list[dict[str, Any]] = yaml.safe_load((SHIPPED / "alerts.yml").read_text())["groups"]
    return [rule for group in found for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    """The dashboard that is shipped."""
    found: dict[str, Any] = json.loads((SHIPPED / "grafana.json").read_text())
    return found


def panels() -> Iterator[tuple[str, str]]:
    """The title of each panel, and each of its queries."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def expressions() -> list[tuple[str, str]]:
    """What asks for metrics, by the name of the rule or of the panel."""
    return [*((rule["alert"], rule["expr"]) for rule in rules()), *panels()]


@pytest.mark.parametrize(("name", "expression"), expressions())
def test_what_is_asked_for_is_exported(ojs_db: None, name: str, expression: str) -> None:
    exported = {family.name: family for family in metrics.collect()}
    used: set[str] = set()
    for found, suffix, labels in _NAME.findall(expression):
        family = exported.get(found) or exported.get(found + suffix)
        assert family is not None, f"{name}: {found}{suffix} is not exported"
        assert bool(suffix) == (family.kind == "histogram"), f"{name}: {found}{suffix}"
        known = _labels(family)
        used |= known
        assert set(_LABEL.findall(labels)) <= known, f"{name}: labels of {found}"
    assert _NAME.search(expression), name
    for group in _GROUPED.findall(expression):
        assert {label.strip() for label in group.split(",") if label.strip()} <= used, (
            f"{name}: {group}"
        )


def _labels(family: Family) -> set[str]:
    return {*family.labels, *(["le"] if family.kind == "histogram" else [])}


def test_every_rule_has_a_runbook_and_every_runbook_a_rule() -> None:
    text = (SHIPPED / "runbooks.md").read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert [section.split("\n")[0] for section in sections] == [rule["alert"] for rule in rules()]
    for section in sections:
        for part in ("**What you see.**", "**Why.**", "**What to do.**"):
            assert part in section, section.split("\n")[0]
    for rule in rules():
        page = "https://github.com/django-ojs/django-ojs/blob/main/docs/observability/runbooks.md"
        assert rule["annotations"]["runbook_url"] == f"{page}#{rule['alert'].lower()}"
        assert rule["annotations"]["summary"].endswith(".")


def test_every_rule_is_played_firing_and_not_firing() -> None:
    played: dict[str, set[bool]] = {}
    for test in yaml.safe_load(SERIES.read_text())["tests"]:
        for one in test["alert_rule_test"]:
            played.setdefault(one["alertname"], set()).add(bool(one.get("exp_alerts")))
    assert played == {rule["alert"]: {True, False} for rule in rules()}


@pytest.mark.slow
@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    "words", [("check", "rules", str(SHIPPED / "alerts.yml")), ("test", "rules", str(SERIES))]
)
def test_promtool_agrees(words: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


@NEEDS_PROMTOOL
def test_every_query_of_the_dashboard_parses(tmp_path: Path) -> None:
    """As recording rules, which promtool parses as Prometheus does."""
    made = [
        {"record": f"panel:{number}", "expr": _filled(expression)}
        for number, (_, expression) in enumerate(panels())
    ]
    assert len(made) > 25
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": made}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _filled(expression: str) -> str:
    return expression.replace("$__rate_interval", "5m").replace("$queue", ".*")


def test_the_dashboard_can_be_imported_anywhere() -> None:
    """It names no data source of ours, every panel has a place and a title of its own."""
    found = dashboard()
    variables = {variable["name"]: variable["type"] for variable in found["templating"]["list"]}
    assert variables == {"datasource": "datasource", "queue": "query"}
    sources = {
        json.dumps(place.get("datasource"))
        for panel in found["panels"]
        if panel["type"] != "row"
        for place in (panel, *panel["targets"])
    }
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    ids = [panel["id"] for panel in found["panels"]]
    titles = [panel["title"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids) and len(set(titles)) == len(titles)
    for panel in found["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24, panel["title"]
    assert _overlapping(found["panels"]) == []


def _overlapping(panels: list[dict[str, Any]]) -> list[tuple[str, str]]:
    taken: dict[tuple[int, int], str] = {}
    found = []
    for panel in panels:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                if (x, y) in taken:
                    found.append((taken[x, y], panel["title"]))
                taken[x, y] = panel["title"]
    return found


@pytest.mark.parametrize("line", _COMMAND.findall((SHIPPED / "runbooks.md").read_text()))
def test_every_command_of_a_runbook_is_understood(line: str) -> None:
    name, *words = line.split()
    command = load_command_class("django_ojs", name)
    job = "019539a4-b68c-7def-8000-1a2b3c4d5e6f"
    found = command.create_parser("manage.py", name).parse_args(
        [job if word == "ID" else word for word in words]
    )
    assert found is not None
