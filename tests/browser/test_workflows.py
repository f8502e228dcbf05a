"""The screens of workflows: the list with progress, the page with its graph, cancel and resume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from django_ojs import WorkflowRecord, batch, chain, get_workflow, group, step, workflow
from django_ojs.models import AuditEntry, Job, Workflow
from tests.browser.conftest import NAME
from tests.browser.support import Browser
from tests.services.support import ack, fail, take
from tests.support import poll

ONCE: dict[str, Any] = {"retry": {"max_attempts": 1}}
LONG = "shop.reports.imports.of.the.whole.month.with.a.long.name"
WIDTHS = (390, 768, 1280)
_TOO_WIDE = "return document.documentElement.scrollWidth - window.innerWidth"
_BEYOND = """
return [...document.querySelectorAll(arguments[0])].filter(function (element) {
    const box = element.getBoundingClientRect();
    const inner = element.clientWidth && element.scrollWidth > element.clientWidth + 1;
    return box.width && (box.right > window.innerWidth + 1 || inner);
}).map((element) => element.outerHTML.slice(0, 200));
"""
_BOXES = """
return [...document.querySelectorAll('.ojs-graph a')].map(function (link) {
    const box = link.querySelector('rect').getBoundingClientRect();
    return [link.getAttribute('href'), Math.round(box.top), Math.round(box.left)];
});
"""
_FOCUS = """
return ['href', 'aria-label'].map((name) => document.activeElement.getAttribute(name));
"""
_CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
function light(colour) {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(function (part) {
        part /= 255;
        return part <= 0.03928 ? part / 12.92 : Math.pow((part + 0.055) / 1.055, 2.4);
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
}
function ratio(one, other) {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
}
return [...document.querySelectorAll('.ojs-graph rect')].flatMap(function (rect) {
    const fill = getComputedStyle(rect).fill, page = getComputedStyle(document.body).backgroundColor;
    return [...rect.parentNode.querySelectorAll('text')].map(
        (text) => ratio(getComputedStyle(text).fill, fill)
    ).concat(ratio(getComputedStyle(rect).stroke, page) * 1.5); // 3 will do for lines
});
"""


def path_of(made: WorkflowRecord) -> str:
    """The path of its page."""
    return f"workflow/{made.id}/change/"


def an_import() -> WorkflowRecord:
    """A DAG of which one step has failed, one has a long name, and the rest does not run."""
    with workflow("import of november") as made:
        fetched = made.add(step("files.fetch"))
        other = made.add(step(LONG))
        parsed = made.add(step("files.parse", **ONCE), after=fetched)
        merged = made.add(step("files.merge"), after=[parsed, other])
        made.add(step("report.render"), after=merged)
        made.add(step("mail.send"), after=[merged, fetched])
    ack(*take(2, types=["files.fetch", LONG]))
    fail(*take(types=["files.parse"]), type="TimeoutError")
    return get_workflow(Workflow.objects.get(name="import of november").pk)


