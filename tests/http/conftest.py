"""Callers with tokens, and a real server: gunicorn with threads, a reaper beside it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from django_ojs.http import limits, refusals
from django_ojs.services import tokens
from django_ojs.services.tokens import SCOPES
from tests.http.support import Api, LiveApi
from tests.support import Manage, gunicorn

Caller = Callable[..., Api]


def start_counting_anew() -> None:
    """Forget what earlier tests have used of the rates."""
    for window in (*vars(limits).values(), *vars(refusals).values()):
        if isinstance(window, limits.RateWindow):
            window.clear()


@pytest.fixture(autouse=True)
def no_stream_is_left() -> Iterator[None]:
    """A stream that a test has dropped gives its place back before the next test counts them."""
    yield
    if limits.STREAMS._taken:
        gc.collect()
    assert not limits.STREAMS._taken


@pytest.fixture
def caller(ojs_db: None) -> Caller:
    """Make a caller with a token of its own: ``caller("work", queues=["mail"])``."""
    start_counting_anew()

    def make(*scopes: str, name: str = "", queues: Sequence[str] = ("*",), **more: Any) -> Api:
        chosen = scopes or SCOPES
        client = name or f"test-{'-'.join(chosen)}-{len(tokens.listed())}"
        return Api(tokens.create(client, scopes=chosen, queues=queues, **more)[1])

    return make


@pytest.fixture
def api(caller: Caller) -> Api:
    """A caller who may do everything."""
    return caller()


@pytest.fixture
def one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh counters of rates, in a window that does not end during the test."""
    start_counting_anew()
    monkeypatch.setattr(limits, "window_of", lambda seconds: -1)


@pytest.fixture
def tenants(caller: Caller) -> tuple[Api, Api]:
    """One who may use ``q1`` only, and one who may use everything."""
    return caller(name="mine", queues=["q1"]), caller(name="all")


@pytest.fixture(scope="module")
def server(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """The port of gunicorn on the test database, with the developer's token; a reaper beside it.

    They end with the module: the reaper lives in real time, and would end the jobs of tests whose
    clock stands still.
    """
    folder = tmp_path_factory.mktemp("server")
    environment = {"OJS_DEV_TOKEN": "dev", "EXAMPLE_VAR": str(folder / "var")}
    with ExitStack() as started, django_db_blocker.unblock():
        application = "tests.wsgi:application"
        port = started.enter_context(gunicorn(application, "/ready", folder / "web", 32, environment))
        reaper = Manage(("reap_timeouts", "--loop"), folder / "reaper", environment)
        started.callback(reaper.stop)
        yield port


@pytest.fixture
def live(server: int, ojs_db: None) -> LiveApi:
    """A caller over a socket, who may do everything."""
    return LiveApi(server)
