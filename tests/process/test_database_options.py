"""Options of Django for the jobs' database: each works, or a system check refuses it by name.

The table is in docs/howto/deploy.md.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.process.tools import Diary, Flag, Start, StartWorker, in_state
from tests.support import ROOT, not_none
from tests.workload import jobs

pytestmark = [pytest.mark.process, pytest.mark.every_database]

OPTIONS: dict[str, dict[str, Any]] = {
    "server_side_binding": {"OPTIONS": {"server_side_binding": True}},
    "TIME_ZONE": {"TIME_ZONE": "America/New_York"},
    "AUTOCOMMIT": {"AUTOCOMMIT": False},
}
WORKS = "works"
ANSWERS = {
    "server_side_binding": {"postgresql": WORKS},
    "TIME_ZONE": {"postgresql": WORKS, "mysql": "ojs.E011", "sqlite": "ojs.E011"},
    "AUTOCOMMIT": {"postgresql": "ojs.E013", "mysql": "ojs.E013", "sqlite": "ojs.E013"},
}
"""What is promised. Only the driver of PostgreSQL has ``server_side_binding``."""


def given(option: str) -> dict[str, str]:
    """The environment of a process with the option."""
    return {
        "DJANGO_SETTINGS_MODULE": "tests.settings_options",
        "OJS_TEST_OPTIONS": json.dumps(OPTIONS[option]),
    }


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_an_option_that_would_break_promises_is_refused(
    manage: Start, vendor: str, option: str
) -> None:
    identity = ANSWERS[option].get(vendor, WORKS)
    if identity == WORKS:
        pytest.skip(f"{option} on {vendor}: works, or is not there")
    for command in (("check",), ("runworker", "--drain"), ("reap_timeouts",), ("ojs", "status")):
        refused = manage(*command, **given(option))
        assert refused.wait(30) != 0
        assert f"({identity})" in refused.stderr
        assert option in refused.stderr


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_an_option_works(
    manage: Start, worker: StartWorker, diary: Diary, flag: Flag, vendor: str, option: str
) -> None:
    if ANSWERS[option].get(vendor) != WORKS:
        pytest.skip(f"{option} on {vendor}: refused, or not there")
    echoes = [jobs.echo.enqueue(number) for number in range(20)]
    held = jobs.hold.using(timeout=60, heartbeat_timeout=2).enqueue(diary.path, flag.path)
    late = jobs.loop.using(timeout=1, grace_period=1, retry={"max_attempts": 1}).enqueue(diary.path)
    overdue = jobs.echo.using(enqueue_ttl=2, queue="nobody").enqueue(0)
    planned = jobs.echo.using(delay=1).enqueue("planned")
    runner = worker("--concurrency=3", "--queue=default", **given(option))
    for job in (*echoes, planned):
        assert in_state(job, "completed").attempt == 1
    assert not_none(in_state(late, "discarded").error)["type"] == "timeout"
    flag.set()
    in_state(held, "completed")
    in_state(overdue, "discarded")
    runner.end()
    for command in (("reap_timeouts",), ("ojs", "status"), ("ojs", "check"), ("ojs", "prune")):
        ended = manage(*command, **given(option))
        assert ended.wait(30) == 0, ended.stderr
        assert "Traceback" not in ended.stderr
    assert runner.stderr.count("Traceback") <= 1, "but for that of the job which overran"


def test_the_table_of_the_documents_is_this_one() -> None:
    text = (ROOT / "docs" / "howto" / "deploy.md").read_text()
    rows = re.findall(r"^\| `([\w\[\]\"]+)`(?: \S+)? \| (.+) \| (.+) \| (.+) \|$", text, re.MULTILINE)
    table = {re.sub(r'OPTIONS\["(\w+)"\]', r"\1", name): cells for name, *cells in rows}
    vendors = ("postgresql", "mysql", "sqlite")
    for option, answers in ANSWERS.items():
        told = [cell.strip("`") for cell in table[option]]
        assert told == [answers.get(vendor, "does not exist") for vendor in vendors], option
