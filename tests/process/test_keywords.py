"""Arguments by keyword reach real handlers, whoever sent them."""

from __future__ import annotations

import pytest

from django_ojs import api, chain, group
from django_ojs.models import Job
from tests.process.tools import StartWorker
from tests.support import not_none
from tests.workload import jobs

pytestmark = pytest.mark.process
MARK = {"ojs.kwargs": True}


def test_a_handler_gets_its_arguments_by_keyword(drained: StartWorker) -> None:
    made = [
        jobs.keywords.enqueue(1, only=2),
        jobs.keywords.enqueue(1, {"a": 3}, only=2, more={"b": 4}),
        api.enqueue("work.keywords", [{"x": 1}], kwargs={"only": 2}),
        api.enqueue("work.keywords", [1, {"only": 2}], meta=MARK),
        jobs.keywords_async.enqueue(only=1, other=[2]),
        jobs.echo.enqueue(value=7),
        jobs.echo.enqueue({"only": 1}),
        *jobs.keywords_async.enqueue_many([{"only": 1}, {"only": 2, "third": 3}]),
        *api.enqueue_many("work.keywords-async", [{"only": 4}]),
    ]
    misfit = api.enqueue("work.keywords", [1], kwargs={"onyl": 2})
    flow = chain(
        jobs.keywords_async.step(only=1),
        group(jobs.keywords_async.steps([{"only": 2}, {"only": 3, "x": 4}])),
        api.step("work.keywords-async", kwargs={"only": 5}),
    ).enqueue()
    drained()
    assert [api.get(job).result for job in made] == [
        [1, [], 2, "default", [1], {"only": 2}],
        [1, [{"a": 3}], 2, {"b": 4}, [1, {"a": 3}], {"only": 2, "more": {"b": 4}}],
        [{"x": 1}, [], 2, "default", [{"x": 1}], {"only": 2}],
        [1, [], 2, "default", [1], {"only": 2}],
        [1, {"other": [2]}],
        7,
        {"only": 1},
        [1, {}],
        [2, {"third": 3}],
        [4, {}],
    ]
    error = not_none(api.get(misfit).error)
    assert error["type"] == "builtins.TypeError"
    assert "'onyl'" in error["message"]
    assert api.get_workflow(flow).state == "completed"
    members = Job.objects.filter(type="work.keywords-async").exclude(workflow_id=None)
    found = [job.result for job in members]
    assert len(found) == 4
    assert all(one in found for one in ([1, {}], [2, {}], [3, {"x": 4}], [5, {}]))
