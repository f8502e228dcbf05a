"""What the machine chooses from: few values each, so that clocks meet and orders matter."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.model.lives import Policy

QUEUES = ("q1", "q2")
WORKERS = ("w1", "w2")
TYPE = "model.job"

POLICIES = (
    Policy(),
    Policy(max_attempts=0),
    Policy(max_attempts=1, dead_letter=True),
    Policy(max_attempts=2, initial_ms=4000, strategy="constant", jitter=False),
    Policy(max_attempts=3, initial_ms=10_000, most_ms=12_000, dead_letter=True),
    Policy(max_attempts=4, initial_ms=2000, strategy="linear", never=("bad.*", "timeout")),
    Policy(max_attempts=2, initial_ms=3000, strategy="polynomial", never=("stalled",)),
)


KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"timeout": 10, "grace_period": 0},
    {"timeout": 10, "grace_period": 5, "total_timeout": 40},
    {"timeout": 30, "heartbeat_timeout": 20},
    {"timeout": 30, "total_timeout": 40},
    {"total_timeout": 40},
    {"total_timeout": 90, "heartbeat_timeout": 20, "enqueue_ttl": 60},
    {"enqueue_ttl": 15},
    {"attempt_ttl": 12, "timeout": 10},
    {"attempt_ttl": 20, "delay": 8, "visibility_timeout": 12},
    {"pending": True, "attempt_ttl": 15, "enqueue_ttl": 60},
    {"expires_at": 25},
    {"expires_at": 25, "total_timeout": 90, "visibility_timeout": 12},
    {"visibility_timeout": 12},
    {"visibility_timeout": 12, "heartbeat_timeout": 20, "timeout": 10},
    {"delay": 8},
    {"delay": 8, "enqueue_ttl": 15, "timeout": 10},
    {"delay": 8, "total_timeout": 40, "heartbeat_timeout": 20},
    {"pending": True, "enqueue_ttl": 60},
    {"pending": True, "delay": 8, "total_timeout": 90},
)
"""Jobs by their limits, in seconds."""
FIRST = {"timeout": 30, "total_timeout": 40, "queue": "q1", "priority": 10, "policy": POLICIES[0]}
"""The job that every example begins with."""
OPTIONS = st.builds(
    lambda kind, queue, priority, policy: {
        **kind,
        "queue": queue,
        "priority": priority,
        "policy": policy,
    },
    st.sampled_from(KINDS),
    st.sampled_from(QUEUES),
    st.sampled_from([0, 0, 5, -5]),
    st.sampled_from(POLICIES),
)
PICKS = st.integers(0, 11)
"""Which of those that there are, counted round."""
REPORTS = st.sampled_from(["ack", "ack", "fail", "fail", "requeue", "release"])
FAILURES = st.sampled_from(
    [
        {},
        {},
        {"error": "bad.Input"},
        {"error": "timeout"},
        {"error": "shutdown"},
        {"error": "worker_crash"},
        {"retryable": False},
        {"directive": "RETRY", "error": "bad.Input"},
        {"directive": "DISCARD"},
        {"directive": "DEAD_LETTER"},
        {"directive": "FAIL"},
        {"after": 7000},
    ]
)
EVIDENCES = ("lease", "bare", "bare", "worker", "attempt", "other worker", "both")
EVIDENCE = st.sampled_from(EVIDENCES)
VERBS = st.sampled_from(["cancel", "cancel", "retry", "retry", "discard", "activate", "purge"])
SECONDS = st.sampled_from([0.25, 1, 3, 8, 12, 14, 20, 33])
LOOKS = st.sampled_from(["loop", "loop", "single run", "promotion", "nobody"])
SIGNS = st.sampled_from(
    ["beat", "beat", "beat, seen", "progress", "told progress", "checkpoint", "saved checkpoint"]
)
BY_SOMEBODY = ["requeue", "fail", "fail, late", "fail, late", "cancel", "fail, cancel"]
LOSSES = st.sampled_from(BY_SOMEBODY)
BEGINNINGS = st.sampled_from([*BY_SOMEBODY, "time", "time", "time", "time"])
"""How the first lease is lost."""
SIGNS_TOO_LATE = ("beat", "checkpoint", "saved checkpoint")
LATE = st.sampled_from([*EVIDENCES, "lease", *["settle"] * 4, *SIGNS_TOO_LATE])
"""What the holder of a lost lease still sends: a report with some evidence, or under its lease."""
DICE = st.sampled_from([0.0, 0.25, 0.5, 0.999])
