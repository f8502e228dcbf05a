"""What users meet of django_ojs, collected from the code: names, options, events, errors, commands."""

from __future__ import annotations

import ast
import re
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from django.core.management import load_command_class
from django.core.management.base import BaseCommand

from django_ojs import conf
from django_ojs.domain import failures, options, over_limit, sections
from django_ojs.domain.events import Kind
from tests.support import ROOT

PACKAGE = ROOT / "django_ojs"
_EVERYWHERE = {"--database", "--format"}


def members(cls: type, *without: str) -> set[str]:
    """The public attributes of a class that the package defines, also those that ``__init__`` sets."""
    own = [one for one in cls.__mro__ if one.__module__.startswith("django_ojs")]
    found = {name for one in own for name in vars(one)} | set(_assigned(cls))
    if is_dataclass(cls):
        found |= {one.name for one in fields(cls)}
    return {name for name in found if not name.startswith("_")} - set(without)


def _assigned(cls: type) -> Iterator[str]:
    """The attributes that methods of a class assign to ``self``."""
    text = (ROOT / f"{cls.__module__.replace('.', '/')}.py").read_text()
    for definition in ast.parse(text).body:
        if isinstance(definition, ast.ClassDef) and definition.name == cls.__name__:
            for node in ast.walk(definition):
                match node:
                    case ast.Attribute(value=ast.Name("self"), attr=name, ctx=ast.Store()):
                        yield name


def subclasses(base: type) -> set[type]:
    """All classes below one that the package defines."""
    below: set[type] = set(base.__subclasses__())
    below |= {inner for one in below for inner in subclasses(one)}
    return {one for one in below if one.__module__.startswith("django_ojs")}


def classes_of(module: Any) -> set[str]:
    """The names of the classes that a module defines, also of those with their public name."""
    own = {name: one for name, one in vars(module).items() if isinstance(one, type)}
    return {name for name, one in own.items() if one.__module__ in (module.__name__, "django_ojs")}


def settings() -> set[str]:
    """The keys that are asked for when ``OJS`` is read: ``DATABASE``, ``HTTP["MAX_BATCH"]``."""
    asked: set[str] = set()
    read, section = sections.Section.read, sections.Section.section

    def noted(method: Any) -> Any:
        def ask(self: sections.Section, key: str, *rest: Any) -> Any:
            asked.add(self.name(key))
            return method(self, key, *rest)

        return ask

    with (
        patch.object(sections.Section, "read", noted(read)),
        patch.object(sections.Section, "section", noted(section)),
    ):
        conf.read({"QUEUES": {"one": {}}})
    paths = [re.findall(r"'(\w+)'", path) for path in asked]
    nested = {f'{path[0]}["{path[1]}"]' for path in paths if path[0] in ("HTTP", "ADMIN") and path[1:]}
    return nested | {path[-1] for path in paths if path[0] not in ("HTTP", "ADMIN") or not path[1:]} - {
        "one"
    }


def option_names() -> set[str]:
    """Every option of the Python API."""
    sets = [one for one in vars(options).values() if hasattr(one, "__total__")]
    return {name for one in sets for name in options.names(one) if not name.endswith("_ms")}


def error_types() -> set[str]:
    """The types of stored errors where no handler raised one."""
    return {*failures._TYPES.values(), over_limit.ERROR_TYPE, *_written_types()}


@cache
def _written_types() -> frozenset[str]:
    found: set[str] = set()
    for path in (*PACKAGE.glob("worker/**/*.py"), PACKAGE / "services/settle.py"):
        for node in _calls(path, "Failure", "replace"):
            named = [one.value for one in node.keywords if one.arg == "type"]
            found |= set(_texts(named or node.args[:1]))
    for one in ast.walk(ast.parse((PACKAGE / "worker/executor/invoke.py").read_text())):
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]).startswith("(kind,"):
            found |= set(_texts(ast.walk(one.value)))
    return frozenset(found)


def _texts(nodes: Any) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def loggers() -> set[str]:
    """The names of all loggers."""
    texts = [path.read_text() for path in PACKAGE.rglob("*.py")]
    return {name for text in texts for name in re.findall(r'getLogger\("([\w.]+)"\)', text)}


@cache
def event_fields() -> Mapping[str, set[str]]:
    """By kind the fields that the code names where it makes an event about a job."""
    found: dict[str, set[str]] = {kind: set() for kind in Kind}
    names = {f"Kind.{kind.name}": str(kind) for kind in Kind}
    for path in (*PACKAGE.glob("domain/*.py"), *PACKAGE.glob("services/*.py")):
        if "job_event(" in path.read_text():
            for node in _calls(path, "job_event"):
                if (kind := names.get(ast.unparse(node.args[0]))) is not None:
                    found[kind] |= {one.arg for one in node.keywords if one.arg}
    return found


def _calls(path: Path, *functions: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in functions:
            yield node


def command(name: str) -> ArgumentParser:
    """The parser of a command."""
    return load_command_class("django_ojs", name).create_parser("manage.py", name)


def own_options(parser: ArgumentParser) -> set[str]:
    """The long options of a parser, without those that every command has."""
    every = BaseCommand().create_parser("manage.py", "any")._option_string_actions
    return set(parser._option_string_actions) - set(every) - _EVERYWHERE


def verbs() -> Iterator[tuple[str, ArgumentParser]]:
    """Every verb of ``ojs`` with its parser: ``prune``, ``cron run``."""
    return _below("", command("ojs"))


def _below(name: str, parser: ArgumentParser) -> Iterator[tuple[str, ArgumentParser]]:
    further = [action for action in parser._actions if isinstance(action, _SubParsersAction)]
    if not further:
        yield name, parser
    for action in further:
        for verb, inner in action.choices.items():
            yield from _below(f"{name} {verb}".strip(), inner)
