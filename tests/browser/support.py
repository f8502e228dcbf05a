"""Chromium as a user would drive it, on a real server; what it complains of is a failure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.ui import Select

from tests.support import poll

CHROMIUM, CHROMEDRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
PASSWORD = "open sesame"
BASE = "/admin/django_ojs/"
# The two fields of a moment are Django's own, which has no labels for them.
_UNLABELLED = """
return [...document.querySelectorAll('input, select, textarea')].filter(function (field) {
    return !['hidden', 'submit', 'button', 'image'].includes(field.type)
        && !(field.labels && field.labels.length) && !field.getAttribute('aria-label')
        && !field.getAttribute('aria-labelledby') && !field.title
        && !field.matches('.vDateField, .vTimeField');
}).map(function (field) { return field.outerHTML; });
"""


def start_chromium(profile: Path, width: int = 1280, height: int = 900) -> webdriver.Chrome:
    """Debian's Chromium; nothing is downloaded, and no name is looked up."""
    if not (CHROMIUM.exists() and CHROMEDRIVER.exists()):
        pytest.skip("chromium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        "--lang=en-US",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={profile}",
        f"--window-size={width},{height}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    environment = {**os.environ, "SE_OFFLINE": "true", "SE_AVOID_STATS": "true"}
    service = Service(str(CHROMEDRIVER), env=environment)
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_page_load_timeout(30)
    return driver


def begins(element: WebElement, text: str) -> bool:
    """Whether its text begins with these words; styles may show them in capitals."""
    return (element.text or "").strip().casefold().startswith(text.casefold())


class Browser:
    """A window: ``open`` a page of the app by its path below ``/admin/django_ojs/``, look, click."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver = driver
        self.address = address
        self.complaints: list[str] = []

    def open(self, path: str = "") -> None:
        """Load a page; from the root of the server when the path begins with a slash."""
        self.listen()
        self.driver.get(self.address + (path if path.startswith("/") else BASE + path))

    def login(self, name: str) -> None:
        """Through the form."""
        self.forget()
        self.open("/admin/login/?next=/admin/")
        self.fill("username", name)
        self.fill("password", PASSWORD)
        self.leave(lambda: self.one("[type=submit]").click())
        assert self.path == "/admin/", self.text

    def forget(self) -> None:
        """As a browser that was never here."""
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})

    @property
    def path(self) -> str:
        """Where the window is, without the server's address and the query."""
        return self.driver.current_url.removeprefix(self.address).partition("?")[0]

    @property
    def text(self) -> str:
        """What is to be read on the page."""
        return self.one("body").text

    def all(self, selector: str) -> list[WebElement]:
        """Every element."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """The first element."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """The texts of every element."""
        return [element.text for element in self.all(selector)]

    def fill(self, name: str, text: str) -> None:
        """Write into the field of that name."""
        field = self.one(f"[name='{name}']")
        field.clear()
        field.send_keys(text)

    def choose(self, name: str, value: str) -> None:
        """Choose from the list of that name."""
        Select(self.one(f"select[name='{name}']")).select_by_value(value)

    def follow(self, text: str, within: str = "#container") -> None:
        """Click the link whose text begins with these words, and wait for the page."""
        links = [link for link in self.all(f"{within} a") if begins(link, text)]
        assert links, f"no link {text!r} on {self.path}"
        self.leave(links[0].click)

    def submit(self, selector: str) -> None:
        """Press a button, and wait for the page."""
        self.leave(self.one(selector).click)

    def confirm(self, reason: str = "") -> None:
        """Say yes on the page of a confirmation."""
        if reason:
            self.fill("reason", reason)
        self.submit("[name=_confirmed]")

    def select(self, rows: int) -> None:
        """Tick the first rows of a list."""
        for box in self.all("input.action-select")[:rows]:
            box.click()

    def act(self, action: str) -> None:
        """Run an action of the list."""
        self.choose("action", action)
        self.submit(".actions [type=submit], .actions button")

    def leave(self, click: Any) -> None:
        """Do what leads to another page, and wait until that page is complete."""
        self.listen()
        self.driver.execute_script("window.ojsOldPage = true")
        click()
        ready = "return !window.ojsOldPage && document.readyState === 'complete'"
        poll(lambda: self.driver.execute_script(ready))

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        chain = webdriver.ActionChains(self.driver)
        for key in keys:
            chain.send_keys(key)
        chain.perform()

    def tab_to(self, text: str, most: int = 80) -> WebElement:
        """Press Tab until the element with that text, or name, has the focus."""
        for _ in range(most):
            self.press(Keys.TAB)
            element = self.driver.switch_to.active_element
            if begins(element, text) or element.get_attribute("name") == text:
                return element
        raise AssertionError(f"{most} times Tab did not lead to {text!r}")

    def alerted(self) -> bool:
        """Whether a script of the page has opened a dialog."""
        return bool(expected_conditions.alert_is_present()(self.driver))

    def listen(self) -> None:
        """Remember what the browser wrote to its console since."""
        for entry in self.driver.get_log("browser"):
            if entry["level"] in ("SEVERE", "WARNING"):
                self.complaints.append(f"{entry['source']}: {entry['message']}")

    def heard(self) -> list[str]:
        """What the browser complained of since the last call: errors and violated policies."""
        self.listen()
        found, self.complaints = self.complaints, []
        return found

    def faults(self) -> list[str]:
        """What is wrong with the page for whoever cannot see it, and what the browser says of it."""
        found = [] if len(self.all("h1")) == 1 else [f"{self.texts('h1')} as h1"]
        found += [f"no label: {field}" for field in self.driver.execute_script(_UNLABELLED)]
        ids: Sequence[str] = self.driver.execute_script(
            "return [...document.querySelectorAll('[id]')].map(x => x.id)"
        )
        found += [f"twice: #{name}" for name in sorted({name for name in ids if ids.count(name) > 1})]
        if not self.driver.execute_script("return document.documentElement.lang"):
            found.append("no language")
        return [f"{self.path}: {fault}" for fault in [*found, *self.heard()]]
