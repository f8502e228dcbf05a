"""What matters can be read on a phone, on a tablet and on a small laptop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.rows import showcase
from tests.browser.support import Browser

WIDTHS = (390, 768, 1280)
_VISIBLE = """
return [...document.querySelectorAll(arguments[0])].map(function (element) {
    const box = element.getBoundingClientRect();
    const width = Math.min(box.right, document.documentElement.clientWidth) - Math.max(box.left, 0);
    return [element.getAttribute('aria-labelledby') || element.className, Math.round(width),
        Math.round(box.width), Math.round(box.height)];
});
"""


@pytest.fixture(params=WIDTHS)
def sized(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Browser]:
    """The window at a width, on a database with a bit of everything."""
    browser.driver.set_window_size(request.param, 900)
    size = {"width": request.param, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield browser
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.driver.set_window_size(1280, 900)


def visible(browser: Browser, selector: str) -> list[tuple[str, int, int, int]]:
    """The elements: their names, how many pixels of their width are on the screen, and their sizes."""
    return [tuple(row) for row in browser.driver.execute_script(_VISIBLE, selector)]


def test_every_panel_of_a_page_is_there(sized: Browser) -> None:
    jobs = showcase()
    paths = [f"job/{key}/change/" for key in jobs.values()]
    for path in (*paths, "queue/mail/change/", "worker/app-1_3A4021/change/"):
        sized.open(path)
        found = visible(sized, ".ojs-panel")
        assert found, path
        for name, seen, width, height in found:
            assert seen == width >= 300, (path, name, seen, width)
            assert height >= 40, (path, name, height)


def test_the_error_of_an_attempt_can_be_read(sized: Browser) -> None:
    jobs = showcase()
    sized.open(f"job/{jobs['timed_out']}/change/")
    ((_name, seen, width, height),) = visible(sized, ".ojs-error")
    assert seen == width >= 250
    assert height < 200
