"""Real work: long and short jobs together, and jobs over HTTP: P9 and P10."""

from __future__ import annotations

from benchmarks.goals.checks import Figure, Goal, Limit, Ratio
from benchmarks.goals.scale import Scale
from benchmarks.measuring import Measure


def goals(scale: Scale) -> list[Goal]:
    """The two."""

    def mixed(name: str, unit: str, *, prefetch: bool = True) -> Figure:
        options = (("seconds", scale.mixed_seconds),)
        settings = () if prefetch else (("PREFETCH_MS", 0),)
        return Figure(Measure("ojs", "mixed", options=options, ojs=settings), name, unit)

    def http(workload: str, name: str, unit: str) -> Figure:
        options = (("seconds", scale.http_seconds),)
        return Figure(Measure("ojs.http", workload, options=options), name, unit)

    def create(name: str) -> Figure:
        return http("http_create", name, "requests/s")

    def fetch(name: str) -> Figure:
        return http("http_work", name, "jobs/s")

    return [
        Goal(
            "P9",
            "one job in a hundred takes 2 s, the others 1 ms; concurrency 4, about two thirds busy",
            [
                Ratio(
                    "wait of short jobs, p99", mixed("short_p99", "ms"), "no prefetch",
                    mixed("short_p99", "ms", prefetch=False), most=1.25,
                ),
                Limit("longest claimed and not begun", mixed("unstarted_most", "ms"), most=250),
                Ratio(
                    "wait of short jobs, p50", mixed("short_p50", "ms"), "no prefetch",
                    mixed("short_p50", "ms", prefetch=False),
                ),
                Limit("claims given back unbegun", mixed("released", "per 1,000 jobs")),
            ],
        ),
        Goal(
            "P10",
            "HTTP: gunicorn with 4 threads a process, 8 connections, PostgreSQL",
            [
                Ratio(
                    "POST /ojs/v1/jobs", create("rate"), "a bare DRF create", create("bare"),
                    least=2.0,
                ),
                Ratio(
                    "fetch 10 and ack them", fetch("rate"), "fetch and ack one by one",
                    fetch("single"), least=3.0,
                ),
                Limit("fetch 10 and ack them", fetch("rate"), least=2000),
            ],
        ),
    ]  # fmt: skip
