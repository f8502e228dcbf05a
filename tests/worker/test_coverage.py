"""What a worker claims from."""

from __future__ import annotations

import pytest

from django_ojs.services.enqueue import remember_queues
from django_ojs.worker.coverage import Coverage

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


def queues(coverage: Coverage) -> set[str]:
    """The queues that it serves now, but for our own."""
    return {source.queue for source in coverage() if not str(source.type).startswith("ojs.")}


def test_a_queue_that_was_announced_is_served_before_it_has_a_row() -> None:
    remember_queues(["one"], using="default")
    coverage = Coverage([], ["three"], using="default")
    assert "two" not in queues(coverage)
    coverage.heard_of("two")
    coverage.heard_of("three")
    assert {"one", "two"} <= queues(coverage)
    assert "three" not in queues(coverage)


def test_who_names_queues_serves_no_other() -> None:
    coverage = Coverage(["one"], [], using="default")
    coverage.heard_of("two")
    assert queues(coverage) == {"one"}
