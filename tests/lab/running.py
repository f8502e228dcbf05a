"""The cases of one database, round by round."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from django.db import Error

from tests.clusters.pointing import default_is
from tests.lab import databases
from tests.lab.cases import Case
from tests.lab.databases import Database
from tests.lab.judge import Figures
from tests.lab.report import Result
from tests.lab.stage import Stage


def run(
    name: str,
    cases: list[Case],
    rounds: int | None,
    lock: Path,
    say: Callable[[str], None],
) -> list[Result]:
    """Every case that this database has."""
    found: list[Result] = []
    here = [case for case in cases if name in case.databases]
    for steppable in (False, True):
        some = [case for case in here if case.steppable is steppable]
        if not some:
            continue
        if reason := databases.missing(name, steppable=steppable):
            found += [Result(case.name, name, Figures(), skipped=reason) for case in some]
            continue
        with databases.database(name, steppable=steppable) as database, default_is(database.url):
            _migrate()
            found += [_play(case, database, rounds or case.rounds, lock, say) for case in some]
    order = [case.name for case in cases]
    return sorted(found, key=lambda result: order.index(result.case))


def _migrate() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def _play(
    case: Case, database: Database, rounds: int, lock: Path, say: Callable[[str], None]
) -> Result:
    """The rounds of one case, with a fleet of its own."""
    figures = Figures()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ojs-lab-") as made, Stage(database, Path(made)) as stage:
        hooks = {variable: str(stage.folder / name) for variable, name in case.hooks.items()}
        stage.start(reaper=case.reaper, **hooks)
        for number in range(1, rounds + 1):
            before, wrong = time.monotonic(), len(figures.wrong)
            with _turn(lock, alone=case.alone):
                try:
                    with stage.judged(figures):
                        case.play(stage)
                except (AssertionError, RuntimeError, Error) as error:
                    figures.rounds += 1
                    figures.wrong.append(f"round {number} was not played: {error}")
                    say(f"{database.name}: {case.name}: round {number} was not played: {error}")
                    say(stage.said())
                    break
            for line in figures.wrong[wrong:]:
                say(f"{database.name}: {case.name}, round {number}: {line}")
            say(
                f"{database.name}: {case.name}, round {number} of {rounds}"
                f" in {time.monotonic() - before:.0f} s: {short(figures)}"
            )
    return Result(case.name, database.name, figures, seconds=time.monotonic() - began)


def short(figures: Figures) -> str:
    """On one line, so far."""
    late = "-" if figures.lateness is None else f"{figures.lateness:.2f} s"
    return f"stalls {figures.stalls}, repeated {figures.repeated}, lost {figures.lost}, late {late}"


@contextlib.contextmanager
def _turn(lock: Path, *, alone: bool) -> Iterator[None]:
    """Rounds of several databases go on at once, but for those that need the machine alone."""
    file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(file)
