"""Several processes look after the same schedules by one clock: ``python -m tests.races.schedules``.

Given the number of a process, it reads moments from its input, a line each, sets its clock to them,
handles what is due, and answers with a line. Between two answers all processes look at once.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

import django

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "America/Santiago")
EXPRESSIONS = (
    *("30 2 * * *", "*/15 * * * *", "0 * * * *", "0 */2 * * *", "15,45 1-3 * * *", "0 0 * * *"),
    *("*/30 2 * * *", "0 3 * * sun", "@every 45m", "5 */3 * * *"),
)
COUNT = len(ZONES) * len(EXPRESSIONS)


def names() -> list[tuple[str, str, str]]:
    """Name, expression and zone of each schedule."""
    return [
        (f"s{number:02}", expression, zone)
        for number, (zone, expression) in enumerate((z, e) for z in ZONES for e in EXPRESSIONS)
    ]


def main() -> int:
    """Handle what is due at each moment that is read."""
    django.setup()
    from django_ojs import clock
    from django_ojs.services.schedules import fire

    frozen, apart = clock.FrozenClock(), timedelta(milliseconds=int(sys.argv[1]))
    with clock.using_clock(frozen):
        for line in sys.stdin:
            frozen.time = datetime.fromisoformat(line.strip()) + apart
            print(fire.fire_due(using="default"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
