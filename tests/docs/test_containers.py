"""The Dockerfile and the Deployment that are shown start commands that exist, and fit each other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from django.core.management import get_commands, load_command_class

from .test_snippets import ROOT, blocks

PAGE = ROOT / "docs/howto/deploy.md"


def shown(language: str) -> str:
    """The one block of a language."""
    (text,) = [block.text for block in blocks(Path(PAGE)) if block.language == language]
    return text


def understood(array: str) -> dict[str, Any]:
    """The options of a command that is given as an array of words."""
    python, manage, name, *words = json.loads(re.sub(r"\s+", " ", array))
    assert (python, manage) == ("python", "manage.py")
    app = get_commands()[name]
    command = load_command_class(app, name) if isinstance(app, str) else app
    return vars(command.create_parser("manage.py", name).parse_args(words))


def test_the_dockerfile_starts_a_worker() -> None:
    (array,) = re.findall(r"^CMD (.*)$", shown("dockerfile"), re.MULTILINE)
    assert understood(array)["log_format"] == "json"


def test_the_probes_reach_the_worker() -> None:
    text = shown("yaml")
    (array,) = re.findall(r"command: (\[.*?\])", text, re.DOTALL)
    options = understood(array)
    probes = re.findall(r"httpGet: {path: (\S+), port: (\d+)}", text)
    assert {path for path, _ in probes} == {"/status/started", "/status/connected"}
    assert {int(port) for _, port in probes} == {options["health_port"]}
    assert options["health_host"] == "0.0.0.0"
    (grace,) = re.findall(r"terminationGracePeriodSeconds: (\d+)", text)
    assert int(grace) > float(options["shutdown_timeout"])
