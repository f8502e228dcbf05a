"""Callers with tokens, and a real server: gunicorn with threads, a reaper beside it."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from django.core.cache import cache

from django_ojs.services import tokens
from django_ojs.services.tokens import SCOPES
from tests.http.support import Api, LiveApi
from tests.support import Manage, poll

Caller = Callable[..., Api]


@pytest.fixture
def caller(ojs_db: None) -> Caller:
    """Make a caller with a token of its own: ``caller("work", queues=["mail"])``."""
    cache.clear()

    def make(*scopes: str, name: str = "", queues: Sequence[str] = ("*",), **more: Any) -> Api:
        chosen = scopes or SCOPES
        client = name or f"test-{'-'.join(chosen)}-{len(tokens.listed())}"
        return Api(tokens.create(client, scopes=chosen, queues=queues, **more)[1])

    return make


@pytest.fixture
def api(caller: Caller) -> Api:
    """A caller who may do everything."""
    return caller()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Whether the server is ready."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.fixture(scope="module")
def server(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """The port of gunicorn on the test database, with the developer's token; a reaper beside it.

    They end with the module: the reaper lives in real time, and would end the jobs of tests whose
    clock stands still.
    """
    folder = tmp_path_factory.mktemp("server")
    port = free_port()
    environment = {"OJS_DEV_TOKEN": "dev", "EXAMPLE_VAR": str(folder / "var")}
    with django_db_blocker.unblock():
        web = Manage(
            (
                "tests.wsgi:application",
                f"--bind=127.0.0.1:{port}",
                "--worker-class=gthread",
                "--workers=1",
                "--threads=32",
                "--timeout=60",
                "--graceful-timeout=2",
            ),
            folder / "web",
            environment,
            program=("-m", "gunicorn"),
        )
        reaper = Manage(("reap_timeouts", "--loop"), folder / "reaper", environment)
    try:
        poll(lambda: answers(port) or not web.running, 20)
        assert web.running, web.stderr
        yield port
    finally:
        web.stop()
        reaper.stop()


@pytest.fixture
def live(server: int, ojs_db: None) -> LiveApi:
    """A caller over a socket, who may do everything."""
    return LiveApi(server)
