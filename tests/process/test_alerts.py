"""Every alert that is shipped fires against the product, scraped by a real Prometheus.

The times of the rules are divided by 20; those of the product are not, so that the counters, which
arrive minute by minute, take most of the time.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from django_ojs import clock
from django_ojs.models import Schedule, Worker
from django_ojs.services import http_workers, prune
from django_ojs.services.reap import reap
from tests.process.tools import Diary, Start, StartWorker, in_state
from tests.support import ROOT, gunicorn, poll
from tests.workload import jobs

pytestmark = [
    pytest.mark.process,
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed"),
]
FASTER = 20
TOKEN = "of-the-developer"
RULES = ROOT / "docs" / "observability" / "alerts.yml"
_UNITS = {"s": 1, "m": 60, "h": 3600}
_SPAN = re.compile(r"(?<![\w.])(\d+)([smh])\b")
_THRESHOLD = re.compile(r"(_seconds(?:\{[^}]*\})?\)* > )(\d+)")


def faster(rules: str) -> str:
    """The rules with ranges, waits and thresholds that are times divided by ``FASTER``."""

    def span(found: re.Match[str]) -> str:
        return f"{int(found[1]) * _UNITS[found[2]] * 1000 // FASTER}ms"

    made = yaml.safe_load(rules)
    for group in made["groups"]:
        for rule in group["rules"]:
            expression = _SPAN.sub(span, rule["expr"])
            rule["expr"] = _THRESHOLD.sub(lambda m: f"{m[1]}{int(m[2]) / FASTER:g}", expression)
            if "for" in rule:
                rule["for"] = _SPAN.sub(span, rule["for"])
    return str(yaml.safe_dump(made))


class Prometheus:
    """A Prometheus on a port of its own, and which alerts have fired."""

    def __init__(self, folder: Path, target: int) -> None:
        folder.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = int(free.getsockname()[1])
        (folder / "rules.yml").write_text(faster(RULES.read_text()))
        scrape = {
            "job_name": "ojs",
            "authorization": {"credentials": TOKEN},
            "static_configs": [{"targets": [f"127.0.0.1:{target}"]}],
        }
        every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        configuration = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": [scrape]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder}/prometheus.yml",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )
        self.fired: set[str] = set()
        poll(self._ready)

    def _ready(self) -> bool:
        assert self._process.poll() is None, "prometheus has ended"
        try:
            return bool(self._get("/api/v1/status/runtimeinfo"))
        except OSError:
            return False

    def look(self) -> set[str]:
        """All alerts that have fired so far."""
        answer = self._get("/api/v1/alerts")
        firing = (one for one in answer["alerts"] if one["state"] == "firing")
        self.fired |= {one["labels"]["alertname"] for one in firing}
        return self.fired

    def value(self, query: str) -> float | None:
        """The value of a query with at most one sample."""
        answer = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": query}))
        samples = answer["result"]
        return float(samples[0]["value"][1]) if samples else None

    def scraped(self) -> bool:
        """Whether the target was scraped; fails with what the last scrape met."""
        targets = self._get("/api/v1/targets")["activeTargets"]
        assert not any(target["lastError"] for target in targets), targets
        return any(target["health"] == "up" for target in targets)

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture
def web(ojs_db: None, tmp_path: Path) -> Iterator[tuple[int, ExitStack]]:
    """The port of a web process, and what closes it."""
    with ExitStack() as running:
        environment = {"OJS_DEV_TOKEN": TOKEN}
        serving = gunicorn("tests.wsgi:application", "/ready", tmp_path / "web", 4, environment)
        yield running.enter_context(serving), running


def test_the_times_of_rules_are_divided() -> None:
    made = {
        rule["alert"]: rule for rule in yaml.safe_load(faster(RULES.read_text()))["groups"][0]["rules"]
    }
    assert made["OJSNobodyReaps"]["for"] == "3000ms"
    assert 'max(ojs_maintenance_age_seconds{task="reap"}) > 6 ' in made["OJSNobodyReaps"]["expr"]
    assert "[45000ms]" in made["OJSFailRate"]["expr"] and "> 0.05" in made["OJSFailRate"]["expr"]
    assert "offset 45000ms" in made["OJSTimeouts"]["expr"]


@pytest.mark.timeout(720)
def test_every_alert_fires_once_it_is_provoked(
    web: tuple[int, ExitStack], worker: StartWorker, manage: Start, diary: Diary, tmp_path: Path
) -> None:
    port, serving = web
    prometheus = Prometheus(tmp_path / "prometheus", port)
    try:
        runs = worker("--queue=default", "--no-maintenance")
        reaps = manage("reap_timeouts", "--loop")
        jobs.echo.using(queue="alone").enqueue(1)
        in_state(jobs.echo.enqueue(1), "completed")
        poll(lambda: prometheus.scraped() and prometheus.value("ojs_workers_active") == 1)
        # As if there were more to prune than somebody asked for.
        gone = [http_workers.seen(name, "token:a", beats=True).pk for name in ("one", "two")]
        past = clock.now("default") - timedelta(days=30)
        Worker.objects.filter(pk__in=gone).update(heartbeat_at=past)
        assert prune.prune(limit=1).counts["workers"] == 1
        once = {"max_attempts": 1}
        in_state(
            jobs.loop.using(timeout=1, grace_period=0, retry=once).enqueue(diary.path), "discarded"
        )
        provoked = {
            "OJSNoWorkerForQueue",
            "OJSQueueWaits",
            "OJSFailRate",
            "OJSTimeouts",
            "OJSPruningBehind",
        }
        until = time.monotonic() + 420
        while not provoked <= prometheus.look():
            assert time.monotonic() < until, provoked - prometheus.fired
            in_state(jobs.raise_text.using(retry=once).enqueue(1), "discarded")
        # The roll-up runs each minute, which is long beside a twentieth of ten minutes.
        assert prometheus.fired - {"OJSCountsLate"} == provoked, "the others have no reason yet"
        runs.end()
        reaps.end()
        jobs.echo.using(queue="alone", enqueue_ttl=1).enqueue(1)
        due = clock.now("default") - timedelta(hours=1)
        Schedule.objects.create(
            name="report", source="http", expression="@daily", type="report", queue="mail", due_at=due
        )
        provoked |= {"OJSNobodyReaps", "OJSDeadlinesMissed", "OJSCountsLate", "OJSScheduleLate"}
        poll(lambda: provoked <= prometheus.look(), 120, every=0.5)
        assert prometheus.fired == provoked
        serving.close()
        provoked.add("OJSMetricsMissing")
        poll(lambda: provoked <= prometheus.look(), 60, every=0.5)
        shipped = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
        assert prometheus.fired == {rule["alert"] for rule in shipped}
    finally:
        prometheus.stop()
    reap()
