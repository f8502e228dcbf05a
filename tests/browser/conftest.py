"""A real server with static files and a strict policy, and a Chromium in which a user is logged in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connections

from tests.browser.support import CHROMEDRIVER, CHROMIUM, PASSWORD, Browser, start_chromium
from tests.support import gunicorn

NAME = "ada"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of it starts a server and a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.process)


@pytest.fixture(scope="module")
def address(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The server's; a superuser is there as long as it is. No reaper: only tests end jobs."""
    if not (CHROMIUM.exists() and CHROMEDRIVER.exists()):
        pytest.skip("chromium is not installed")
    folder = tmp_path_factory.mktemp("server")
    with django_db_blocker.unblock():
        User.objects.filter(username=NAME).delete()
        User.objects.create_superuser(NAME, password=PASSWORD)
        environment = {"EXAMPLE_VAR": str(folder / "var")}
        application = "tests.browser.wsgi:application"
        with gunicorn(application, "/admin/login/", folder / "web", 8, environment) as port:
            yield f"http://127.0.0.1:{port}"
        User.objects.filter(username=NAME).delete()
        Session.objects.all().delete()
        connections["default"].close()


@pytest.fixture(scope="module")
def window(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A window in which the superuser is logged in."""
    driver = start_chromium(tmp_path_factory.mktemp("chromium"))
    try:
        found = Browser(driver, address)
        found.login(NAME)
        assert not found.heard()
        yield found
    finally:
        driver.quit()


@pytest.fixture
def browser(window: Browser, ojs_db: None) -> Iterator[Browser]:
    """The window on empty tables. Whatever the console says is a failure."""
    window.heard()
    yield window
    said = window.heard()
    window.driver.get("about:blank")
    assert not said, said
