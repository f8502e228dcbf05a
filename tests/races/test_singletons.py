"""Rows that are one for all, or for a client: two want one at once, the second at each statement of the
first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import count
from unittest.mock import patch

import pytest
from django.test import override_settings

from django_ojs import clock
from django_ojs.domain.envelope import from_call
from django_ojs.domain.errors import NotFound
from django_ojs.domain.schedule import ScheduleSource, ScheduleSpec
from django_ojs.models import (
    ApiToken,
    AuditEntry,
    Event,
    EventStream,
    Job,
    MaintenanceRun,
    Queue,
    RateLimitStart,
    Schedule,
    Total,
)
from django_ojs.services import operate, queues, reaper, rollup, stream, tokens
from django_ojs.services.rate_limits import admission, upkeep
from django_ojs.services.schedules import declared
from django_ojs.services.schedules import operate as schedules
from django_ojs.services.stream import Wanted
from tests.apart import Apart
from tests.races.stepping import Player, Work, interleave
from tests.services.support import ack, make, nobody_admits, take
from tests.support import poll

pytestmark = pytest.mark.every_database

Players = tuple[Player, Player]
Scene = Callable[[], tuple[Work, Work]]


def everywhere(players: Players, scene: Scene) -> Iterator[tuple[str, str]]:
    """What two come to on scenes of their own, the second beginning before each point of the first."""
    one, _other = scene()
    players[0].run(one)
    points = players[0].points
    assert len(points) > 2
    for point in points:
        one, other = scene()
        yield interleave(players[0], one, point.number, players[1], other)


def test_two_readers_give_each_event_one_place(players: Players, frozen: clock.FrozenClock) -> None:
    def scene() -> tuple[Work, Work]:
        make(2)
        read = partial(stream.read, Wanted(), after=0, limit=1000)
        return lambda: len(read()[0]), lambda: len(read()[0])

    for _ in everywhere(players, scene):
        places = [*Event.objects.exclude(seq=None).order_by("seq").values_list("seq", flat=True)]
        assert places == [*range(1, Event.objects.count() + 1)]
        assert EventStream.objects.get().last == len(places)


@pytest.mark.fault("F100")
def test_two_that_have_seen_a_step_of_the_clock_apply_it_once(
    players: Players, frozen: clock.FrozenClock
) -> None:
    scan = partial(reaper.scan, cadence=timedelta(seconds=5))
    began = []

    def scene() -> tuple[Work, Work]:
        Job.objects.all()._raw_delete("default")
        MaintenanceRun.objects.all().delete()
        frozen.number = 0
        make(1, heartbeat_timeout=60)
        take()
        scan(ran_by="one")
        began.append(frozen.time)
        frozen.set_server(600)
        return partial(scan, ran_by="one"), partial(scan, ran_by="other")

    for _ in everywhere(players, scene):
        assert MaintenanceRun.objects.get(name=reaper.NAME).clock_steps == 1
        assert Job.objects.get().started_at == began[-1] + timedelta(seconds=600)


@override_settings(OJS={"HTTP": {"MAX_NEW_QUEUES_PER_HOUR": 1}})
def test_two_requests_of_a_client_make_no_more_queues_than_it_may(
    players: Players, frozen: clock.FrozenClock
) -> None:
    numbers = count()

    def scene() -> tuple[Work, Work]:
        number = next(numbers)
        token, _ = tokens.create(f"c{number}", scopes=["produce"])
        name = partial(queues.first_use, principal=f"token:{number}", token_id=token.pk)
        return partial(name, [f"a{number}"]), partial(name, [f"b{number}"])

    for said in everywhere(players, scene):
        assert sorted(said)[0] == "RateLimited"
        made = Counter(Queue.objects.filter(created_by__startswith="token:").values_list("created_by"))
        assert {*made.values()} == {1}


def point(player: Player, work: Work, label: str) -> int:
    """The last point of this name of a piece of work, which is done for that."""
    player.run(work)
    return [one.number for one in player.points if one.label == label][-1]


def test_a_token_that_a_revocation_has_found_is_revoked_once(
    players: Players, frozen: clock.FrozenClock, vendor: str
) -> None:
    """It came to light when the one that it succeeds, which the revocation waited for, was free."""
    if vendor == "sqlite":
        pytest.skip("SQLite has one writer: a revocation sees all or nothing of a rotation")
    rotate, revoke = (partial(verb, "c") for verb in (tokens.rotate, tokens.revoke))
    tokens.create("c", scopes=["produce"])
    commit, update = point(players[0], rotate, "COMMIT"), point(players[1], revoke, "UPDATE")
    tokens.create("c", scopes=["produce"])
    players[0].begin(rotate, stop_at=commit)
    assert players[0].until_stopped()
    players[1].begin(revoke, stop_at=update)
    poll(lambda: players[1].waits_for(players[0]))
    players[0].go_on()
    players[0].outcome()
    assert players[1].until_stopped()
    newest = ApiToken.objects.latest("pk").prefix
    other = Apart(lambda: tokens.revoke(newest))
    assert other.goes_as_far_as_it_can(), "it waits for the revocation of both"
    players[1].go_on()
    assert players[1].outcome() == "2"
    with pytest.raises(NotFound):
        other.outcome()
    assert AuditEntry.objects.filter(action="token.revoked").count() == 2


@pytest.mark.slow
@pytest.mark.parametrize("first", ["roll-up", "purge"])
def test_what_is_deleted_beside_a_roll_up_is_counted_once(
    players: Players, frozen: clock.FrozenClock, first: str
) -> None:
    ended = 0
    rollup.rollup()

    def scene() -> tuple[Work, Work]:
        nonlocal ended
        (job, _) = make(2)
        ack(*take(2))
        ended += 2
        frozen.advance(180)
        works: tuple[Work, Work] = (rollup.rollup, partial(operate.purge, [job.id]))
        return works if first == "roll-up" else works[::-1]

    for _ in everywhere(players, scene):
        rollup.rollup()
        (row,) = Total.objects.filter(metric="execution", label="completed")
        assert row.count == ended
        assert not operate.purge_finished([*Job.objects.values_list("pk", flat=True)]).left


@pytest.mark.slow
def test_two_admissions_let_in_as_many_as_there_are_places(
    players: Players, frozen: clock.FrozenClock
) -> None:
    numbers = count()

    def scene() -> tuple[Work, Work]:
        operate.cancel([*Job.objects.filter(state="available").values_list("pk", flat=True)])
        key = f"k{next(numbers)}"
        limit = {"key": key, "concurrency": 1}
        make(rate_limit=limit)
        (job,) = take()
        with nobody_admits():
            make(2, rate_limit=limit)
            ack(job)
        admit = partial(admission.admit, {key: None}, using="default")
        return admit, admit

    for said in everywhere(players, scene):
        assert sorted(said) == ["0", "1"]
        assert Job.objects.filter(state="available", held=False).count() == 1


@pytest.mark.slow
def test_a_start_under_a_key_that_is_about_to_be_pruned_counts(
    players: Players, frozen: clock.FrozenClock
) -> None:
    keys: list[str] = []

    def scene() -> tuple[Work, Work]:
        keys.append(f"k{len(keys)}")
        limit = {"key": keys[-1], "max_per_minute": 1}
        make(rate_limit=limit)
        ack(*take())
        frozen.advance(60 * 86_400)

        def start() -> None:
            make(rate_limit=limit)
            take()

        return partial(upkeep.prune, frozen.time - timedelta(days=7), 10, False, "default"), start

    for _ in everywhere(players, scene):
        started = RateLimitStart.objects.filter(started_at=frozen.time)
        assert [*started.values_list("key", flat=True)] == [keys[-1]]


def report(description: str) -> ScheduleSpec:
    """A schedule that is named so."""
    job = from_call("test.job", [], now=clock.now("default"))
    return ScheduleSpec("report", "@daily", job, description=description)


@pytest.mark.parametrize("first", ["pause", "change"])
def test_a_schedule_that_is_changed_and_paused_at_once_is_both(
    players: Players, frozen: clock.FrozenClock, first: str
) -> None:
    def put(description: str) -> Work:
        spec = report(description)
        return lambda: schedules.put(spec, source=ScheduleSource.HTTP)[1]

    def scene() -> tuple[Work, Work]:
        Schedule.objects.all().delete()
        put("old")()
        works: tuple[Work, Work] = (lambda: schedules.pause("report")[1], put("new"))
        return works if first == "pause" else works[::-1]

    for _ in everywhere(players, scene):
        row = Schedule.objects.get()
        assert (row.description, row.paused_at) == ("new", frozen.time)


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
@pytest.mark.parametrize("first", ["declare", "put"])
def test_a_schedule_that_is_declared_is_not_changed_over_http(
    players: Players, frozen: clock.FrozenClock, first: str, known: bool
) -> None:
    def put(description: str) -> Work:
        return lambda: schedules.put(report(description), source=ScheduleSource.HTTP)[0].source

    def declare() -> str:
        return str(declared.sync(using="default"))

    def scene() -> tuple[Work, Work]:
        Schedule.objects.all().delete()
        if known:
            put("old")()
        works: tuple[Work, Work] = (declare, put("new"))
        return works if first == "declare" else works[::-1]

    with patch.dict(declared._declared, report=report("declared")):
        answers = set()
        for said in everywhere(players, scene):
            answers |= {*said}
            row = Schedule.objects.get()
            assert (row.description, row.source) == ("declared", ScheduleSource.CODE)
    assert answers == {"['report']", "http", "Conflict"}


def test_of_two_that_pause_a_queue_one_has_paused_it(
    players: Players, frozen: clock.FrozenClock
) -> None:
    def scene() -> tuple[Work, Work]:
        queues.resume(["default"])
        Event.objects.all().delete()
        pause = partial(queues.pause, ["default"])
        return pause, pause

    queues.ensure(["default"])
    for said in everywhere(players, scene):
        assert sorted(said) == ["['default']", "[]"]
        assert Event.objects.filter(kind="queue.paused").count() == 1
