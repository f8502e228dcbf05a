"""The pictures of the documentation: they can be made anew at any time, and show what they say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from tests.browser.rows import showcase
from tests.browser.support import Browser
from tests.support import ROOT

IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 150_000
NAMES = ("dashboard", "jobs", "job-running", "job-timed-out", "queues", "failures")


def shoot(browser: Browser, path: str, file: Path) -> None:
    """A picture of a page, of few colours, so that it is small."""
    browser.open(path)
    browser.driver.save_screenshot(str(file))
    with Image.open(file) as whole:
        whole.convert("RGB").quantize(192, dither=Image.Dither.NONE).save(file, optimize=True)


@pytest.mark.timeout(180)
def test_six_pages(browser: Browser, tmp_path: Path) -> None:
    """With Django's sidebar open, as it is by default. Into ``docs/images`` by
    ``python -m tests.browser.screenshots``, otherwise thrown away.
    """
    folder = Path(os.environ.get("OJS_SCREENSHOTS") or tmp_path)
    ids = showcase()
    browser.open("/admin/")
    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    dark = bool(os.environ.get("OJS_SCREENSHOTS_DARK"))
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    paths = {
        "dashboard": "dashboard/?window=24h",
        "jobs": "job/",
        "job-running": f"job/{ids['running']}/change/",
        "job-timed-out": f"job/{ids['timed_out']}/change/",
        "queues": "queue/",
        "failures": "failurestat/",
    }
    try:
        for name in NAMES:
            file = folder / f"{name}.png"
            shoot(browser, paths[name], file)
            assert 5_000 < file.stat().st_size < MOST_BYTES, name
            with Image.open(file) as picture:
                assert picture.size == (1280, 900), name
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_pictures_are_there() -> None:
    for name in NAMES:
        file = IMAGES / f"{name}.png"
        assert file.exists(), file
        assert file.stat().st_size < MOST_BYTES, file
