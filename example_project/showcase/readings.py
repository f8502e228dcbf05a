"""The temperature files, as rows and as a table of months."""

from __future__ import annotations

import calendar
import csv
from datetime import datetime, timedelta, timezone
from pathlib import Path
from statistics import mean

from example_project.showcase.models import Reading

DATA = Path(__file__).parent / "data"
FILES = {"Seattle": "seattle-temps.csv", "San Francisco": "sf-temps.csv"}
PACIFIC = timezone(timedelta(hours=-8))
"""The files give standard time all year round: 02:00 on the day the clocks went forward is there."""
_MONTHS = list(calendar.month_name)[1:]


def read(city: str) -> list[Reading]:
    """All rows of a city's file, unsaved, in the order of the file. Raises ``KeyError``."""
    with open(DATA / FILES[city], newline="", encoding="utf-8") as lines:
        return [
            Reading(
                city=city,
                # One file writes seconds and the other does not.
                at=datetime.strptime(row["date"][:16], "%Y/%m/%d %H:%M").replace(tzinfo=PACIFIC),
                celsius=round((float(row["temp"]) - 32) / 1.8, 2),
            )
            for row in csv.DictReader(lines)
        ]


def expected() -> int:
    """How many rows all files have together."""
    return sum(len(read(city)) for city in FILES)


def _months() -> list[tuple[tuple[str, int], list[float]]]:
    """What was measured in each month, by city and month, in order."""
    # Grouped here: MariaDB converts time zones only where an administrator has loaded their tables.
    months: dict[tuple[str, int], list[float]] = {}
    found = Reading.objects.values_list("city", "at", "celsius")
    for city, at, celsius in found.iterator(chunk_size=5000):
        months.setdefault((city, at.astimezone(PACIFIC).month), []).append(celsius)
    return sorted(months.items())


def monthly_means() -> dict[str, list[float]]:
    """By city, the mean of each month from January on."""
    means: dict[str, list[float]] = {}
    for (city, _), values in _months():
        means.setdefault(city, []).append(round(mean(values), 1))
    return means


def report() -> str:
    """The months of every city in the database, as Markdown."""
    lines = ["# Temperatures"]
    last = None
    for (city, month), values in _months():
        if city != last:
            last = city
            lines += ["", f"## {city}", "", "| Month | Mean °C | Low | High | Readings |"]
            lines += ["| --- | ---: | ---: | ---: | ---: |"]
        lines.append(
            f"| {_MONTHS[month - 1]} | {mean(values):.1f} | {min(values):.1f} "
            f"| {max(values):.1f} | {len(values)} |"
        )
    return "\n".join(lines) + "\n"
