"""The pictures of the documentation: they can be made anew at any time, and show what they say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User

from tests.browser import shots
from tests.browser.conftest import NAME
from tests.browser.rows import showcase
from tests.browser.shots import IMAGES, MAIN, MOST_BYTES, MOST_SMALL, OTHERS, Shot
from tests.browser.support import PASSWORD, Browser
from tests.support import gunicorn

MANY_COLOURS, FEW_COLOURS = 192, 96
THEME = "unfold"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """That of the documentation for ``python -m tests.browser.screenshots``, otherwise any."""
    found = Path(os.environ.get("OJS_SCREENSHOTS") or tmp_path)
    (found / "admin").mkdir(parents=True, exist_ok=True)
    return found


def is_small(file: Path, most: int) -> bool:
    return 5_000 < file.stat().st_size < most


@pytest.mark.timeout(180)
def test_pictures_of_the_main_pages(browser: Browser, folder: Path) -> None:
    """With Django's sidebar open, as it is by default."""
    rows = showcase()
    for name, shot in MAIN.items():
        file = folder / f"{name}.png"
        if os.environ.get("OJS_SCREENSHOTS_DARK"):
            shot = shot._replace(look=shot.look._replace(dark=True))
        shots.take(browser, shot, file, rows, MANY_COLOURS)
        assert is_small(file, MOST_BYTES), name


@pytest.mark.timeout(300)
def test_pictures_of_what_is_compared(browser: Browser, folder: Path) -> None:
    rows = shots.scene()
    for name, shot in OTHERS.items():
        file = folder / "admin" / f"{name}.png"
        shots.take(browser, shot, file, rows, FEW_COLOURS)
        assert is_small(file, MOST_SMALL), name
    shots.retrying()
    file = folder / "admin" / "bulk.png"
    shots.take(
        browser, Shot("job/", (".ojs-bulk progress", ".ojs-bulk .ojs-danger")), file, {}, FEW_COLOURS
    )
    assert is_small(file, MOST_SMALL)


@pytest.fixture
def viewer(browser: Browser) -> Iterator[None]:
    """Somebody who may see jobs, but no arguments, and may do nothing, is logged in at the window."""
    user = User.objects.create_user("vera", password=PASSWORD, is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_job"))
    browser.login(user.username)
    yield
    browser.login(NAME)
    user.delete()


@pytest.mark.timeout(120)
def test_a_picture_of_what_a_viewer_sees(browser: Browser, viewer: None, folder: Path) -> None:
    rows, file = showcase(), folder / "admin" / "viewer.png"
    shots.take(browser, Shot("job/{running}/change/", ("#ojs-why",)), file, rows, FEW_COLOURS)
    assert not browser.all(".object-tools a, .ojs-remedy")
    assert is_small(file, MOST_SMALL)


@pytest.mark.timeout(120)
def test_a_picture_with_a_theme(browser: Browser, folder: Path, tmp_path: Path) -> None:
    if find_spec(THEME) is None:
        pytest.skip(f"django-{THEME} is not installed")
    rows, file = showcase(), folder / "admin" / "theme.png"
    environment = {
        "DJANGO_SETTINGS_MODULE": "tests.settings_theme",
        "OJS_TEST_THEME": THEME,
        "EXAMPLE_VAR": str(tmp_path / "var"),
    }
    shot = Shot("job/{running}/change/", (".ojs-clock-execution", ".object-tools a"))
    with gunicorn(
        "tests.browser.wsgi:application", "/admin/login/", tmp_path / "web", 8, environment
    ) as port:
        themed = Browser(browser.driver, f"http://127.0.0.1:{port}")
        shots.take(themed, shot, file, rows, FEW_COLOURS)
    assert is_small(file, MOST_SMALL)


def test_the_pictures_are_there_and_no_others() -> None:
    there = {
        str(file.relative_to(IMAGES).with_suffix("")): file.stat().st_size
        for file in IMAGES.rglob("*.png")
    }
    assert there.keys() == shots.names()
    assert [name for name, size in there.items() if size >= MOST_BYTES] == []
