"""How many connections a request opens in a thread that has none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections
from django.db.backends.signals import connection_created
from django.test import override_settings

from tests.http.support import Answer, Api

pytestmark = pytest.mark.every_database


@pytest.mark.usefixtures("ojs_db")
@pytest.mark.parametrize(
    "path",
    [
        "/jobs/{}",
        "/events",
        "/queues",
        "/queues/mail/stats",
        "/dead-letter/stats",
        "/admin/stats",
        "//health",
    ],
)
@override_settings(DEBUG=True, OJS={"HTTP": {"DEV_TOKEN": "dev"}})
def test_a_request_in_a_fresh_thread_opens_one_connection(path: str) -> None:
    api = Api("dev")  # another token would be looked up first, by the ORM
    opened: list[str] = []

    def note(connection: Any, **_: Any) -> None:
        opened.append(connection.alias)

    def ask() -> Answer:
        try:
            return api.get(path.format(uuid4()))
        finally:
            connections.close_all()

    connection_created.connect(note, weak=False)
    try:
        with ThreadPoolExecutor(1) as fresh:
            assert fresh.submit(ask).result().status in (200, 404)
    finally:
        connection_created.disconnect(note)
    assert opened == ["default"]
