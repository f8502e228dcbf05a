"""What matters can be read on a phone, on a tablet and on a small laptop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_ojs.models import Job, Worker
from tests.browser.rows import showcase
from tests.browser.support import Browser
from tests.services.support import make

WIDTHS = (390, 768, 1280, 1920)
_VISIBLE = """
return [...document.querySelectorAll(arguments[0])].map(function (element) {
    const box = element.getBoundingClientRect();
    const width = Math.min(box.right, document.documentElement.clientWidth) - Math.max(box.left, 0);
    return [element.getAttribute('aria-labelledby') || element.className, Math.round(width),
        Math.round(box.width), Math.round(box.height)];
});
"""

_FITS = """
const found = [...document.querySelectorAll(arguments[0])];
return found.length > 0 && found.every((element) => element.scrollWidth <= element.clientWidth);
"""
_LABELS = """
return [...document.querySelectorAll('.ojs-plot > .ojs-chart')].flatMap(function (chart) {
    const texts = [...chart.querySelectorAll(':scope > text')];
    const boxes = texts.map((text) => text.getBoundingClientRect()).filter((box) => box.width > 0);
    return boxes.slice(1).map((box, place) => box.left > boxes[place].right + 2);
});
"""
_LABEL = "return getComputedStyle(document.querySelector(arguments[0]), '::before').content"
_HEADING = "return document.querySelector(arguments[0]).textContent.trim().toLowerCase()"


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


def fits(browser: Browser, selector: str) -> bool:
    """Whether there are such elements, and nothing in them is to be had by scrolling sideways only."""
    return bool(browser.driver.execute_script(_FITS, selector))


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
        assert fits(sized, ".ojs-panel"), path
        for name, _seen, width, height in visible(sized, ".ojs-panel td:not(:empty)"):
            assert width >= 25 and height <= 8 * width, (path, name, "a column of letters")


def test_the_error_of_an_attempt_can_be_read(sized: Browser) -> None:
    jobs = showcase()
    sized.open(f"job/{jobs['timed_out']}/change/")
    ((_name, seen, width, height),) = visible(sized, ".ojs-error")
    assert seen == width >= 250
    assert height < 200


def test_why_a_job_failed_can_be_read_in_the_list(sized: Browser) -> None:
    """With Django's sidebar open, as it is by default; beside long names too."""
    showcase()
    long = Job.objects.filter(state="discarded").order_by("-finished_at")[0]
    Job.objects.filter(pk=long.pk).update(type="shop.reports.of.the.month", queue="tenant-47.reports")
    for path in ("job/?state=discarded", "job/?state=retryable", "deadletter/", "job/"):
        sized.open(path)
        for part, least, tall in (("ojs-problem", 150, 100), ("field-job", 180, 120)):
            found = visible(sized, f"#result_list .{part}")
            assert len(found) >= 5, path
            for name, seen, width, height in found:
                assert seen == width, (path, name, seen, width)
                assert height <= tall, (path, name, height)
            assert max(width for _name, _seen, width, _height in found) >= least, (path, part)
        assert fits(sized, ".results"), path


def test_what_a_row_says_is_on_the_screen(sized: Browser) -> None:
    showcase()
    for state, columns in (
        ("active", ("job", "queue", "attempts", "budget", "heartbeat_age", "why", "menu")),
        ("completed", ("job", "queue", "attempts", "when", "duration", "waited", "why", "menu")),
        ("scheduled", ("job", "queue", "when", "why", "menu")),
    ):
        sized.open(f"job/?state={state}")
        for column in columns:
            cells = visible(sized, f"#result_list tbody .field-{column}")
            assert len(cells) >= 5, (state, column)
            assert all(seen == width > 20 for _name, seen, width, _height in cells), (state, column)


def test_the_menu_of_a_row_is_on_the_screen(sized: Browser) -> None:
    """That of the last row, too, and beside it nothing moves."""
    showcase()
    sized.open("job/?state=discarded")
    for place in (0, -1):
        menu = sized.all("#result_list .ojs-menu")[place]
        before = sized.one("#result_list .ojs-job").rect
        menu.find_element("css selector", "summary").click()
        box = menu.find_element("css selector", "div")
        sized.driver.execute_script("arguments[0].scrollIntoView({block: 'nearest'})", box)
        seen = sized.driver.execute_script(
            "const box = arguments[0].getBoundingClientRect();"
            "return box.left >= 0 && box.right <= innerWidth && box.bottom <= innerHeight + 1",
            box,
        )
        assert seen, place
        assert sized.one("#result_list .ojs-job").rect == before
        wide = sized.driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= sized.driver.execute_script("return window.innerWidth")
        menu.find_element("css selector", "summary").click()


