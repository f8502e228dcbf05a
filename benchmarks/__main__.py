"""Ours and others in one run: every goal with its figure, its ratio, and whether it is met.

::

    python -m benchmarks [--goals P1,P5] [--repeat N] [--full] [--json FILE [--resume]]
    python -m benchmarks --against REV [--goals P1,P5] [--turns N]

Exit code 0 whether goals are met or not: it is a report. 1 if a measurement failed, a job was lost or
ran twice, or this version is worse than ``REV``; 2 for a bad option. ``benchmarks/README.md`` says
what each goal measures.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby, takewhile
from math import inf
from pathlib import Path
from typing import Any

from benchmarks import against, machine, report, servers
from benchmarks.goals import all_goals
from benchmarks.goals.checks import Goal
from benchmarks.goals.scale import Scale
from benchmarks.measuring import ROOT, Bench, Figures, Measure
from benchmarks.systems import SYSTEMS

HERE = Path(__file__).resolve().parent


def arguments(given: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--goals", help="only these, separated by commas")
    parser.add_argument("--systems", help="only these beside ours, separated by commas")
    parser.add_argument("--repeat", type=int, default=3, help="rounds (default 3)")
    parser.add_argument(
        "--within",
        type=float,
        metavar="M",
        help="begin nothing after so many minutes (14, 57 with --full, without limit with --goals)",
    )
    parser.add_argument("--against", metavar="REV", help="ours only, beside this commit, by turns")
    parser.add_argument("--turns", type=int, default=10, help="of --against (default 10)")
    parser.add_argument("--jobs", type=int, help="jobs of a drain (default 10000)")
    parser.add_argument("--full", action="store_true", help="longer measurements, and the long goals")
    parser.add_argument("--minutes", type=float, help="how long P15 is, and P17 in proportion (15)")
    parser.add_argument("--json", type=Path, help="keep everything in this file, as it is measured")
    parser.add_argument("--resume", action="store_true", help="measure only what that file lacks")
    parser.add_argument("--list", action="store_true", help="goals and systems; measures nothing")
    parser.add_argument(
        "--venvs",
        type=Path,
        default=Path(os.environ.get("OJS_BENCH_VENVS", HERE / ".venvs")),
        help="where the environments of the others are made (or OJS_BENCH_VENVS)",
    )
    parser.add_argument(
        "--scratch",
        type=Path,
        default=Path(os.environ.get("OJS_BENCH_SCRATCH", HERE / ".scratch")),
        help="a folder on a real disk (or OJS_BENCH_SCRATCH)",
    )
    parser.add_argument("--prefix", default="ojs_bench", help="how names of databases begin")
    parser.add_argument("--lock", type=Path, help="hold this lock file during each measurement")
    parser.add_argument(
        "--patience",
        type=float,
        default=machine.PATIENCE,
        help="longest wait for a quiet machine before a measurement, in seconds (default 5)",
    )
    parser.add_argument("--keep", action="store_true", help="leave the databases")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    """Measure, judge, print."""
    options = arguments(given)
    scale = Scale.full() if options.full else Scale()
    if options.jobs:
        scale = replace(scale, jobs=options.jobs)
    if options.minutes:
        scale = replace(scale, minutes=options.minutes)
    goals = all_goals(scale)
    if options.list:
        long = {True: " (long: by name, or in the full form)", False: ""}
        print("\n".join(f"{g.id:4} {g.title}{long[g.long]}" for g in goals), end="\n\n")
        print("\n".join(f"{name:14} {system.what}" for name, system in SYSTEMS.items()))
        return 0
    try:
        goals = chosen(goals, options.goals, full=options.full)
        others = chosen_systems(options.systems)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    begun = time.monotonic()
    scratch: Path = options.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    calm = machine.Calm(scratch, options.patience)
    bench = Bench(
        servers.find(),
        calm,
        options.venvs.absolute(),
        scratch,
        prefix=options.prefix,
        lock=options.lock,
    )
    facts = machine.facts(bench.servers, scratch, calm)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.against:
        return beside(options, goals, bench, facts)
    if options.resume:
        try:
            bench.figures.samples |= earlier(options.json, facts)
        except ValueError as error:
            print(f"--resume: {error}", file=sys.stderr)
            return 2
    measures = neighbours(goals)
    told = {"rounds": options.repeat, "full": options.full, "jobs": scale.jobs}

    def keep() -> None:
        if options.json:
            problems = bench.figures.problems()
            report.save(options.json, goals, bench.figures, facts, told, problems)

    for measure in measures:
        if not measure.system.startswith("ojs") and measure.system not in others:
            bench.figures.missing[measure.system] = "left out by --systems"
    try:
        measure_all(bench, measures, options.repeat, keep, begun + 60 * minutes(options))
    except KeyboardInterrupt:
        print("interrupted: the report is about what there is", flush=True)
    finally:
        if not options.keep:
            bench.clean()
    problems = bench.figures.problems()
    print("\n" + report.render(goals, bench.figures, facts, problems))
    print(f"\n{options.repeat} rounds in {(time.monotonic() - begun) / 60:.1f} minutes")
    keep()
    return 1 if problems else 0


def minutes(options: argparse.Namespace) -> float:
    """After how many minutes nothing more is begun: who names goals gets all of them."""
    if options.within is not None:
        return float(options.within)
    if options.goals:
        return inf
    return 57.0 if options.full else 14.0


def beside(options: argparse.Namespace, goals: list[Goal], bench: Bench, facts: dict[str, str]) -> int:
    """This version and another by turns; the exit code."""
    every = against.compared(goals)
    measures = neighbours(goals)
    ours = [one for one in measures if one in {compared.figure.measure for compared in every}]
    try:
        with against.checked_out(options.against, bench.scratch) as tree:
            bench.root = ROOT
            other = replace(
                bench,
                root=tree,
                prefix=f"{bench.prefix}_other",
                scratch=tree / "scratch",
                figures=Figures(),
                made=[],
                lock=None,
            )
            other.scratch.mkdir()
            lock, bench.lock = bench.lock, None
            try:
                against.measure(bench, other, ours, options.turns, lock)
            except KeyboardInterrupt:
                print("interrupted: the report is about what there is", flush=True)
            finally:
                if not options.keep:
                    bench.clean()
                    other.clean()
    except against.NoSuchRevision as error:
        print(error, file=sys.stderr)
        return 2
    verdicts = against.judge(every, bench.figures, other.figures)
    problems = bench.figures.problems()
    told = "; ".join(f"{name} {value}" for name, value in facts.items())
    print(f"\n{told}\n\n{against.render(verdicts, options.against)}")
    if problems:
        print("\n".join(["\nPROBLEMS", *(f"  {problem}" for problem in problems)]))
    if options.json:
        document = {
            "machine": facts,
            "against": options.against,
            "turns": options.turns,
            "figures": against.record(verdicts),
            "samples": {"this": bench.figures.samples, "other": other.figures.samples},
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if problems or any(verdict.worse for verdict in verdicts) else 0


def neighbours(goals: list[Goal]) -> list[Measure]:
    """Every measure once; the same work by all systems, one right after the other."""
    every = list(dict.fromkeys(measure for goal in goals for measure in goal.measures))
    kinds = list(dict.fromkeys(_kind(measure) for measure in every))
    return sorted(every, key=lambda measure: kinds.index(_kind(measure)))


def _kind(measure: Measure) -> str:
    """What is compared: the replay of an enqueue is one too."""
    return measure.workload.replace("replay_enqueue", "enqueue_one")


def chosen(goals: list[Goal], names: str | None, *, full: bool = False) -> list[Goal]:
    """The goals that were asked for, without names all but the long ones, which are part of the full
    form. Raises ``ValueError`` for one that there is not.
    """
    wanted = _names(names)
    if unknown := sorted(wanted - {goal.id for goal in goals}):
        raise ValueError(f"--goals: there is no {', '.join(unknown)}")
    return [goal for goal in goals if goal.id in wanted or (not wanted and (full or not goal.long))]


def earlier(path: Path | None, facts: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """The samples of an interrupted run, up to the first that failed of each measure; none where there
    is no file yet.

    Raises ``ValueError`` where there can be none, or they are of another machine or version: figures
    are compared within one run.
    """
    if path is None:
        raise ValueError("--json says which file to go on with")
    if not path.exists():
        return {}
    document = report.read(path)
    known = document["machine"]
    # How fast the disk is right now differs each time.
    if other := sorted(n for n in {*known, *facts} - {"disk"} if known.get(n) != facts.get(n)):
        raise ValueError(f"{path} is about another machine or version: {', '.join(other)}")
    return {
        key: list(takewhile(lambda sample: "error" not in sample, samples))
        for key, samples in document["samples"].items()
    }


def chosen_systems(names: str | None) -> set[str]:
    """The systems that were asked for. Raises ``ValueError`` for one that there is not."""
    wanted = {name.lower() for name in _names(names)}
    if unknown := sorted(wanted - set(SYSTEMS)):
        raise ValueError(f"--systems: there is no {', '.join(unknown)}")
    return wanted or set(SYSTEMS)


def _names(text: str | None) -> set[str]:
    return {name.strip().upper() for name in (text or "").split(",") if name.strip()}


def measure_all(
    bench: Bench, measures: list[Measure], rounds: int, keep: Callable[[], None], until: float = inf
) -> None:
    """Rounds are the outer loop, so that a slow minute of the machine hits every system alike; what is
    quick has all of its turns in the first, since the time may be up before there is another.

    What the figures have already is passed over; ``keep`` is called after each measurement. Nothing is
    begun after ``until`` (of the monotonic clock).
    """
    wanted = {measure.system for measure in measures if is_wanted(measure, rounds, bench.figures)}
    bench.prepare(name for name in SYSTEMS if name in wanted - set(bench.figures.missing))
    for number, some in turns(measures, rounds, bench.figures):
        if time.monotonic() > until:
            print("the time is up: --json FILE --resume goes on with what is left", flush=True)
            return
        if len(some) > 1:
            bench.run_together(some, number)
        else:
            bench.run(some[0], number)
        keep()


def is_wanted(measure: Measure, rounds: int, figures: Figures) -> bool:
    """Whether the figures lack a round of it."""
    last = 1 if measure.once else rounds
    return not all(figures.has(measure, number) for number in range(1, last + 1))


def turns(
    measures: Iterable[Measure], rounds: int, figures: Figures
) -> Iterator[tuple[int, list[Measure]]]:
    """What to measure next, by what the figures have then, and for which round."""
    kinds = [list(alike) for _, alike in groupby(measures, key=_kind)]
    for number in range(1, rounds + 1):
        print(f"round {number} of {rounds}", flush=True)
        for alike in kinds:
            for turn in range(number, rounds + 1):
                asked = [
                    measure
                    for measure in alike
                    if not figures.has(measure, turn)
                    and (turn == 1 or not measure.once)
                    and (turn == number or figures.is_quick(measure))
                ]
                for some in at_once(asked):
                    yield turn, some


def at_once(measures: Iterable[Measure]) -> Iterator[list[Measure]]:
    """One by one, but those together that follow each other and only wait."""
    for waits, alike in groupby(measures, key=lambda measure: measure.waits):
        if waits:
            yield list(alike)
        else:
            yield from ([measure] for measure in alike)


if __name__ == "__main__":
    sys.exit(main())
