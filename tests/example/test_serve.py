"""``manage.py serve``: a worker that is stopped in the admin is replaced, and the pages stay."""

from __future__ import annotations

import http.client
import re
import signal
import socket
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model

from django_ojs.domain.job import Actor
from django_ojs.models import Worker
from django_ojs.services import workers
from tests.support import Manage, poll

pytestmark = pytest.mark.process


def status(port: int, path: str = "/ready") -> int:
    """What the server answers, 0 if nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def test_a_stopped_worker_is_replaced(ojs_db: None, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    environment = {"EXAMPLE_VAR": str(tmp_path / "var")}
    serve = Manage(("serve", f"--port={port}"), tmp_path / "serve", environment)
    try:
        running = Worker.objects.filter(phase=Worker.Phase.RUNNING)
        first = poll(lambda: running.values_list("pk", flat=True).first() or not serve.running, 30)
        assert isinstance(first, int), serve.stderr
        workers.direct(first, "terminate", actor=Actor("admin", "ada"))
        poll(lambda: running.exclude(pk=first).exists() or not serve.running, 60)
        assert serve.running, serve.stderr
        poll(lambda: status(port) == 200)
        assert (status(port, "/"), status(port, "/admin/login/")) == (302, 200)
        (password,) = re.findall(r"log in as admin with the password (\S+)", serve.stdout)
        assert get_user_model().objects.get(username="admin").check_password(password)
        serve.send(signal.SIGTERM)
        assert serve.wait(30) == 0, serve.stderr
    finally:
        serve.stop()
