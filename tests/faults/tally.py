"""How many faults were injected and how many invariants were checked, by this pytest process.

A test marked ``fault("F19")`` counts as one injection of that row each time it passes. A test that
injects many says so itself, by :func:`injected`. Invariants are counted where they are checked.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.faults.catalogue import ROWS

faults: Counter[str] = Counter()
invariants: Counter[str] = Counter()


def injected(*rows: str, times: int = 1) -> None:
    """Faults of these rows of the catalogue have been injected, and what must hold has held."""
    for row in rows:
        if row not in ROWS:
            raise ValueError(f"{row} is not in the catalogue of faults")
        faults[row] += times


def checked(*names: str, times: int = 1) -> None:
    """These invariants have been asked for, and held."""
    for name in names:
        invariants[name] += times


def write(path: Path) -> None:
    """Leave the counts for whoever adds them up."""
    path.write_text(json.dumps({"faults": faults, "invariants": invariants}))


def add_up(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """The sums over all counts left in a folder."""
    total: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for path in sorted(folder.glob("*.json")):
        counts = json.loads(path.read_text())
        total[0].update(counts["faults"])
        total[1].update(counts["invariants"])
    return total


def line(faults: Counter[str], invariants: Counter[str]) -> str:
    """One line that says it."""
    return (
        f"faults injected: {faults.total():,} of {len(faults)} rows;"
        f" invariants checked: {invariants.total():,} of {len(invariants)} kinds"
    )
