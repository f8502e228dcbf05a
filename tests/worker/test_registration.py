"""How a worker registers."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections
from django.db.backends.signals import connection_created

from django_ojs import clock
from django_ojs.models import Worker
from django_ojs.services.workers import WorkerInfo
from django_ojs.worker.supervisor.registration import register_worker

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("ojs_db")]


def test_a_worker_registers_on_a_session_of_its_own() -> None:
    """That of the preparations waits for locks without end, and nobody looks whether it hangs."""
    connections["default"].ensure_connection()
    opened: list[Any] = []

    def note(connection: Any, **_: Any) -> None:
        opened.append(connection)

    connection_created.connect(note)
    try:
        register_worker(WorkerInfo("w1", clock.new_id()), using="default")
        assert opened == [connections["default"]]
        assert connections["default"].connection is None, "it is given back"
    finally:
        connection_created.disconnect(note)
    assert Worker.objects.get().name == "w1"
