"""The end of a soak: a table for people, a record for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.soak import plan
from tests.soak.oracle import Verdict, percentile

SHOWN = 5


def table(verdict: Verdict, settings: Mapping[str, Any]) -> str:
    """Figures, then every rule with how often it was broken, which must be never."""
    lines = [f"{name:<28}{value}" for name, value in _figures(verdict)]
    lines.append("must be 0:")
    for rule, found in verdict.wrong.items():
        lines.append(f"  {rule:<30}{len(found)}")
        lines += [f"    {example}" for example in found[:SHOWN]]
    said = " ".join(f"SOAK_{name.upper()}={value}" for name, value in settings.items() if value)
    lines.append(f"{'PASSED' if verdict.passed else 'FAILED'}  make soak {said}")
    return "\n".join(lines)


def _figures(verdict: Verdict) -> Iterator[tuple[str, str]]:
    jobs = verdict.jobs
    yield "enqueued (acknowledged)", str(jobs["enqueued"])
    yield "completed", str(jobs["completed"])
    yield "discarded", f"{jobs['discarded']}{_by(verdict.discarded)}"
    yield "cancelled", str(jobs["cancelled"])
    yield "workflows", f"{verdict.workflows.total()}{_by(verdict.workflows)}"
    yield "attempts", f"{verdict.outcomes.total()}{_by(verdict.outcomes)}"
    yield "reports refused", str(verdict.refused)
    yield "duplicate executions", f"{verdict.duplicates.total()}{_by(verdict.duplicates)}"
    yield "faults injected", f"{verdict.faults.total()}{_by(verdict.faults)}"
    rows = {row for kind in verdict.faults for row in plan.ROWS.get(kind, ())}
    yield "rows of the catalogue", " ".join(sorted(rows, key=lambda row: int(row[1:])))
    if verdict.skipped:
        yield "faults not possible then", f"{verdict.skipped.total()}{_by(verdict.skipped)}"
    if verdict.left:
        yield "ended by themselves", f"{verdict.left.total()}{_by(verdict.left)}"
    yield "worker killed -> next start", _times(verdict.recovery)
    yield "executor dead -> recorded", _times(verdict.crashes)


def record(verdict: Verdict, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "settings": dict(settings),
        "passed": verdict.passed,
        "jobs": verdict.jobs,
        "discarded": verdict.discarded,
        "workflows": verdict.workflows,
        "attempts": verdict.outcomes,
        "reports_refused": verdict.refused,
        "duplicates": verdict.duplicates,
        "faults": verdict.faults,
        "not_injected": verdict.skipped,
        "ended_by_themselves": verdict.left,
        "recovery_seconds": {
            "p50": percentile(verdict.recovery, 0.5),
            "p99": percentile(verdict.recovery, 0.99),
            "count": len(verdict.recovery),
        },
        "crash_seconds": {
            "p50": percentile(verdict.crashes, 0.5),
            "p99": percentile(verdict.crashes, 0.99),
            "count": len(verdict.crashes),
        },
        "wrong": verdict.wrong,
    }


def _by(counts: Mapping[str, int]) -> str:
    if not counts:
        return ""
    return " (" + ", ".join(f"{name} {n}" for name, n in sorted(counts.items())) + ")"


def _times(values: list[float]) -> str:
    if not values:
        return "none"
    half, most = percentile(values, 0.5), percentile(values, 0.99)
    return f"p50 {half:.2f} s, p99 {most:.2f} s, of {len(values)}"
