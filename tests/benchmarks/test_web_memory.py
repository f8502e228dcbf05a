"""What requests about large rows take: the figures of the script, kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from benchmarks import heavy
from benchmarks.heavy import GOAL, Asked
from tests.http.support import Answer, Api

STATEMENTS = {
    "list of jobs": 8,
    "list of jobs in a state": 6,
    "one job": 3,
    "result": 3,
    "dead letter": 6,
    "figures of the dead letter": 4,
    "events": 10,
    "events of a job": 10,
    "queues": 8,
    "workers": 7,
    "schemas": 7,
    "figures of everything": 8,
    "beat for jobs of others": 9,
    "beat": 12,
    "batch of forged acks": 6,
    "batch of acks": 7,
    "fetch": 14,
}
"""At most, on every database; of fifty rows at a time it is asked how large they are."""


def send(api: Api, asked: Asked) -> Answer:
    return api(asked.method, asked.path, asked.body)


@pytest.mark.slow
@pytest.mark.every_database
@pytest.mark.usefixtures("ojs_db")
@pytest.mark.parametrize("rows", [3, 45])
def test_the_statements_of_a_request_do_not_grow_with_its_rows(rows: int) -> None:
    stored = heavy.store(rows, 10)
    api = Api(stored.token)
    assert api.get("/jobs?limit=1").status == 200, "the token is known from now on"
    made: list[str] = []

    def count(execute: Any, sql: str, *rest: Any) -> Any:
        made.append(sql)
        return execute(sql, *rest)

    found = {}
    for asked in stored.asked:
        made.clear()
        with connection.execute_wrapper(count):
            answer = send(api, asked)
        assert answer.status == 200, answer.raw
        found[asked.name] = len([sql for sql in made if "SAVEPOINT" not in sql])
    over = {name: number for name, number in found.items() if number > STATEMENTS[name]}
    assert (over, found.keys()) == ({}, STATEMENTS.keys())


@pytest.mark.long
@pytest.mark.every_database
@pytest.mark.usefixtures("ojs_db")
def test_no_request_holds_more_than_the_goal() -> None:
    """With 40 rows of a megabyte, which are more than fit; the script has 300."""
    stored = heavy.store(40, 1_000_000)
    api = Api(stored.token)
    assert api.get("/jobs?limit=1").status == 200
    held = {}
    for asked in stored.asked:
        tracemalloc.start()
        try:
            answer = send(api, asked)
            held[asked.name] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert answer.status == 200, answer.raw[:200]
    assert {name: size for name, size in held.items() if size > GOAL} == {}


@pytest.mark.tool
@pytest.mark.process
def test_the_script_prints_every_request(tmp_path: Path) -> None:
    url, figures = f"sqlite:///{tmp_path}/db.sqlite3", tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.web_memory", "--rows", "3", "--size", "100"]
    done = subprocess.run(
        [*command, "--database-url", url, "--json", str(figures)],
        env={k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "MORE THAN THE GOAL" not in done.stdout
    assert "status" not in done.stdout
    found = json.loads(figures.read_text())["requests"]
    assert [figure["name"] for figure in found] == list(STATEMENTS)
    assert list(tmp_path.glob("*.sqlite3")) == []
