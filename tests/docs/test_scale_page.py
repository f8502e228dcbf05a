"""The ladder and the pages of its rungs: commands are run or marked, settings hold, the arithmetic is
right.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from django.core.management import load_command_class

from tests.support import ROOT

PAGE = ROOT / "docs/howto/scale.md"
TEXT = PAGE.read_text()
RUNGS = ("scale", "failover", "replica", "several-databases", "distributed-sql")
_BOX = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```\n(?=\n?((?:[^\n]+\n?)*))", re.MULTILINE | re.DOTALL)
"""A box, and the paragraph below it."""


def rows(name: str) -> dict[str, str]:
    """A table of two or more columns between its marks, by the first."""
    (text,) = re.findall(rf"<!-- {name} -->\n(.*?)<!-- end of {name} -->", TEXT, re.DOTALL)
    cells = [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]
    return {one[0]: one[1] for one in cells}


def number(text: str) -> float:
    """The first number of a cell."""
    return float(re.findall(r"[\d,]*\.?\d+", text)[0].replace(",", ""))


@pytest.mark.parametrize("name", RUNGS)
def test_what_is_not_run_in_a_new_project_says_where_it_is_run(name: str) -> None:
    text_of_page = (PAGE.parent / f"{name}.md").read_text()
    boxes = _BOX.findall(text_of_page)
    assert len(boxes) == len(re.findall(r"^```\w", text_of_page, re.MULTILINE))
    for language, word, text, after in boxes:
        if word or language == "python":
            # Run, or read as settings, by tests/docs/test_snippets.py.
            continue
        assert "Run by " in after or "not run here" in after, text
        for path in re.findall(r"`(tests/[\w/]+\.py)`", after):
            assert Path(ROOT, path).exists(), path


def test_the_constants_are_those_of_the_page_about_performance() -> None:
    """Nearly: it is written anew more often than this one."""
    page, here = (ROOT / "docs/performance.md").read_text(), rows("constants")
    measured = {
        "a no-op job: processor time": r"takes about (\d+) microseconds of processor",
        "drain by one worker, two processors": r"\| P1 \| drain, PostgreSQL, defaults \| ([\d,]+)",
        "enqueue one by one, a connection": r"\| P3 \| enqueue one \| ([\d,]+)",
        "an idle worker: memory": r"\| P13 \| memory, idle, PostgreSQL \| ([\d.]+)",
        "an idle worker: processor": r"\| P13 \| processor, idle, PostgreSQL \| ([\d.]+)",
    }
    for name, pattern in measured.items():
        found = number(re.findall(pattern, page)[0])
        assert number(here[name]) == pytest.approx(found, rel=0.35), name


def test_the_arithmetic_is_right() -> None:
    constant = {name: number(text) for name, text in rows("constants").items()}
    workers, jobs = rows("workers"), rows("jobs")
    looks = 1000 * constant["an idle worker: looks"]
    server_ms = looks * constant["a look: processor of the server"]
    server_ms += 200 * constant["a worker's report every 5 s: processor of the server"]
    a_second = 100e6 / 86_400
    log_kb = constant["write-ahead log of a job, from enqueue to end"]
    disk_kb = constant["disk of a finished job, with its attempt and all indexes"]
    expected = {
        workers["memory, on all hosts together"]: constant["an idle worker: memory"] * 1000 / 1024,
        workers["their own processors"]: constant["an idle worker: processor"] / 100 * 1000,
        workers["looks at the server"]: constant["an idle worker: looks"] * 1000,
        workers["processors of the server for looks and reports"]: server_ms / 1000,
        jobs["a second, on average"]: a_second,
        jobs["processors for the machinery of no-op jobs, worker and server"]: a_second
        * constant["a no-op job: processor time"]
        / 1e6,
        jobs["workers that could drain it"].removeprefix("1 of "): constant[
            "drain by one worker, two processors"
        ]
        / a_second,
        jobs["connections that enqueue one by one"]: a_second
        / constant["enqueue one by one, a connection"],
        jobs["write-ahead log"]: 100e6 * log_kb / 1e6,
        jobs["write-ahead log"].partition(", ")[2]: a_second * log_kb / 1e3,
        jobs["disk, `RETENTION` of 1 day"]: 100e6 * disk_kb / 1e6,
        jobs["disk, `RETENTION` of 7 days, the default"]: 700e6 * disk_kb / 1e6,
        jobs["pruning"]: a_second / constant["pruning, in one process"] * 100,
    }
    for shown, value in expected.items():
        assert number(shown) == pytest.approx(value, rel=0.06), (shown, value)


def test_commands_in_sentences_are_understood() -> None:
    texts = [(PAGE.parent / f"{name}.md").read_text() for name in RUNGS]
    lines = re.findall(r"`((?:ojs|runworker|reap_timeouts) [^`]*--[^`]*)`", "".join(texts))
    assert len(lines) > 2
    for line in lines:
        command, *words = shlex.split(line)
        parser = load_command_class("django_ojs", command).create_parser("manage.py", command)
        assert parser.parse_args(words), line
