"""The races that have a name, each told step by step."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from itertools import takewhile

import pytest

from django_ojs import clock
from django_ojs.domain.lease_claim import LeaseClaim
from django_ojs.models import Attempt, Event, Job
from django_ojs.services import operate, promote, queues, reap, settle, verbs
from django_ojs.services.settle import Report
from django_ojs.store import invariants
from tests.faults import tally
from tests.races.scenes import (
    RETRY,
    Scene,
    active,
    dead,
    last_attempt,
    nothing,
    overdue,
    silent,
    taken_over,
)
from tests.races.stepping import Player, Work, interleave
from tests.services.support import ack, held, make, now_stored, take

pytestmark = pytest.mark.every_database

Players = tuple[Player, Player]


@pytest.fixture(autouse=True)
def sound(players: Players, frozen: clock.FrozenClock) -> object:
    """Whatever was played, the invariants hold at its end."""
    yield
    assert not invariants.check(now=frozen.time, slack=timedelta(minutes=1), using="default")
    tally.checked(*invariants.RULES)


def before_the_lock(player: Player, work: Work) -> list[int]:
    """The points at which a piece of work has looked at most, played for that on a like scene."""
    player.run(work)
    return [point.number for point in takewhile(lambda point: not point.open, player.points)]


def reap_all() -> int:
    """How many jobs a pass of the reaper ended."""
    return sum(reap.reap().counts.values())


def taken_again(scene: Scene) -> Job:
    """Reaped, due again, and claimed by somebody else."""
    reap.reap()
    if scene.job.max_attempts == 1:
        operate.retry_dead([scene.job.id])
    else:
        scene.time.advance(11)
        promote.promote()
    (job,) = take(queues=[scene.job.queue], worker="w2")
    return Job.objects.get(pk=job.id)


@pytest.mark.fault("F4", "F56")
@pytest.mark.parametrize("read", [False, True], ids=["by its record", "by the row"])
def test_claim_reap_return(players: Players, frozen: clock.FrozenClock, read: bool) -> None:
    """A worker decides to acknowledge, sleeps, and comes back when somebody else has the job."""
    scene = silent(frozen)
    said, _ = interleave(
        players[0],
        partial(scene.report, Report.ACK, scene.lease, read=read),
        0,
        players[1],
        partial(taken_again, scene),
    )
    assert said == "lost"
    job = now_stored(scene.job)
    assert (job.state, job.worker_id, job.attempt, job.result) == ("active", "w2", 2, None)
    assert [settled.verdict for settled in ack(job)] == ["settled"]
    first, second = Attempt.objects.order_by("lease_seq")
    assert first.late_report is not None
    assert (first.outcome, first.late_report["report"], second.outcome) == (
        "stalled",
        "ack",
        "completed",
    )


@pytest.mark.fault("F65")
@pytest.mark.parametrize("read", [False, True], ids=["by its record", "by the row"])
def test_the_same_again_through_a_manual_retry(
    players: Players, frozen: clock.FrozenClock, read: bool
) -> None:
    """ABA: state, attempt and worker are what they were; only the lease is another one."""
    scene = last_attempt(frozen)

    def again() -> None:
        reap.reap()
        operate.retry_dead([scene.job.id])
        take(queues=[scene.job.queue], worker=str(scene.job.worker_id))

    said, _ = interleave(
        players[0], partial(scene.report, Report.ACK, scene.lease, read=read), 0, players[1], again
    )
    assert said == "lost"
    job = now_stored(scene.job)
    assert (job.state, job.attempt, job.worker_id) == ("active", 1, scene.job.worker_id)
    assert job.lease_id != scene.job.lease_id
    assert job.lease_seq == 2


@pytest.mark.fault("F62", "F63")
@pytest.mark.parametrize(
    "lease_claim",
    [
        LeaseClaim(worker_id="w1", attempt=1),
        LeaseClaim(attempt=1),
        LeaseClaim(worker_id="w1"),
        LeaseClaim(),
    ],
    ids=["worker and attempt", "attempt", "worker", "nothing"],
)
def test_stolen_ack(players: Players, frozen: clock.FrozenClock, lease_claim: LeaseClaim) -> None:
    """Without its lease the first worker cannot pass for the second, though all else is equal."""
    scene = dead(frozen)
    operate.retry_dead([scene.job.id])
    (job,) = take(queues=[scene.job.queue], worker="w1")
    said = players[0].run(partial(settle.report, job.id, lease_claim, Report.ACK))
    assert said in ("lease_required", "lease_lost")
    assert now_stored(job) == job
    assert settle.report(job.id, LeaseClaim(job.lease_id), Report.ACK).verdict == "settled"


@pytest.mark.fault("F56")
def test_un_finish(players: Players, frozen: clock.FrozenClock) -> None:
    """The reaper has seen a silent job, and the report comes before it takes the row."""
    silent(frozen)
    looks = before_the_lock(players[0], reap_all)
    assert len(looks) > 1
    for stop in looks:
        scene = silent(frozen)
        reaped, said = interleave(
            players[0], reap_all, stop, players[1], partial(scene.report, Report.ACK, scene.lease)
        )
        job = now_stored(scene.job)
        assert (reaped, said, job.state) == ("0", "settled", "completed"), stop


@pytest.mark.slow
@pytest.mark.fault("F57", "F58")
def test_cancel_and_ack(players: Players, frozen: clock.FrozenClock) -> None:
    """Both ways round, at every point: one of them, and one event of an end."""
    ends = []
    for cancel_first in (True, False):
        for stop in range(8):
            (job,) = make(retry=RETRY)
            (job,) = take()
            scene = Scene(frozen, job, held(job))
            works: list[Work] = [
                lambda s=scene: operate.cancel([s.job.id])[0].state,  # type: ignore[misc]
                partial(scene.report, Report.ACK, scene.lease),
            ]
            if not cancel_first:
                works.reverse()
            said = interleave(players[0], works[0], stop, players[1], works[1])
            state = now_stored(job).state
            ends.append((state, tuple(sorted(said))))
            kinds = Event.objects.filter(job_id=job.id).values_list("kind", flat=True)
            assert sorted({"job.cancelled", "job.completed"} & set(kinds)) == [f"job.{state}"]
    assert set(ends) == {
        ("cancelled", ("cancelled", "lost")),
        ("completed", ("completed", "settled")),
    }


@pytest.mark.fault("F56")
def test_extend_and_reap(players: Players, frozen: clock.FrozenClock) -> None:
    """A job is extended after the reaper has seen it overdue and before it takes the row, by somebody
    who began in time and has waited since.
    """
    overdue(frozen)
    looks = before_the_lock(players[0], reap_all)
    assert looks
    for stop in looks:
        scene = overdue(frozen)
        began = frozen.time - timedelta(seconds=1)
        with clock.using_clock(clock.FrozenClock(began)):
            decide = verbs.extending(60_000)
        extend = partial(operate.decide_each, [scene.job.id], decide)
        reaped, _ = interleave(players[0], reap_all, stop, players[1], extend)
        job = now_stored(scene.job)
        assert (reaped, job.state, job.lease_id) == ("0", "active", scene.job.lease_id), stop
        operate.cancel([job.id])


@pytest.mark.fault("F66")
def test_pause_and_claim(players: Players, frozen: clock.FrozenClock) -> None:
    """When the pause has returned, a claim that began before it gets nothing of that queue."""
    (job,) = make()
    claiming = partial(take, queues=["default"], worker="w9")
    queues.ensure(["default"])
    outside = before_the_lock(players[0], claiming)
    assert outside
    operate.cancel([job.id])
    for stop in outside:
        (job,) = make()
        got, _ = interleave(
            players[0],
            lambda: len(claiming()),
            stop,
            players[1],
            partial(queues.pause, ["default"]),
        )
        assert (got, now_stored(job).state) == ("0", "available"), stop
        queues.resume(["default"])
        operate.cancel([job.id])


@pytest.mark.fault("F53", "F54")
def test_many_claim_the_same_jobs(players: Players, frozen: clock.FrozenClock) -> None:
    """Two claimers without any order between them share the jobs, and never get more than asked."""
    total = 60
    make(total)
    claims: list[list[object]] = [[], []]

    def drain(own: list[object]) -> int:
        while jobs := take(7, patience=100):
            assert len(jobs) <= 7
            own += [job.id for job in jobs]
        return len(own)

    for player, own in zip(players, claims, strict=True):
        player.begin(partial(drain, own))
    counts = [int(player.outcome()) for player in players]
    assert sum(counts) == total
    assert len({*claims[0], *claims[1]}) == total
    assert set(Job.objects.values_list("state", "lease_seq")) == {("active", 1)}


def test_a_checkpoint_is_stored_under_its_lease(players: Players, frozen: clock.FrozenClock) -> None:
    """What the races of checkpoints begin with: the lease that holds stores one, a lost one none."""
    scene = active(frozen)
    assert players[0].run(partial(scene.save, scene.lease)) == "saved"
    assert now_stored(scene.job).json("checkpoint") == {"n": 1}
    scene = taken_over(frozen)
    assert players[0].run(partial(scene.save, scene.stale)) == "lease_lost"
    assert now_stored(scene.job).json("checkpoint") is None


@pytest.mark.slow
@pytest.mark.fault("F94")
def test_one_id_is_enqueued_by_two(players: Players, frozen: clock.FrozenClock) -> None:
    """Every point of an enqueue: one row and one announcement; other content is refused."""
    players[0].run(partial(nothing(frozen).again, "same"))
    points = len(players[0].points)
    assert points > 1
    for stop in range(points):
        for meta, answer in (("same", "available"), ("other", "Duplicate")):
            scene = nothing(frozen)
            said = interleave(
                players[0],
                partial(scene.again, "same"),
                stop,
                players[1],
                partial(scene.again, meta),
            )
            assert sorted(said) == sorted(["available", answer]), stop
            winner = "same" if said[0] == "available" else meta
            assert now_stored(scene.job).json("meta") == {"is": winner}
            assert list(Event.objects.filter(job_id=scene.job.id).values_list("kind", flat=True)) == [
                "job.enqueued"
            ]
