"""The Dockerfile, the objects of Kubernetes and the units of systemd that are shown start commands that
exist, fit each other, and are what Kubernetes takes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from django.core.management import get_commands, load_command_class

from .test_snippets import ROOT, blocks

PAGE = ROOT / "docs/howto/deploy.md"


def shown(language: str, saying: str = "") -> str:
    """The one block of a language that has this text in it."""
    texts = [block.text for block in blocks(PAGE) if block.language == language]
    (text,) = [text for text in texts if (saying or _WORKER.get(language, "")) in text]
    return text


_WORKER = {"yaml": "name: ojs-worker\n"}


def understood(words: list[str]) -> dict[str, Any]:
    """The options of a command that is given as words."""
    python, manage, name, *rest = words
    assert (python.rpartition("/")[2], manage) == ("python", "manage.py")
    app = get_commands()[name]
    command = load_command_class(app, name) if isinstance(app, str) else app
    return vars(command.create_parser("manage.py", name).parse_args(rest))


def objects() -> list[dict[str, Any]]:
    """The objects of Kubernetes on the page."""
    texts = [block.text for block in blocks(PAGE) if block.language == "yaml"]
    return [found for found in map(yaml.safe_load, texts) if "apiVersion" in found]


def commands_in(value: Any) -> Iterator[list[str]]:
    """Every ``command`` in a document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "command":
                yield inner
            yield from commands_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from commands_in(inner)


def test_the_dockerfile_starts_a_worker() -> None:
    (array,) = re.findall(r"^CMD (.*)$", shown("dockerfile"), re.MULTILINE)
    assert understood(json.loads(array))["log_format"] == "json"
    assert re.search(r"^USER \d+$", shown("dockerfile"), re.MULTILINE), "runAsNonRoot wants a number"


def test_every_command_in_yaml_is_understood() -> None:
    texts = [block.text for block in blocks(PAGE) if block.language == "yaml"]
    found = [words for text in texts for words in commands_in(yaml.safe_load(text))]
    assert {words[2] for words in found} == {"runworker", "migrate", "reap_timeouts"}
    assert all(understood(words) for words in found)


def test_every_command_in_a_unit_is_understood() -> None:
    units = "".join(block.text for block in blocks(PAGE) if block.language == "ini")
    found = [shlex.split(line) for line in re.findall(r"^ExecStart=(.*)$", units, re.MULTILINE)]
    assert {words[2] for words in found} == {"runworker", "reap_timeouts"}
    assert all(understood(words) for words in found)


def test_the_probes_reach_the_worker() -> None:
    pod = yaml.safe_load(shown("yaml"))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = understood(container["command"])
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {probe["path"] for probe in probes} == {"/status/started", "/status/connected"}
    ports = {probe["port"] for probe in probes} | {port["containerPort"] for port in container["ports"]}
    assert ports == {options["health_port"]}
    assert options["health_host"] == "0.0.0.0"
    assert pod["terminationGracePeriodSeconds"] > float(options["shutdown_timeout"])


def test_compose_waits_for_the_worker() -> None:
    services = yaml.safe_load(shown("yaml", "services:"))["services"]
    options = understood(services["worker"]["command"])
    grace = services["worker"]["stop_grace_period"].removesuffix("s")
    assert float(grace) > float(options["shutdown_timeout"])
    assert set(services["worker"]["depends_on"]) <= services.keys()


def test_what_is_selected_is_what_is_labelled_and_applied() -> None:
    names = {one["metadata"]["name"] for one in objects()}
    assert {one["kind"] for one in objects()} == {"Deployment", "Job"}
    for one in objects():
        if one["kind"] == "Deployment":
            labels = one["spec"]["template"]["metadata"]["labels"]
            assert one["spec"]["selector"]["matchLabels"] == labels
    waited_for = re.findall(r"job/(\S+)", shown("sh", "kubectl"))
    assert set(waited_for) < names


@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_kubernetes_takes_the_objects(version: str) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="it is in the group of make package")
    for one in objects():
        kubernetes.validate(one, version, strict=True)
        one["spec"]["replicaz"] = 2
        with pytest.raises(kubernetes.ValidationError):
            kubernetes.validate(one, version, strict=True)
