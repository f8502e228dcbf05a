"""How often the processes of a worker search for garbage."""

from __future__ import annotations

import gc

import pytest

from tests.process.tools import Diary, StartWorker, in_state, sabotaged
from tests.workload import jobs

pytestmark = pytest.mark.process


def test_the_supervisor_searches_rarely_and_handlers_as_usual(
    worker: StartWorker, diary: Diary
) -> None:
    worker(**sabotaged("receiver notes threshold"), OJS_SABOTAGE_DIARY=diary.path)
    done = in_state(jobs.collect_after.enqueue(), "completed")
    diary.wait("job.completed")
    assert done.result == gc.get_threshold()[0]
    (supervisor,) = diary.lines("job.completed")
    # As many as a few thousand jobs are, which a worker holds; Python's own 700 are a hundred.
    assert int(supervisor[0]) >= 10_000
