"""Every name that users meet is in the reference: what the code has is compared with the pages."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, make_dataclass
from importlib import import_module
from typing import Any

import pytest

from django_ojs import api, conf, exceptions, hooks, signals, tasks_backend, testing
from django_ojs.domain import errors, job, job_record, options, over_limit, retry, states
from django_ojs.domain.events import Kind
from django_ojs.handlers import context, registry, workflows
from django_ojs.handlers import exceptions as decisions
from django_ojs.management.commands import ojs, reap_timeouts, runworker
from django_ojs.services import operate
from django_ojs.services.workflows import read
from django_ojs.testing import plugin
from django_ojs.testing.cases import OJSTestMixin
from tests.docs import reference
from tests.docs.reference import command, members, own_options
from tests.support import ROOT

REFERENCE = ROOT / "docs" / "reference"
_INNER = ("acall", "arguments", "call", "envelope")
"""Methods of a handler for the worker."""
_WORD = re.compile(r'[A-Z]+\["\w+"\]|[A-Za-z_][\w.]*|--?[a-z][\w-]*')


@dataclass(frozen=True)
class Part:
    """What the code has, and where it has to be said: on a page, or below a heading of it."""

    name: str
    page: str
    collect: Callable[[], Iterable[str]]
    heading: str = ""

    def missing(self) -> list[str]:
        """The names that are not said there."""
        names = set(self.collect())
        assert names, self.name
        return sorted(names - words(section(self.page, self.heading)))


def section(page: str, heading: str = "") -> str:
    """What is below a heading of a page, with what is below its own headings; all without one."""
    text = (REFERENCE / page).read_text()
    if not heading:
        return text
    level = heading.partition(" ")[0]
    found = re.search(
        rf"^{re.escape(heading)}$(.*?)(?=^#{{2,{len(level)}}} |\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert found, f"{page}: no heading {heading!r}"
    return found[1]


def words(text: str) -> set[str]:
    """The words written as code outside of blocks; of ``ctx.args`` and ``f(x)`` also the parts."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    spans = " ".join(re.findall(r"`([^`]+)`", prose))
    return {part for word in _WORD.findall(spans) for part in (word, *word.split("."))}


def hook_names() -> set[str]:
    """The classes of hooks, and what registers them."""
    own = [
        name for name, one in vars(hooks).items() if getattr(one, "__module__", "") == hooks.__name__
    ]
    return {name for name in own if name[0].isupper() or name.startswith(("register_", "before_"))}


def fixtures() -> set[str]:
    """The public fixtures of the pytest plugin."""
    return {name for name in vars(plugin) if name.startswith("ojs")}


PARTS = [
    Part("public names", "api.md", lambda: api.__all__),
    Part("handlers", "api.md", lambda: members(registry.JobHandler, *_INNER), "## Handlers"),
    Part("builders", "api.md", lambda: members(workflows.WorkflowBuilder), "## Workflows"),
    Part("tasks", "api.md", lambda: tasks_backend.__all__, "## Tasks of Django"),
    Part("options", "options.md", reference.option_names),
    Part("retry policy", "options.md", lambda: {f.name for f in fields(retry.RetryPolicy)}),
    Part("context", "context.md", lambda: members(context.JobContext)),
    Part("workflow of a context", "context.md", lambda: members(context.RunningWorkflow)),
    Part("jobs", "records.md", lambda: members(job_record.JobRecord, "row"), "## `JobRecord`"),
    Part("workflows", "records.md", lambda: members(read.WorkflowRecord), "## `WorkflowRecord`"),
    Part("requests", "records.md", lambda: members(api.EnqueueRequest, "envelope", "now")),
    Part("time", "records.md", lambda: operate.Extension._fields, "## `Extension`"),
    Part("actors", "records.md", lambda: members(job.Actor, "event_fields"), "## `Actor`"),
    Part("states", "records.md", lambda: map(str, states.State), "## `State`"),
    Part("settings", "settings.md", reference.settings),
    Part("runworker", "commands.md", lambda: own_options(command("runworker")), "## runworker"),
    Part("reaper", "commands.md", lambda: own_options(command("reap_timeouts")), "## reap_timeouts"),
    Part("events", "events.md", lambda: signals.by_kind),
    Part("signals", "events.md", lambda: {kind.replace(".", "_") for kind in signals.by_kind}),
    Part("errors of calls", "errors.md", lambda: {e.__name__ for e in _errors()}),
    Part("codes", "errors.md", lambda: {e.code for e in _errors()}),
    Part("decisions", "errors.md", lambda: reference.classes_of(decisions)),
    Part("errors of results", "errors.md", lambda: reference.classes_of(exceptions)),
    Part("types of errors", "errors.md", reference.error_types),
    Part("loggers", "logging.md", reference.loggers),
    Part("testing", "testing.md", lambda: testing.__all__),
    Part("test cases", "testing.md", lambda: members(OJSTestMixin, "setUp")),
    Part("fixtures", "testing.md", fixtures, "## pytest"),
    Part("hooks", "extending.md", hook_names),
]
NAMES = [part.name for part in PARTS]


def _errors() -> set[Any]:
    import_module("django_ojs.http.problems")
    return reference.subclasses(errors.OJSError) | {errors.OJSError}


@pytest.mark.parametrize("part", PARTS, ids=NAMES)
def test_every_name_is_in_the_reference(part: Part) -> None:
    assert part.missing() == []


def unsaid(verb: str, parser: ArgumentParser) -> list[str]:
    """What the reference does not say of a verb: an option that no row or paragraph about it names, or
    the verb.
    """
    token = verb.startswith("token ")
    text = section("commands.md", "### ojs token" if token else "## ojs")
    named = re.compile(rf"`(?:ojs )?{verb.removeprefix('token ')}(?![\w-])")
    about = [part for part in re.split(r"\n\n|\n(?=\|)", text) if named.search(part)]
    # Of all the acting verbs.
    said = words("\n".join(about)) | {"--reason"}
    return [f"{verb} {one}" for one in sorted(own_options(parser) - said)] if about else [verb]


