"""The tables of metrics: ``python -m tests.docs.test_metrics_page`` writes them anew."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

import pytest

from django_ojs.domain.exposition import Family
from tests.support import ROOT

PAGE = ROOT / "docs" / "reference" / "metrics.md"


def filled(text: str) -> str:
    """The page with the tables of this code."""
    from django_ojs.services import metrics

    text = _with_table(text, "metrics", metrics.collect())
    return _with_table(text, "worker", families_of_a_worker())


def families_of_a_worker() -> list[Family]:
    """Those of a worker that has not started."""
    from django_ojs.worker.prefork.pool import Pool
    from django_ojs.worker.prefork.zygote import SpawnServer
    from django_ojs.worker.supervisor.config import Config
    from django_ojs.worker.supervisor.dispatcher import Dispatcher
    from django_ojs.worker.supervisor.loop import EventLoop
    from django_ojs.worker.supervisor.metrics import Parts, families
    from django_ojs.worker.supervisor.recycling import Recycler
    from django_ojs.worker.supervisor.shared_types import SharedTypes
    from django_ojs.worker.supervisor.shutdown import Shutdown
    from django_ojs.worker.threads.database import DatabaseThread
    from django_ojs.worker.threads.heartbeat import HeartbeatThread
    from django_ojs.worker.threads.receivers import Receivers

    loop, config = EventLoop(), Config(worker_id="w")
    try:
        ignore: Any = lambda *given: None  # noqa: E731
        pool = Pool(loop.selector, SpawnServer(), on_frame=ignore, on_gone=ignore)
        database = DatabaseThread(loop, "default")
        dispatcher = Dispatcher(pool, database, Shutdown(), SharedTypes(0), Config("w1"))
        heartbeat = HeartbeatThread(config.identity(), ignore, ignore, ignore, "default")
        recycler = Recycler(pool, Shutdown(), config, SharedTypes(0))
        parts = Parts(pool, dispatcher, database, database, heartbeat, Receivers(), recycler)
        return families(parts)
    finally:
        loop.close()


def _with_table(text: str, name: str, families: Iterable[Family]) -> str:
    lines = ["| Metric | Type | Labels | |", "|---|---|---|---|"]
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    before, _, rest = text.partition(begin)
    return before + begin + "\n".join(lines) + "\n" + end + rest.partition(end)[2]


@pytest.mark.usefixtures("ojs_db")
def test_the_table_is_that_of_the_code() -> None:
    text = PAGE.read_text()
    assert filled(text) == text, "run: python -m tests.docs.test_metrics_page"
    assert len(re.findall(r"^\| `ojs_", text, re.MULTILINE)) > 35


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    import django

    django.setup()
    PAGE.write_text(filled(PAGE.read_text()))
