"""The long load of P15 as a picture: jobs a second, waits and sizes of tables in the course of it.

::

    python -m benchmarks --goals P15 --json day.json
    python -m benchmarks.day --from day.json --plot day.svg

Needs matplotlib (``pip install --group bench``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.scaling import can_draw, note
from benchmarks.systems import SYSTEMS

_MIB = 1 << 20


def days(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The sample of each system in the document of a run, ours first."""
    found = {}
    for key, samples in document["samples"].items():
        system, workload, *_ = key.split(" ")
        good = [sample for sample in samples if "course" in sample]
        if workload == "day" and good:
            found[system] = good[0]
    return dict(sorted(found.items(), key=lambda item: (not item[0].startswith("ojs"), item[0])))


def areas(sample: Mapping[str, Any]) -> tuple[list[float], dict[str, list[float]]]:
    """Seconds, and MiB of the rows and of the indexes of each large table."""
    sizes = sample["sizes"]
    return sizes["at"], {
        f"{table.removeprefix('django_ojs_')}, {part}": [size / _MIB for size in figures[part]]
        for table, figures in sizes.items()
        if table != "at"
        for part in ("rows", "indexes")
    }


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Three panels in one SVG; the sizes are ours."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    found = days(document)
    style = {"svg.hashsalt": "django-ojs", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
        for axis, name, title in zip(
            axes, ("rate", "p99"), ("jobs per second", "pickup, p99, ms"), strict=False
        ):
            for system, sample in found.items():
                minutes = [at / 60 for at in sample["course"]["at"]]
                axis.plot(minutes, sample["course"][name], label=SYSTEMS[system].what)
            axis.set_title(title)
            axis.legend()
        axes[1].set_yscale("log")
        axes[0].set_ylim(bottom=0)
        ours = next((sample for name, sample in found.items() if name.startswith("ojs")), None)
        if ours is not None:
            at, sizes = areas(ours)
            axes[2].stackplot([second / 60 for second in at], list(sizes.values()), labels=list(sizes))
            axes[2].legend(loc="upper left")
        axes[2].set_title("tables, MiB")
        for axis in axes:
            axis.set_xlabel("minutes")
        figure.suptitle(note(document["machine"]), fontsize=9)
        figure.savefig(path, metadata={"Date": None})


def main(given: list[str] | None = None) -> int:
    """Draw; 2 for what cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.day", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--from", type=Path, dest="source", required=True, help="the JSON of a run")
    parser.add_argument("--plot", type=Path, required=True, help="draw into this SVG file")
    options = parser.parse_args(given)
    if not can_draw():
        print("--plot needs matplotlib: pip install --group bench", file=sys.stderr)
        return 2
    try:
        document = report.read(options.source)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if not days(document):
        print(f"{options.source} has nothing of P15", file=sys.stderr)
        return 2
    draw(document, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
