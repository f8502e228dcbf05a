"""The plan is a function of its seed, and keeps its promises for any."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest

from tests.faults.catalogue import ROWS
from tests.soak import plan
from tests.soak.plan import Fault, calls, faults

pytestmark = pytest.mark.tool

SEEDS = range(40)


@pytest.mark.parametrize("database", ["pg", "sqlite"])
def test_the_same_seed_gives_the_same_faults_and_jobs(database: str) -> None:
    one, two = (faults(7, 300, database=database, workers=4) for _ in range(2))
    assert one == two
    assert [(f.kind, f.target, f.pick, f.lasts) for f in one] == [
        (f.kind, f.target, f.pick, f.lasts) for f in two
    ]
    assert list(islice(calls(7), 500)) == list(islice(calls(7), 500))
    assert faults(8, 300, database=database, workers=4) != one
    assert list(islice(calls(8), 500)) != list(islice(calls(7), 500))


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_is_over_at_the_end_and_nobody_is_suspended_twice(seed: int) -> None:
    found = faults(seed, 90, database="pg", workers=3)
    assert found == sorted(found)
    assert all(fault.at > 0 and fault.at + fault.lasts < 90 for fault in found)
    asleep = [fault for fault in found if fault.kind.startswith("suspend")]
    assert len(asleep) >= 3
    for name in {fault.target for fault in asleep}:
        mine = [fault for fault in asleep if fault.target == name]
        assert all(one.at + one.lasts <= two.at for one, two in pairwise(mine))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_suspended_worker_is_away_for_longer_than_its_heartbeat_timeout(seed: int) -> None:
    for fault in faults(seed, 300, database="pg", workers=4):
        if fault.kind.startswith(("suspend", "hold", "freeze")):
            assert fault.lasts > plan.HEARTBEAT
        if fault.kind.startswith("suspend"):
            assert plan.HEARTBEAT < fault.lasts < plan.HEARTBEAT + plan.AGAIN


@pytest.mark.parametrize("seed", SEEDS)
def test_a_minute_and_a_half_meets_every_kind_of_process(seed: int) -> None:
    kinds = {fault.kind for fault in faults(seed, 90, database="mariadb", workers=4)}
    assert kinds >= {"kill executor", "kill worker", "suspend worker", "end sessions"}
    assert "restart database" in kinds
    assert "stop database" not in kinds


def test_only_a_long_run_goes_without_its_database() -> None:
    found = faults(1, 300, database="pg", workers=4)
    away = [fault for fault in found if fault.kind == "stop database"]
    assert [fault.lasts > plan.HEARTBEAT for fault in away] == [True]
    restarts = [fault.at for fault in found if fault.kind == "restart database"]
    assert len(restarts) >= 4
    assert all(two - one >= plan.RESTART_EVERY for one, two in pairwise(restarts))
    assert all(abs(at - away[0].at) > 15 for at in restarts), "each outage by itself"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_file_has_no_faults_of_a_server(seed: int) -> None:
    kinds = {fault.kind for fault in faults(seed, 300, database="sqlite", workers=4)}
    assert kinds == plan.DECK.keys() - plan.OF_SERVERS


def test_targets_are_places_of_the_fleet() -> None:
    places = {"", *plan.REAPERS, *plan.HTTP_WORKERS, "worker-0", "worker-1"}
    targets = {fault.target for fault in faults(3, 600, database="pg", workers=2)}
    assert targets == places


def test_jobs_come_in_the_shares_of_the_mix() -> None:
    assert sum(plan.MIX.values()) == 1000
    drawn = list(islice(calls(5), 20_000))
    for kind, share in plan.MIX.items():
        counted = sum(call.kind == kind for call in drawn)
        assert 0.6 * share < counted / 20 < 1.4 * share, kind
    assert {call.queue for call in drawn if call.kind == "remote"} == {plan.HTTP_QUEUE}
    assert {call.queue for call in drawn if call.kind != "remote"} == set(plan.QUEUES)
    assert any(call.twice for call in drawn)
    assert any(call.cancel_after is not None for call in drawn)


def test_faults_are_in_the_catalogue() -> None:
    assert plan.ROWS.keys() <= {*plan.DECK, "restart database", "stop database"}
    assert {row for rows in plan.ROWS.values() for row in rows} <= ROWS.keys()


def test_faults_are_ordered_by_their_time() -> None:
    assert sorted([Fault(2, "a"), Fault(1, "b")])[0].kind == "b"