def test_every_verb_of_ojs_is_in_the_reference_with_its_options() -> None:
    verbs = dict(reference.verbs())
    assert {"prune", "cron run", "token create"} <= verbs.keys()
    assert [one for verb, parser in verbs.items() for one in unsaid(verb, parser)] == []


@pytest.mark.parametrize("kind", Kind)
def test_every_field_of_an_event_is_in_its_row(kind: Kind) -> None:
    (row,) = re.findall(rf"^\| `{kind}`.*$", section("events.md"), re.MULTILINE)
    if "the same" not in row:
        assert (
            reference.event_fields()[kind] - words(row) - words(section("events.md", "## Fields"))
            == set()
        )


def test_the_routine_kinds_are_marked() -> None:
    from django_ojs.domain.events import ROUTINE

    assert set(re.findall(r"^\| `([\w.]+)`°", section("events.md"), re.MULTILINE)) == ROUTINE


def _plant_error(patch: pytest.MonkeyPatch) -> None:
    # Not a real subclass, which would outlive the test.
    planted = type("Planted", (), {"code": "planted"})
    own = reference.subclasses
    patch.setattr(reference, "subclasses", lambda base: own(base) | {planted})


def _plant_option(patch: pytest.MonkeyPatch, command: type) -> None:
    own = command.add_arguments  # type: ignore[attr-defined]

    def add_arguments(self: Any, parser: ArgumentParser) -> None:
        own(self, parser)
        parser.add_argument("--planted")

    patch.setattr(command, "add_arguments", add_arguments)


def _plant_setting(patch: pytest.MonkeyPatch) -> None:
    own = conf._admin

    def asks_for_more(given: Any) -> Any:
        given.read("PLANTED", lambda item, where: item, None)
        return own(given)

    patch.setattr(conf, "_admin", asks_for_more)


PLANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "public names": lambda patch: patch.setattr(api, "__all__", [*api.__all__, "planted"]),
    "testing": lambda patch: patch.setattr(testing, "__all__", [*testing.__all__, "planted"]),
    "tasks": lambda patch: patch.setattr(tasks_backend, "__all__", ["task", "planted"]),
    "handlers": lambda patch: patch.setattr(registry.JobHandler, "planted", 1, raising=False),
    "context": lambda patch: patch.setattr(context.JobContext, "planted", 1, raising=False),
    "jobs": lambda patch: patch.setattr(job_record.JobRecord, "planted", 1, raising=False),
    "options": lambda patch: patch.setitem(options.EnqueueOptions.__annotations__, "planted", int),
    "retry policy": lambda patch: patch.setattr(retry, "RetryPolicy", make_dataclass("R", ["planted"])),
    "settings": _plant_setting,
    "runworker": lambda patch: _plant_option(patch, runworker.Command),
    "reaper": lambda patch: _plant_option(patch, reap_timeouts.Command),
    "events": lambda patch: patch.setitem(signals.by_kind, "planted", signals.job_failed),
    "signals": lambda patch: patch.setitem(signals.by_kind, "planted", signals.job_failed),
    "errors of calls": _plant_error,
    "codes": _plant_error,
    "decisions": lambda patch: patch.setattr(
        decisions, "Planted", type("Planted", (), {"__module__": decisions.__name__}), raising=False
    ),
    "types of errors": lambda patch: patch.setattr(over_limit, "ERROR_TYPE", "planted"),
    "fixtures": lambda patch: patch.setattr(plugin, "ojs_planted", 1, raising=False),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_new_name_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTS[name](monkeypatch)
    (part,) = (one for one in PARTS if one.name == name)
    assert [one for one in part.missing() if "planted" in one.lower()] == part.missing() != []


def test_a_new_verb_and_a_new_option_of_one_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ojs.Command._verb

    def with_more(self: Any, verbs: Any, name: str, *rest: Any, **more: Any) -> Any:
        parser = own(self, verbs, "planted" if name == "inspect" else name, *rest, **more)
        if name == "prune":
            parser.add_argument("--planted")
        return parser

    monkeypatch.setattr(ojs.Command, "_verb", with_more)
    found = [one for verb, parser in reference.verbs() for one in unsaid(verb, parser)]
    assert sorted(found) == ["planted", "prune --planted"]
