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
from tests.lab.report import Result, lines_of
from tests.lab.stage import Stage


def run(
    name: str,
    cases: list[Case],
    rounds: int | None,
    lock: Path,
    say: Callable[[str], None],
    *,
    brief: bool = False,
) -> list[Result]:
    """Every case that this database has.

    ``brief`` is for ``make test-all``: cases share fleets where they can, take fewer moments, and
    lateness does not count as far as the machine itself stood still.
    """
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
            while some:
                fit = [case for case in some if brief and _fleet(case) == _fleet(some[0])] or some[:1]
                played = _play(fit, database, rounds, lock, say, brief)
                found += played
                done = {result.case for result in played}
                some = [case for case in some if case.name not in done]
    order = [case.name for case in cases]
    return sorted(found, key=lambda result: order.index(result.case))


def _migrate() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def _fleet(case: Case) -> tuple[object, ...]:
    """What distinguishes the fleets of cases."""
    return case.reaper, tuple(case.hooks.items()), case.alone


def _play(
    cases: list[Case],
    database: Database,
    rounds: int | None,
    lock: Path,
    say: Callable[[str], None],
    brief: bool,
) -> list[Result]:
    """The rounds of cases that share a fleet, up to the first that could not be played."""
    found: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="ojs-lab-") as made:
        folder, first = Path(made), cases[0]
        hooks = {variable: str(folder / name) for variable, name in first.hooks.items()}
        with Stage(database, folder, brief=brief) as stage:
            stage.start(reaper=first.reaper, **hooks)
            for case in cases:
                result = Result(case.name, database.name, Figures())
                found.append(result)
                if not _rounds(case, stage, rounds or case.rounds, lock, say, result):
                    break
    return found


def _rounds(
    case: Case, stage: Stage, rounds: int, lock: Path, say: Callable[[str], None], result: Result
) -> bool:
    """The rounds of one case; whether all could be played."""
    figures, database, began = result.figures, stage.database, time.monotonic()
    for number in range(1, rounds + 1):
        before, known = time.monotonic(), len(lines_of(figures))
        with _turn(lock, alone=case.alone):
            try:
                with stage.judged(figures):
                    case.play(stage)
            except (AssertionError, RuntimeError, Error) as error:
                figures.rounds += 1
                figures.wrong.append(f"round {number} was not played: {error}")
                say(f"{database.name}: {case.name}: round {number} was not played: {error}")
                say(stage.said())
                return False
        for line in lines_of(figures)[known:]:
            say(f"{database.name}: {case.name}, round {number}: {line}")
        say(
            f"{database.name}: {case.name}, round {number} of {rounds}"
            f" in {time.monotonic() - before:.0f} s: {short(figures)}"
        )
    result.seconds = time.monotonic() - began
    return True


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
