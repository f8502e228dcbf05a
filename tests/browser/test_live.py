"""Pages are kept up to date without being loaded: what is open, written and selected stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.by import By

from django_ojs import clock
from django_ojs.models import AttemptLog, Job, Queue
from tests.browser.rows import showcase
from tests.browser.support import Browser
from tests.services.support import ack, make, take
from tests.support import poll

CARD = "#ojs-now .ojs-card strong"


@pytest.fixture
def live(browser: Browser) -> Iterator[Browser]:
    """The window, with pages that are renewed every 5 s."""
    browser.open("job/?refresh=5")
    yield browser
    browser.open("job/?refresh=off")


def stay(browser: Browser) -> None:
    """Remember the page: one that is loaded has forgotten it."""
    browser.driver.execute_script("window.ojsStayed = true")


def stayed(browser: Browser) -> bool:
    return bool(browser.driver.execute_script("return window.ojsStayed === true"))


def test_the_dashboard_changes_and_stays_open(live: Browser) -> None:
    showcase()
    live.open("dashboard/?window=24h")
    stay(live)
    live.one("#ojs-throughput-table summary").click()
    before = live.texts(CARD)[0]
    make(4, queue="mail")
    poll(lambda: live.texts(CARD)[0] == str(int(before) + 4))
    assert live.one("#ojs-throughput-table").get_attribute("open") is not None
    assert live.one("#ojs-throughput-table table").is_displayed()
    assert stayed(live)


def test_an_open_trace_stays_open(live: Browser) -> None:
    jobs = showcase()
    live.open(f"job/{jobs['running']}/change/")
    stay(live)
    live.one("#ojs-timeline ~ details summary").click()
    opened = live.one("#ojs-timeline ~ details[open]")
    Job.objects.filter(pk=jobs["running"]).update(progress=0.91)
    poll(lambda: "91 %" in live.text)
    assert opened.is_displayed()
    assert opened.get_attribute("open") is not None
    assert stayed(live)


def test_an_open_log_stays_open_and_grows(live: Browser) -> None:
    jobs = showcase()
    live.open(f"job/{jobs['running']}/change/")
    stay(live)
    log = AttemptLog.objects.get(job_id=jobs["running"])
    live.one(f"#ojs-log-{log.pk}-folded summary").click()
    shown = live.one(f"#ojs-log-{log.pk}")
    assert shown.is_displayed()
    AttemptLog.objects.filter(pk=log.pk).update(text=f"{log.text}\nanother one", lines=2)
    poll(lambda: "another one" in shown.text)
    assert live.one(f"#ojs-log-{log.pk}-folded summary").text == "Log, 2 lines"
    assert stayed(live)


def test_a_list_changes_but_not_under_ones_hands(live: Browser) -> None:
    jobs = make(2)
    live.open("job/?state=available")
    stay(live)
    assert len(live.all("#result_list .ojs-job")) == 2
    live.select(1)
    ack(*take(1))
    poll(lambda: live.one(".ojs-paused").is_displayed())
    assert len(live.all("#result_list .ojs-job")) == 2
    live.one("input.action-select").click()
    # The script of the list knows the boxes that it was loaded with: here it is loaded.
    poll(lambda: len(live.all("#result_list .ojs-job")) == 1)
    assert not live.one(".ojs-paused").is_displayed()
    stay(live)
    Job.objects.filter(pk=jobs[1].id).update(type="other.type")
    poll(lambda: "other.type" in live.text)
    assert stayed(live)
    live.select(1)
    assert "1 of 1" in live.one(".action-counter").text


def test_what_is_written_in_a_row_stays_though_the_row_moves(live: Browser) -> None:
    make(1, queue="aaa")
    make(2, queue="bbb")
    live.open("queue/")
    stay(live)
    switch = live.all("#ojs-board details")[0]
    name = live.texts("#ojs-board th")[0]
    switch.find_element(By.TAG_NAME, "summary").click()
    field = switch.find_element(By.TAG_NAME, "input")
    field.send_keys("the bank")
    poll(lambda: live.one(".ojs-paused").is_displayed())
    live.driver.execute_script("document.activeElement.blur()")
    # Another queue comes first.
    other = {"aaa": "bbb", "bbb": "aaa"}[name]
    make(5, queue=other)
    Job.objects.filter(queue=name).delete()
    poll(lambda: live.texts("#ojs-board th")[0] == other)
    assert live.texts("#ojs-board th")[1] == name
    assert field.get_attribute("value") == "the bank"
    assert field.find_element(By.XPATH, "ancestor::tr/th").text == name
    assert switch.get_attribute("open") is not None
    assert stayed(live)


def test_a_row_that_came_later_has_its_copy_button(live: Browser) -> None:
    make(1)
    live.open("job/?state=available")
    stay(live)
    # In one statement: with another number of rows the page would be loaded.
    other = clock.new_id()
    Job.objects.update(id=other)
    poll(lambda: live.all(f".ojs-id[title='{other}']"))
    assert stayed(live), "the row has come without the page being loaded"
    live.one(".ojs-menu summary").click()
    button = live.one(".ojs-menu .ojs-copy")
    assert button.is_displayed()
    live.driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardSanitizedWrite"]}
    )
    button.click()
    poll(lambda: button.text == "Copied")


def test_a_hidden_page_asks_for_nothing(live: Browser) -> None:
    make(1)
    live.open("dashboard/")
    stay(live)
    live.driver.execute_script(
        "Object.defineProperty(document, 'hidden', {configurable: true, get: () => true});"
        "window.ojsAsked = 0; const own = window.fetch;"
        "window.fetch = (...rest) => { window.ojsAsked += 1; return own(...rest); };"
        "window.ojsHiddenAt = performance.now();"
    )
    since = "return performance.now() - window.ojsHiddenAt"
    poll(lambda: live.driver.execute_script(since) > 7000)
    assert live.driver.execute_script("return window.ojsAsked") == 0
    make(1)
    live.driver.execute_script("delete document.hidden")
    poll(lambda: live.texts(CARD)[0] == "2")
    assert live.driver.execute_script("return window.ojsAsked") >= 1
    assert stayed(live)


def test_a_page_without_an_answer_says_so(live: Browser) -> None:
    make(1)
    live.open("dashboard/")
    live.driver.execute_script("window.ojsFetch = window.fetch; window.fetch = () => Promise.reject()")
    poll(lambda: live.one(".ojs-stale").is_displayed())
    live.driver.execute_script("window.fetch = window.ojsFetch")
    poll(lambda: not live.one(".ojs-stale").is_displayed())


def test_the_interval_is_remembered(live: Browser) -> None:
    Queue.objects.create(name="q", created_at="2026-01-01T00:00:00Z")
    live.open("queue/")
    assert live.one(".ojs-refresh [aria-current]").text == "5 s"
    live.follow("off", within=".ojs-refresh")
    live.open("dashboard/")
    assert live.one(".ojs-refresh [aria-current]").text == "off"
