"""Very many jobs, or very large ones, come due at once."""

from __future__ import annotations

import json
import time
from datetime import timedelta

from django_ojs import api, clock
from tests.lab import raw
from tests.lab.cases import Case
from tests.lab.stage import Stage

MASS, SOME = 100_000, 20_000
AT_A_TIME = 1_000
LARGE = 60
ERROR_BYTES, ERRORS = 8_000, 50


def beyond_a_packet(stage: Stage) -> None:
    """60 overdue jobs with a history of 0.4 MB each: together more than a packet."""
    stage.live()
    history = json.dumps([{"type": "lab", "message": "x" * ERROR_BYTES} for _ in range(ERRORS)])
    with raw.session(stage.database.url) as session:
        for _ in range(LARGE):
            made = str(api.enqueue("lab.nobody", queue="nobody", enqueue_ttl=timedelta(seconds=20)).id)
            stage.held_up.append(made)
            session.run(
                "UPDATE django_ojs_job SET errors = %s WHERE id = %s", history, session.id(made)
            )
        # All at one moment, which is that of innocent ones too.
        session.run(
            "UPDATE django_ojs_job SET expires_at = UTC_TIMESTAMP(6) + INTERVAL 3 SECOND,"
            " deadline_at = UTC_TIMESTAMP(6) + INTERVAL 3 SECOND WHERE queue = 'nobody'"
        )
    for after in (2.9, 3.1, 3.5, 4.0, 6.0):
        stage.probe_ttl(after)
    time.sleep(8.0)


def mass(stage: Stage) -> None:
    """100,000 jobs are due at one instant, and enqueue TTLs beside them."""
    stage.live(2)
    far = clock.now("default") + timedelta(hours=1)
    many, seconds = (SOME, 8) if stage.brief else (MASS, 28)
    for _ in range(many // AT_A_TIME):
        api.enqueue_many("lab.nobody", [()] * AT_A_TIME, queue="mass", scheduled_at=far)
    with raw.session(stage.database.url) as session:
        soon = {
            "pg": "now() + interval '2 seconds'",
            "mariadb": "UTC_TIMESTAMP(6) + INTERVAL 2 SECOND",
            "sqlite": "strftime('%Y-%m-%d %H:%M:%f000', 'now', '+2 seconds')",
        }[stage.database.name]
        session.run(f"UPDATE django_ojs_job SET scheduled_at = {soon} WHERE queue = 'mass'")
    # Only now: while that statement is open it may hold their rows, and each look reads past all that
    # it has changed.
    for number in range(seconds - 1):
        stage.probe_ttl(0.5 + number)
    stage.last(seconds)


CASES = [
    Case("60 overdue jobs beyond a packet", beyond_a_packet, databases=("mariadb",)),
    Case("100,000 jobs due at once", mass, rounds=2, alone=True),
]
