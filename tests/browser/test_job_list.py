"""The job list by hand: what a click on a value does."""

from __future__ import annotations

from tests.browser.rows import showcase
from tests.browser.support import Browser


def test_a_click_on_a_value_narrows_the_list(browser: Browser) -> None:
    showcase()
    browser.open("job/?state=discarded")
    before = len(browser.all(".ojs-job"))
    browser.follow("billing", ".ojs-jobs .field-queue")
    assert set(browser.texts(".field-queue")) == {"billing"}
    browser.submit(".ojs-problem .ojs-chip")
    (error,) = set(browser.texts(".ojs-problem .ojs-chip"))
    assert 0 < len(browser.all(".ojs-job")) < before
    assert browser.texts(".ojs-narrowings .ojs-chip")[0].startswith("queue:billing")
    assert error in browser.one(".ojs-narrowings").text
    for _part in browser.all(".ojs-narrowings .ojs-chip"):
        browser.submit(".ojs-narrowings .ojs-chip")
    assert len(browser.all(".ojs-job")) == before
