"""What matters can be read on a phone, on a tablet and on a small laptop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_ojs.models import Job, Worker
from tests.browser.rows import showcase
from tests.browser.support import Browser
from tests.services.support import make
from tests.support import poll

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
    worker = Worker.objects.get(name="app-1:4021").pk
    paths = [f"job/{key}/change/" for key in jobs.values()]
    for path in (*paths, "queue/mail/change/", f"worker/{worker}/change/"):
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


def test_the_columns_that_matter_are_on_the_screen(sized: Browser) -> None:
    """With Django's sidebar open, as it is by default."""
    if sized.driver.execute_script("return window.innerWidth") < 1280:
        pytest.skip("phones and tablets scroll lists sideways")
    showcase()
    for path, column in (
        ("job/?state=discarded", "field-problem"),
        ("job/?state=active", "field-heartbeat_age"),
        ("queue/", "field-failures"),
    ):
        sized.open(path)
        name, seen, width, _height = visible(sized, f"#result_list tbody .{column}")[0]
        assert seen == width, (path, name, seen, width)


def test_long_names_do_not_make_the_page_wide(sized: Browser) -> None:
    (job,) = make(1, queue="q" * 120)
    Job.objects.filter(pk=job.id).update(type="a.very.long.name." * 12)
    sized.open(f"job/{job.id}/change/")
    wide = sized.driver.execute_script("return document.documentElement.scrollWidth")
    assert wide <= sized.driver.execute_script("return window.innerWidth")
    heading = sized.one("#content h2 code").rect
    for button in sized.all(".object-tools a"):
        box = button.rect
        above = box["y"] + box["height"] <= heading["y"]
        below = box["y"] >= heading["y"] + heading["height"]
        assert above or below, button.text


def test_an_open_trace_stays_open(browser: Browser) -> None:
    jobs = showcase()
    browser.open(f"job/{jobs['running']}/change/?refresh=5")
    browser.one("#ojs-timeline ~ details summary").click()
    poll(lambda: browser.one(".ojs-paused").is_displayed())
    assert browser.all("#ojs-timeline ~ details[open]")
    browser.follow("off", within=".ojs-refresh")