def test_every_column_of_a_queue_is_on_the_screen(sized: Browser) -> None:
    showcase()
    sized.open("queue/")
    for column in ("name", "badges", "available", "retryable", "oldest", "failures"):
        cells = visible(sized, f"#result_list tbody .field-{column}")
        assert len(cells) >= 5
        assert all(seen == width > 10 for _name, seen, width, _height in cells), column
    paused = visible(sized, "#result_list tbody .field-paused_because:has([data-label])")
    assert paused
    assert all(seen == width >= 100 for _name, seen, width, _height in paused)
    assert fits(sized, ".results")


def test_every_column_of_a_worker_is_on_the_screen(sized: Browser) -> None:
    showcase()
    sized.open("worker/")
    for column in ("name", "badges", "slots", "runs", "memory", "version", "heartbeat", "uptime"):
        cells = visible(sized, f"#result_list tbody .field-{column}")
        assert len(cells) == 2
        assert all(seen == width > 10 for _name, seen, width, _height in cells), column
    assert fits(sized, ".results")


def test_charts_and_their_tables_fill_the_width(sized: Browser) -> None:
    """And what is written in them keeps its size."""
    showcase()
    for window in ("1h", "24h", "7d", "30d"):
        sized.open(f"dashboard/?window={window}")
        charts = visible(sized, ".ojs-plot > .ojs-chart")
        assert len(charts) == 5
        for _name, seen, width, height in charts:
            assert seen == width >= 240
            assert height == 196
        legends = visible(sized, ".ojs-legend")
        assert legends
        assert all(seen == width >= 150 for _, seen, width, _ in legends)
        size = "return getComputedStyle(document.querySelector('.ojs-chart text')).fontSize"
        assert sized.driver.execute_script(size) == "11px"
        assert fits(sized, ".ojs-charts > .ojs-panel")
        labels = sized.driver.execute_script(_LABELS)
        assert labels and all(apart for apart in labels), (window, labels)


def test_a_list_of_cards_says_what_each_number_is(sized: Browser) -> None:
    """Where there is no line of headings, the numbers have their names with them."""
    if sized.driver.execute_script("return window.innerWidth") >= 1280:
        pytest.skip("headings")
    showcase()
    for path, column in (
        ("job/?state=active", "heartbeat_age"),
        ("job/?state=completed", "duration"),
        ("job/?state=completed", "waited"),
        ("job/", "attempts"),
        ("queue/", "available"),
        ("queue/", "oldest"),
        ("queue/", "failures"),
        ("queue/", "paused_because"),
        ("worker/", "memory"),
        ("worker/", "slots"),
    ):
        sized.open(path)
        label = sized.driver.execute_script(_LABEL, f"#result_list tbody .field-{column} [data-label]")
        heading = sized.driver.execute_script(_HEADING, f"#result_list thead .column-{column}")
        assert label == f'"{heading}: "', (path, column)
    assert visible(sized, "#action-toggle")[0][1] > 5, "all can be selected"


def test_no_page_is_wider_than_the_screen(sized: Browser) -> None:
    showcase()
    for path in (
        "job/",
        "job/?state=completed&queue=mail&q=type:mail.send",
        "queue/",
        "worker/",
        "failurestat/",
        "dashboard/",
        "attempt/",
        "auditentry/",
    ):
        sized.open(path)
        wide = sized.driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= sized.driver.execute_script("return window.innerWidth"), path


def test_long_names_do_not_make_the_page_wide(sized: Browser) -> None:
    (job,) = make(1, queue="q" * 120)
    Job.objects.filter(pk=job.id).update(type="a.very.long.name." * 12)
    sized.open(f"job/{job.id}/change/")
    wide = sized.driver.execute_script("return document.documentElement.scrollWidth")
    assert wide <= sized.driver.execute_script("return window.innerWidth")
    heading = sized.one("#content h2 code").rect
    buttons = sized.all(".object-tools a")
    assert buttons
    for button in buttons:
        box = button.rect
        above = box["y"] + box["height"] <= heading["y"]
        below = box["y"] >= heading["y"] + heading["height"]
        assert above or below, button.text
