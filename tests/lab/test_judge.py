"""The judge of the lab on given rows and effects; nothing here was executed."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.lab import effects, raw, report
from tests.lab import judge as judging
from tests.lab import pulse as pulsing
from tests.lab.effects import Effect
from tests.lab.judge import CALM, HEARTBEAT, REPORT, Attempt, Block, Figures, Probe, Watch, left
from tests.lab.pulse import Pulse
from tests.lab.report import Result
from tests.support import ROOT, poll

pytestmark = pytest.mark.tool

ONE, OTHER = "one", "other"


def done(job: str, attempt: int = 1, moment: float = 10.0) -> Effect:
    return Effect(job, attempt, "done", 1, moment)


def watched(**seen: dict[str, float]) -> Watch:
    watch = Watch("sqlite:////nowhere", list)
    watch.seen = seen
    watch.left_active = {job: max(states.values()) for job, states in seen.items()}
    return watch


def judged(
    *effects: Effect,
    states: dict[str, str] | None = None,
    attempts: list[Attempt] | None = None,
    probes: list[Probe] | None = None,
    blocks: list[Block] | None = None,
    cancelled: list[str] | None = None,
    stalls: list[Block] | None = None,
    excuse: bool = True,
    watch: Watch | None = None,
) -> Figures:
    """The verdict on one living job."""
    return judging.judge(
        states={ONE: "completed"} if states is None else states,
        attempts=attempts or [Attempt(ONE, "completed")],
        done=effects,
        living=[ONE],
        cancelled=cancelled or [],
        probes=probes or [],
        blocks=blocks or [],
        stalls=stalls or [],
        excuse=excuse,
        watch=watch or watched(),
    )


def test_it_imports_nothing_of_the_product() -> None:
    seen = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, tests.lab.judge; print([m for m in sys.modules if m.startswith('django')])",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert seen.stdout == "[]\n"


def test_nothing_wrong_is_good() -> None:
    found = judged(done(ONE))
    assert (found.stalls, found.repeated, found.lost, found.good) == (0, 0, 0, True)


@pytest.mark.parametrize("outcome", ["stalled", "timeout", "visibility_timeout", "worker_crash"])
def test_a_living_job_that_lost_an_attempt_is_found(outcome: str) -> None:
    found = judged(done(ONE), attempts=[Attempt(ONE, outcome), Attempt(ONE, "completed")])
    assert (found.stalls, found.repeated, found.good) == (1, 0, False)


def test_a_claim_that_was_given_back_is_no_loss() -> None:
    assert judged(done(ONE), attempts=[Attempt(ONE, "released"), Attempt(ONE, "completed")]).good


def test_an_effect_that_came_again_is_counted() -> None:
    found = judged(done(ONE), done(ONE, 2), done(ONE, 3))
    assert (found.repeated, found.good) == (2, False)


@pytest.mark.parametrize("state", ["active", "discarded", "retryable"])
def test_a_job_that_did_not_complete_is_lost(state: str) -> None:
    assert judged(done(ONE), states={ONE: state}).lost == 1


def test_a_job_without_its_effect_is_lost_unless_it_was_cancelled() -> None:
    assert judged().lost == 1
    found = judged(states={ONE: "cancelled"}, attempts=[Attempt(ONE, "cancelled")], cancelled=[ONE])
    assert found.good


@pytest.mark.parametrize(
    ("kind", "due", "blocks", "leaves"),
    [
        ("ttl", 5.0, [], 5.0),
        ("ttl", 5.0, [Block(6.5, 9.0)], 5.0),
        ("ttl", 5.0, [Block(5.5, 9.0)], 9.0),
        ("ttl", 5.0, [Block(3.0, 9.0)], 9.0),
        ("ttl", 5.0, [Block(3.0, 4.0)], 5.0),
        ("overrun", 5.0, [Block(3.0, 9.0)], 9.0 + REPORT),
        ("silent", 4.0, [Block(2.0, 3.0)], 3.0 + HEARTBEAT),
        ("silent", 4.0, [Block(-2.0, -1.0)], 4.0),
    ],
)
def test_the_deadline_that_the_rule_leaves(
    kind: str, due: float, blocks: list[Block], leaves: float
) -> None:
    assert left(Probe(OTHER, kind, 0.0, due), blocks) == leaves


@pytest.mark.parametrize(
    ("kind", "step", "leaves"),
    [("silent", 3.0, 3.0 + CALM), ("silent", -1.5, 4.5), ("silent", 4.5, 4.0), ("ttl", 3.0, 4.0)],
)
def test_no_silence_is_due_for_a_while_after_a_step(kind: str, step: float, leaves: float) -> None:
    assert left(Probe(OTHER, kind, 0.0, 4.0), [], [step]) == leaves


@pytest.mark.parametrize(
    ("kind", "stalls", "blocks", "excused"),
    [
        ("ttl", [], [], False),
        ("ttl", [Block(5.5, 9.0)], [], True),
        ("ttl", [Block(4.5, 6.5), Block(6.0, 7.5), Block(8.5, 9.0)], [], True),
        ("ttl", [Block(6.0, 8.0)], [], False),
        ("ttl", [Block(0.0, 4.0)], [], False),
        ("silent", [Block(0.5, 4.0)], [], True),
        ("silent", [Block(-3.0, 0.5)], [], False),
        ("ttl", [Block(5.5, 9.0)], [Block(7.0, 9.1)], False),
    ],
)
def test_lateness_is_no_fault_of_ours_as_far_as_the_machine_stood_still(
    kind: str, stalls: list[Block], blocks: list[Block], excused: bool
) -> None:
    probe = Probe(OTHER, kind, 0.0, 5.0)
    left_at = 9.25 if not blocks else 13.5
    seen = watched(other={"active": 0.1, "discarded": left_at})
    found = judged(done(ONE), probes=[probe], watch=seen, stalls=stalls, blocks=blocks)
    assert found.good is excused
    assert bool(found.excused) is excused is not bool(found.late)
    if excused:
        assert "4.25 s late, and the machine stood still" in report.table([Result("one", "pg", found)])


def test_without_an_excuse_it_only_says_for_how_long_the_machine_stood_still() -> None:
    seen = watched(other={"active": 0.1, "discarded": 9.25})
    probe = Probe(OTHER, "ttl", 0.0, 5.0)
    found = judged(done(ONE), probes=[probe], watch=seen, stalls=[Block(5.5, 9.0)], excuse=False)
    assert (found.good, found.excused) == (False, [])
    assert found.late == ["ttl other was ended 4.25 s late, and the machine stood still for 3.50 s"]


def test_the_watch_reads_the_jobs_it_is_asked_for_by_their_key(tmp_path: Path) -> None:
    url, (one, other) = f"sqlite:///{tmp_path}/lab", (str(uuid4()), str(uuid4()))
    statements: list[str] = []
    with raw.session(url) as session:
        session.run(
            "CREATE TABLE django_ojs_job (id char(32) PRIMARY KEY, state, lease_id, heartbeat_at)"
        )
        for job in (one, other):
            session.run("INSERT INTO django_ojs_job VALUES (%s, 'active', NULL, NULL)", session.id(job))
        session._connection.set_trace_callback(statements.append)
        asked: list[str] = []
        watch = Watch(url, lambda: asked)
        watch.look(session)
        assert watch.seen == {}
        asked.append(one)
        watch.look(session)
        session.run("UPDATE django_ojs_job SET state = 'completed'")
        watch.look(session)
        assert list(watch.seen) == list(watch.left_active) == [one]
        assert list(watch.seen[one]) == ["active", "completed"]
        [(*_, plan)] = session.run(f"EXPLAIN QUERY PLAN {statements[-1]}")
    assert plan.startswith("SEARCH django_ojs_job USING INDEX"), plan


def test_a_pulse_notices_processors_without_time_and_writes_that_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/lab"
    ticks = itertools.count(step=1000)
    monkeypatch.setattr(pulsing, "processors", lambda: (0, next(ticks)))
    busy = Pulse(url)
    busy.start()
    poll(lambda: busy.stalls)
    busy.stop()
    monkeypatch.setattr(pulsing, "processors", lambda: (now := next(ticks), now))
    calm = Pulse(url)
    with raw.holding(f"{url}-pulse", "DELETE FROM lab_pulse"):
        calm.start()
        began = effects.now()
        poll(lambda: effects.now() > began + 1)
    poll(lambda: calm.stalls)
    calm.stop()
    assert calm.stalls[0].start <= began
    assert calm.stalls[0].end >= began + 1


def test_lateness_is_against_what_is_left() -> None:
    probe = Probe(OTHER, "ttl", 0.0, 5.0)
    seen = watched(other={"available": 0.1, "discarded": 9.25})
    found = judged(done(ONE), probes=[probe], watch=seen)
    assert (found.lateness, found.good) == (4.25, False)
    found = judged(done(ONE), probes=[probe], watch=seen, blocks=[Block(3.0, 9.0)])
    assert (found.lateness, found.good) == (0.25, True)


def test_a_deadline_before_its_time_or_never_is_wrong() -> None:
    probe = Probe(OTHER, "silent", 0.0, 4.0)
    early = judged(done(ONE), probes=[probe], watch=watched(other={"active": 0.1, "retryable": 3.0}))
    assert (early.lost, early.good) == (0, False)
    slow = Probe(OTHER, "silent", -1.0, 4.0, making=1.0)
    assert judged(done(ONE), probes=[slow], watch=watched(other={"active": 0.1, "retryable": 3.0})).good
    never = judged(done(ONE), probes=[probe])
    assert (never.lost, never.lateness) == (1, None)


def test_a_beat_that_goes_backwards_is_wrong() -> None:
    watch = watched()
    watch.backwards = [ONE]
    assert not judged(done(ONE), watch=watch).good


def test_the_table_says_what_failed_and_what_was_skipped() -> None:
    results = [
        Result("good one", "pg", Figures(rounds=5, lateness=0.2)),
        Result("bad one", "pg", Figures(rounds=5, stalls=1, wrong=["somebody stalled"])),
        Result("absent", "mariadb", Figures(), skipped="mariadbd: not installed"),
    ]
    text = report.table(results)
    assert "3 cases" not in text
    assert "2 cases, 1 failed, 1 skipped" in text
    assert "bad one (pg): somebody stalled" in text
    assert "skipped: mariadbd: not installed" in text
    assert report.restored(report.record(results)) == results