def a_deep_one() -> WorkflowRecord:
    """Forty steps in twenty layers, with lines that pass others."""
    made = workflow("deep")
    nodes = [made.add(step("a.first"))]
    for number in range(1, 40):
        after = [
            nodes[-2] if number > 1 else nodes[-1],
            *([nodes[number // 3]] if number % 7 == 0 else []),
        ]
        nodes.append(made.add(step(f"deep.step-{number}"), after=after))
    return made.enqueue()


def a_wide_one() -> WorkflowRecord:
    """Eleven beside each other, and callbacks of which one failed."""
    made = batch(
        *(step(f"part.no-{number}", **ONCE) for number in range(11)),
        on_success=step("all.good"),
        on_complete=step("all.done", **ONCE),
        on_failure=step("all.bad"),
    ).enqueue(name="W" * 200)
    ack(*take(7, types=[f"part.no-{number}" for number in range(11)]))
    return made


def a_large_one() -> WorkflowRecord:
    """A table only."""
    return chain(*(step(LONG if number % 3 else "a.b") for number in range(60))).enqueue(name="sixty")


def a_group() -> WorkflowRecord:
    """One box."""
    made = group(*(step("mail.send", [number]) for number in range(200))).enqueue(name="newsletter")
    ack(*take(30, types=["mail.send"]))
    return made


LAYOUTS = (an_import, a_deep_one, a_wide_one, a_large_one, a_group)


@pytest.fixture
def screen(browser: Browser) -> Iterator[Browser]:
    """The window; its width and colours are reset."""
    yield browser
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def size(browser: Browser, width: int, *, dark: bool = False) -> None:
    """The window at a width, in light or dark colours."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def within(browser: Browser, selector: str) -> list[str]:
    """The elements that reach beyond the screen."""
    return list(browser.driver.execute_script(_BEYOND, selector))


@pytest.mark.parametrize("width", WIDTHS)
def test_at_any_width_nothing_is_cut_off(screen: Browser, width: int) -> None:
    """The graph may be scrolled, within its panel."""
    made = [one() for one in LAYOUTS]
    size(screen, width)
    screen.open("workflow/")
    assert len(screen.all("#result_list tbody tr")) == len(made)
    assert not within(screen, "#result_list tbody td, #result_list tbody th")
    for one in made:
        screen.open(path_of(one))
        assert screen.driver.execute_script(_TOO_WIDE) <= 0, one.name
        assert not within(screen, "h1, .object-tools a, .ojs-story, .ojs-flow td, .ojs-flow th"), (
            one.name
        )
        assert not screen.faults(), one.name


@pytest.mark.parametrize("dark", [False, True])
def test_the_graph_can_be_read_in_light_and_in_dark(screen: Browser, dark: bool) -> None:
    made = an_import()
    size(screen, 1280, dark=dark)
    screen.open(path_of(made))
    found = screen.driver.execute_script(_CONTRAST)
    assert len(found) == 6 * 3
    assert min(found) >= 4.5
    colours = {box.value_of_css_property("stroke") for box in screen.all(".ojs-graph rect")}
    assert len(colours) == 3, "completed, discarded and cancelled"


def test_the_list_shows_how_far_each_is(browser: Browser) -> None:
    an_import()
    a_group()
    browser.open("workflow/")
    assert browser.texts("td.field-progress") == ["30 of 200", "2 of 6"]
    assert browser.texts("td.field-status") == ["running", "failed"]
    bars = browser.all("td.field-progress progress")
    assert [bar.get_attribute("aria-label") for bar in bars] == ["30 of 200", "2 of 6"]
    browser.follow("failed", "#changelist-filter")
    browser.follow("import of november", "#result_list")
    assert browser.one("h1").text.startswith("import of november")


def test_boxes_are_links_in_the_order_of_reading(browser: Browser) -> None:
    """By Tab, line by line from left to right; each says its name, type and state, and leads there."""
    made = an_import()
    browser.open(path_of(made))
    boxes = browser.driver.execute_script(_BOXES)
    assert len(boxes) == 3
    assert boxes == sorted(boxes, key=lambda box: (box[1], box[2]))
    for _ in range(80):
        browser.press(Keys.TAB)
        if browser.driver.execute_script(_FOCUS)[0] == boxes[0][0]:
            break
    names = []
    for place, (href, _top, _left) in enumerate(boxes):
        if place:
            browser.press(Keys.TAB)
        focused, name = browser.driver.execute_script(_FOCUS)
        assert focused == href
        names.append(name)
    assert names == [
        "step-0: files.fetch · completed",
        f"step-1: {LONG} · completed",
        "step-2: files.parse · discarded",
    ]
    rest = [box.get_attribute("aria-label") for box in browser.all(".ojs-graph g[role=img]")]
    assert [str(name).rpartition(" · ")[2] for name in rest] == ["cancelled"] * 3
    assert len(browser.all(".ojs-flow tbody tr")) == 6
    browser.leave(lambda: browser.press(Keys.ENTER))
    assert browser.path.endswith(f"job/{Job.objects.get(type='files.parse').pk}/change/")


def test_beyond_fifty_steps_there_is_a_table_alone(browser: Browser) -> None:
    browser.open(path_of(a_large_one()))
    assert not browser.all(".ojs-graph")
    assert len(browser.all(".ojs-flow tbody tr")) == 60
    browser.open(path_of(a_deep_one()))
    assert len(browser.all(".ojs-graph rect")) == 40


def test_cancel_and_resume(browser: Browser) -> None:
    made = a_group()
    browser.open(path_of(made))
    browser.follow("Cancel", ".object-tools")
    assert get_workflow(made.id).state == "running", "not before it is confirmed"
    assert not browser.faults()
    browser.confirm("wrong list")
    poll(lambda: get_workflow(made.id).state == "cancelled")
    assert browser.one("h1 .ojs-badge").text == "cancelled"
    assert "170 were cancelled" in browser.one(".ojs-story").text
    browser.follow("Resume", ".object-tools")
    browser.confirm("the right one")
    poll(lambda: get_workflow(made.id).state == "running")
    assert browser.one("h1 .ojs-badge").text == "running"
    entries = AuditEntry.objects.filter(target_id=str(made.id)).order_by("pk")
    assert [(one.action, one.actor, one.reason) for one in entries] == [
        ("workflow.cancelled", NAME, "wrong list"),
        ("workflow.resumed", NAME, "the right one"),
    ]


def test_the_page_follows_what_happens_until_the_end(browser: Browser) -> None:
    made = chain(step("a.b"), step("a.c")).enqueue(name="two")
    browser.open(path_of(made))
    browser.follow("5 s", within=".ojs-refresh")
    for kind in ("a.b", "a.c"):
        ack(*take(types=[kind]))
    poll(lambda: "2 of 2 steps done" in browser.driver.page_source)
    assert not browser.all(".ojs-refresh"), "it is over"
    assert browser.one("h1 .ojs-badge").text == "completed"
    browser.open("workflow/")
    browser.follow("off", within=".ojs-refresh")
