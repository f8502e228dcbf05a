"""Finding jobs: every filter, stable pages, counts up to the cap, clear refusals."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ojs import api, clock
from django_ojs.api import InvalidRequest, cancel, count_jobs, enqueue, jobs
from django_ojs.domain.job_record import JobRecord
from django_ojs.services import query
from tests.services.support import ack, fail, make, take

pytestmark = [pytest.mark.usefixtures("ojs_db"), pytest.mark.every_database]


def ids(found: list[JobRecord]) -> set[Any]:
    """The ids of jobs."""
    return {job.id for job in found}


def test_pages_go_from_the_newest_to_the_oldest() -> None:
    made = make(7)
    newest = list(reversed([job.id for job in made]))
    first = jobs(limit=3)
    second = jobs(limit=3, after=first[-1])
    third = jobs(limit=3, after=second[-1].id)
    assert [job.id for job in (*first, *second, *third)] == newest
    assert jobs(after=third[-1]) == []
    oldest = query.page(query.JobQuery(), limit=3, oldest_first=True, after=made[1].id)
    assert [job.id for job in oldest] == [job.id for job in made[2:5]]


def test_filters_hold_together() -> None:
    waiting = enqueue("mail.send", queue="mail")
    other = enqueue("mail.sort", queue="mail-bulk")
    report = enqueue("report.build", queue="reports", delay="1h")
    make(1, retry={"max_attempts": 1})
    (failed,) = take(1)
    fail(failed, type="shop.NoStock")
    make()
    (running,) = take(1)
    assert ids(jobs(queue="mail")) == {waiting.id}
    assert ids(jobs(queue="mail*")) == {waiting.id, other.id}
    assert ids(jobs(type=["mail.*", "report.build"])) == {waiting.id, other.id, report.id}
    assert ids(jobs(type="mail.*", queue=["mail-bulk", "reports"])) == {other.id}
    assert ids(jobs(state=["scheduled", "discarded"])) == {report.id, failed.id}
    assert ids(jobs(error_type="shop.NoStock")) == {failed.id}
    assert ids(jobs(worker_id="w1")) == {running.id}
    assert ids(jobs(dead_letter=True)) == set()
    assert ids(jobs(state=None, queue="reports")) == {report.id}
    assert count_jobs() == 5
    assert count_jobs(state="available") == 2


@pytest.mark.parametrize("name", ["state", "queue", "type"])
def test_nothing_is_out_of_an_empty_list(name: str) -> None:
    make()
    nothing: Any = {name: []}
    anything: Any = {name: None}
    assert jobs(**nothing) == []
    assert count_jobs(**nothing) == 0
    assert len(jobs(**anything)) == count_jobs(**anything) == 1


def test_jobs_of_a_workflow() -> None:
    flow = api.group(api.step("a.job"), api.step("b.job")).enqueue()
    enqueue("a.job")
    assert {job.type for job in jobs(workflow_id=flow.id)} == {"a.job", "b.job"}


def test_by_the_time_at_which_they_were_made(frozen: clock.FrozenClock) -> None:
    old = enqueue("a.job")
    frozen.advance(3600)
    between = frozen.time
    frozen.advance(3600)
    new = enqueue("a.job", id=_id_at(frozen))
    assert ids(jobs(since=timedelta(minutes=30))) >= {new.id}
    assert new.id not in ids(jobs(until="30m"))
    assert ids(jobs(since=between)) >= {new.id}
    assert ids(jobs(until=between.isoformat())) == ids(jobs(until=between))
    assert old.id in ids(jobs(until=frozen.time + timedelta(days=3650)))


def _id_at(frozen: clock.FrozenClock) -> Any:
    from django_ojs.domain.ids import uuid7

    return uuid7(int(frozen.time.timestamp() * 1000), 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"state": "done"}, "state: must be out of .*, not 'done'"),
        ({"queue": "My Queue"}, "queue: must be of a-z"),
        ({"type": 3}, "type: must be text, or a list of texts"),
        ({"since": "yesterday"}, "since: "),
        ({"worker_id": "a\x00b"}, "worker_id: must not contain NUL"),
        ({"error_type": "\udcff"}, "error_type: must not contain NUL"),
        ({"dead_letter": "yes"}, "dead_letter: must be true or false"),
        ({"workflow_id": "x"}, "workflow_id: "),
        ({"limit": 0}, "limit: must be an integer from 1 to 1000"),
        ({"limit": 1001}, "limit: must be an integer from 1 to 1000"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        jobs(**given)


def test_an_unknown_filter_names_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"unknown filter 'queues': did you mean 'queue'\?"):
        jobs(queues="mail")  # type: ignore[call-arg]


def test_a_page_is_two_statements(django_assert_num_queries: Any) -> None:
    make(3)
    ack(*take(1))
    cancel(make()[0])
    with django_assert_num_queries(2):
        assert len(jobs(state=["completed", "cancelled"])) == 2


@pytest.mark.parametrize("database", ["nope", "", 5])
def test_a_database_that_does_not_exist_is_named(database: Any) -> None:
    for read in (jobs, count_jobs):
        with pytest.raises(InvalidRequest, match=r"^database: there is no database"):
            read(database=database)
