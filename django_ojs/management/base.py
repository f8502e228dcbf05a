"""What the commands share: output, exit codes, and errors of the database."""

from __future__ import annotations

import getpass
import json
import os
from argparse import SUPPRESS
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError, OperationalError, connections
from django.db.migrations.executor import MigrationExecutor

from django_ojs import conf
from django_ojs.domain.errors import InvalidRequest, OJSError
from django_ojs.domain.job import Actor
from django_ojs.domain.printable import one_line
from django_ojs.store.contention import repeating_statements

EXIT_OVERDUE = 3
EXIT_UNAVAILABLE = 69


class OJSCommand(BaseCommand):
    """A command on the database of ``OJS["DATABASE"]``; ``--format json`` for machines."""

    def add_arguments(self, parser: CommandParser) -> None:
        """``--database`` and ``--format``."""
        parser.add_argument("--database", help="alias of the database; default OJS['DATABASE']")
        parser.add_argument("--format", choices=("text", "json"), default="text")

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command; a closed output pipe does not change the exit status."""
        try:
            return super().execute(*args, **options)
        finally:
            for stream in (self.stdout, self.stderr):
                try:
                    stream.flush()
                except BrokenPipeError:
                    _discard_output(stream.fileno())

    def check(self, *args: Any, **options: Any) -> None:
        """Run the system checks; a closed output pipe does not stop the command."""
        with suppress(BrokenPipeError):
            super().check(*args, **options)

    def alias(self, options: Mapping[str, Any]) -> str:
        """The database to work on. Raises ``CommandError`` for an unknown alias."""
        alias = options.get("database") or conf.current().database
        if alias not in connections:
            said = f"--database: there is no database {alias!r} in DATABASES"
            raise CommandError(said, returncode=2)
        return str(alias)

    def emit(self, value: Any) -> None:
        """Write a value as one line of JSON."""
        self._write(json.dumps(value, default=str))

    def answer(self, options: Mapping[str, Any], value: Any, lines: Iterable[str]) -> None:
        """Write what a command found: as JSON where ``--format`` asks for it, otherwise the lines."""
        if options["format"] == "json":
            self.emit(value)
            return
        for line in lines:
            self.print_line(line)

    def confirm(self, options: Mapping[str, Any], value: Any, lines: Iterable[str]) -> None:
        """Write what a command did; with ``--verbosity 0`` only as JSON."""
        self.answer(options, value, lines if options["verbosity"] else ())

    def print_line(
        self, text: str, *, trouble: bool = False, style: Callable[[str], str] | None = None
    ) -> None:
        """Write one line, with control characters escaped: stored text must neither forge a line nor
        control the terminal.
        """
        line = one_line(text)
        self._write(line if style is None else style(line), trouble=trouble)

    def _write(self, line: str, *, trouble: bool = False) -> None:
        """Write a line; a closed output pipe is ignored."""
        with suppress(OSError):
            (self.stderr if trouble else self.stdout).write(line)

    @contextmanager
    def usable_database(self, alias: str) -> Iterator[None]:
        """Exit 69 with one sentence when the database is away, 1 when it is not migrated.

        Statements of the block that lose a race are run again.
        """
        try:
            with repeating_statements(alias):
                require_migrations(alias)
                yield
        except OJSError as error:
            raise CommandError(str(error)) from error
        except (OperationalError, InterfaceError) as error:
            raise CommandError(
                f"the database {alias!r} is not available: {first_line(error)}",
                returncode=EXIT_UNAVAILABLE,
            ) from error
        except DatabaseError as error:
            raise CommandError(f"the database {alias!r} refused: {first_line(error)}") from error


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows in aligned columns; the first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def plural(count: int, word: str) -> str:
    """A number with its noun: ``1 job``, ``2 jobs``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def standard_options(parser: CommandParser) -> None:
    """Accept Django's own options after the verb too; without a value there, the first one counts."""
    group = parser.add_argument_group("options of every command of Django")
    group.add_argument("-v", "--verbosity", type=int, choices=(0, 1, 2, 3), default=SUPPRESS)
    for name in ("--settings", "--pythonpath"):
        group.add_argument(name, default=SUPPRESS)
    for name in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
        group.add_argument(name, action="store_true", default=SUPPRESS)


def _discard_output(descriptor: int) -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)


def require_migrations(alias: str) -> None:
    """Raise ``CommandError`` unless every migration of django_ojs is applied."""
    executor = MigrationExecutor(connections[alias])
    targets = [key for key in executor.loader.graph.leaf_nodes() if key[0] == "django_ojs"]
    missing = executor.migration_plan(targets)
    if missing:
        names = ", ".join(migration.name for migration, _ in missing)
        raise CommandError(
            f"the tables of django_ojs are not up to date in {alias!r} (missing: {names}): "
            "run `manage.py migrate`"
        )


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def parse_id(text: str, kind: str) -> UUID:
    """The id of a job, or of something of another kind. Raises :class:`InvalidRequest`."""
    try:
        return UUID(text)
    except ValueError:
        raise InvalidRequest("ID", f"{text!r} is not a {kind} id") from None


def actor_of(options: Mapping[str, Any]) -> Actor:
    """The user of the shell, with the reason that the command was given."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return Actor("command", name, options.get("reason", ""))


def json_option(name: str, text: str | None, kind: type) -> Any:
    """The value of an option that is a JSON list or object. Raises :class:`InvalidRequest`."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(name, f"must be JSON: {error}") from error
    if not isinstance(value, kind):
        raise InvalidRequest(name, f"must be a JSON {'list' if kind is list else 'object'}")
    return value


def add_call(parser: CommandParser) -> None:
    """``TYPE``, ``ARGS`` and ``--kwargs``."""
    parser.add_argument("type", metavar="TYPE")
    parser.add_argument("call", nargs="?", default="[]", metavar="ARGS", help="a JSON list")
    parser.add_argument("--kwargs", metavar="JSON", help="arguments by keyword, a JSON object")


def call_of(options: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments by position and by keyword. Raises :class:`InvalidRequest`."""
    args = json_option("ARGS", options["call"], list)
    return args or [], json_option("--kwargs", options["kwargs"], dict) or {}
