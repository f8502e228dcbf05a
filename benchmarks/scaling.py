"""How our drain rate moves with workers, backlog, history and the size of arguments, on PostgreSQL.

::

    python -m benchmarks.scaling --json FILE --plot FILE.svg

One thing is varied at a time, from a worker of concurrency 2, 10,000 jobs waiting, none finished and
arguments of 100 bytes. The plot needs matplotlib (``pip install --group bench``) and can be drawn
later from the JSON: ``--from FILE --plot FILE.svg``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine, servers
from benchmarks.measuring import Bench, Figures, Measure

HERE = Path(__file__).resolve().parent
_BASE = {"processes": 1, "concurrency": 2, "backlog": 10_000, "history": 0, "payload": 100}
_JOBS = 10_000
_MOST_BYTES = 20_000_000
"""How much arguments may weigh together in one point."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the four: what is varied along x, and a line per value of something else, if any."""

    name: str
    title: str
    vary: str
    values: Sequence[int]
    unit: str
    lines: tuple[str, Sequence[int]] | None = None


PANELS = (
    Panel("workers", "Workers", "processes", (1, 2, 3, 4), "processes", ("concurrency", (1, 2))),
    Panel("backlog", "Backlog", "backlog", (1_000, 10_000, 100_000, 1_000_000), "jobs waiting"),
    Panel("history", "History", "history", (0, 100_000, 1_000_000), "jobs finished"),
    Panel("payload", "Arguments", "payload", (100, 1_000, 10_000, 100_000), "bytes a job"),
)


def points(panel: Panel) -> list[tuple[str, int, Measure]]:
    """Line, x and measure of every point of a panel."""
    other, values = panel.lines or ("", (0,))
    found = []
    for value in values:
        for x in panel.values:
            options = {**_BASE, panel.vary: x, **({other: value} if other else {})}
            few = max(200, min(_JOBS, _MOST_BYTES // options["payload"]))
            if panel.vary != "backlog":
                options["backlog"] = few
            options["jobs"] = min(few, options["backlog"])
            line = f"{other} {value}" if other else ""
            found.append(
                (line, x, Measure("ojs.scaling", "scaled_drain", options=tuple(options.items())))
            )
    return found


def summary(figures: Figures, panels: Sequence[Panel]) -> dict[str, Any]:
    """Jobs per second of every point: median, least and most of the rounds."""
    document: dict[str, Any] = {}
    for panel in panels:
        lines: dict[str, list[dict[str, float]]] = {}
        for line, x, measure in points(panel):
            rates = [sample["rate"] for sample in figures.good(measure)]
            if rates:
                point = {"x": x, "rate": statistics.median(rates), "min": min(rates), "max": max(rates)}
                lines.setdefault(line, []).append(point)
        document[panel.name] = {"title": panel.title, "unit": panel.unit, "lines": lines}
    return document


def table(document: Mapping[str, Any]) -> str:
    """The same for people."""
    told = []
    for name, panel in document.items():
        for line, found in panel["lines"].items():
            rates = ", ".join(f"{point['x']:,}: {point['rate']:,.0f}" for point in found)
            told.append(f"{name:8} {line:14} ({panel['unit']}) {rates}")
    return "\n".join(told)


def note(machine: Mapping[str, str]) -> str:
    """What a picture says about where it was measured."""
    told = ("processors", "disk", "postgresql", "python")
    return "; ".join(machine[name] for name in told if name in machine)


def draw(document: Mapping[str, Any], note: str, path: Path) -> None:
    """Four panels in one SVG, jobs per second from zero."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    style = {"svg.hashsalt": "django-ojs", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(2, 2, figsize=(9, 6.5), sharey=True, layout="constrained")
        for axis, (name, panel) in zip(axes.flat, document.items(), strict=False):
            for line, found in panel["lines"].items():
                place = [point["x"] for point in found]
                rates = [point["rate"] for point in found]
                spread = [
                    [rate - point["min"] for rate, point in zip(rates, found, strict=True)],
                    [point["max"] - rate for rate, point in zip(rates, found, strict=True)],
                ]
                if name == "workers":
                    axis.set_xticks(place)
                else:
                    axis.set_xscale("symlog" if 0 in place else "log", **_threshold(place))
                    axis.set_xticks(place, [f"{x:,}" for x in place])
                    axis.minorticks_off()
                axis.errorbar(place, rates, yerr=spread, marker="o", capsize=3, label=line or None)
                if line:
                    axis.legend()
            axis.set_title(panel["title"])
            axis.set_xlabel(panel["unit"])
        for axis in axes[:, 0]:
            axis.set_ylabel("jobs per second")
        axes[0, 0].set_ylim(bottom=0)
        figure.suptitle(f"Draining jobs that do nothing, PostgreSQL\n{note}", fontsize=9)
        figure.savefig(path, metadata={"Date": None})


def _threshold(place: Sequence[int]) -> dict[str, float]:
    return {"linthresh": min(x for x in place if x)} if 0 in place else {}


def arguments(given: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    names = ",".join(panel.name for panel in PANELS)
    parser.add_argument("--panels", default=names, help=f"only these of {names}")
    parser.add_argument("--repeat", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--plot", type=Path, help="draw them into this SVG file")
    parser.add_argument("--from", type=Path, dest="source", help="draw these figures, measure nothing")
    parser.add_argument(
        "--scratch", type=Path, default=Path(os.environ.get("OJS_BENCH_SCRATCH", HERE / ".scratch"))
    )
    parser.add_argument("--prefix", default="ojs_bench", help="how the name of the database begins")
    parser.add_argument("--lock", type=Path, help="hold this lock file during each measurement")
    patience = machine.PATIENCE
    parser.add_argument("--patience", type=float, default=patience, help="wait for quiet, seconds")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    """Measure and draw; 1 if a measurement failed, 2 for what cannot be done."""
    options = arguments(given)
    panels = [panel for panel in PANELS if panel.name in options.panels.split(",")]
    if options.plot and not can_draw():
        print("--plot needs matplotlib: pip install --group bench", file=sys.stderr)
        return 2
    if options.source:
        found = json.loads(options.source.read_text())
        problems: list[str] = []
    else:
        found, problems = measure(options, panels)
        print("\n" + table(found["panels"]))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    if options.plot:
        draw(found["panels"], note(found["machine"]), options.plot)
    print("\n".join(problems))
    return 1 if problems else 0


def can_draw() -> bool:
    """Whether matplotlib is there."""
    try:
        import matplotlib
    except ImportError:
        return False
    return bool(matplotlib)


def measure(options: argparse.Namespace, panels: Sequence[Panel]) -> tuple[dict[str, Any], list[str]]:
    """Everything, rounds outermost; what is written to the JSON, and what went wrong."""
    scratch: Path = options.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    calm = machine.Calm(scratch, options.patience)
    bench = Bench(servers.find(), calm, scratch, scratch, prefix=options.prefix, lock=options.lock)
    facts = machine.facts(bench.servers, scratch, calm)
    measures = list(dict.fromkeys(point[2] for panel in panels for point in points(panel)))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        bench.prepare(["ojs.scaling"])
        for number in range(1, options.repeat + 1):
            print(f"round {number} of {options.repeat}", flush=True)
            for wanted in measures:
                bench.run(wanted, number)
    except KeyboardInterrupt:
        print("interrupted: what follows is about what there is", flush=True)
    finally:
        bench.clean()
    found = {"machine": facts, "rounds": options.repeat, "panels": summary(bench.figures, panels)}
    problems = [*bench.figures.missing.values(), *bench.figures.problems()]
    return found, problems


if __name__ == "__main__":
    sys.exit(main())
