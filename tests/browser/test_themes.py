"""The screens in themes of Django's admin: nothing is missing that Django's own look has, nothing is
covered, and everything can be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import pytest
from django.contrib.auth.models import User
from selenium.webdriver.common.keys import Keys

from django_ojs import clock
from django_ojs.domain.states import State
from django_ojs.models import AuditEntry, Job, Queue, SavedView, Worker
from tests.browser import axe, structure
from tests.browser.conftest import NAME
from tests.browser.looks import Look, looking
from tests.browser.pages import every_form, every_page, fill
from tests.browser.support import Browser
from tests.services.support import make
from tests.support import gunicorn, poll

THEMES = ("unfold", "jazzmin", "grappelli")
ON_A_LAPTOP = Look(1280, False, "en")
_OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
_DARK = "document.documentElement.setAttribute('data-bs-theme', 'dark')"
_CLOSE = "document.querySelectorAll('details').forEach((one) => { one.open = false; })"


@pytest.fixture(scope="module", params=THEMES)
def theme(request: pytest.FixtureRequest) -> str:
    if find_spec(request.param) is None:
        pytest.skip(f"django-{request.param} is not installed")
    return str(request.param)


@pytest.fixture(scope="module")
def themed(theme: str, window: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The window, at a server with the theme: the session is the same."""
    folder = tmp_path_factory.mktemp(theme)
    environment = {
        "DJANGO_SETTINGS_MODULE": "tests.settings_theme",
        "OJS_TEST_THEME": theme,
        "EXAMPLE_VAR": str(folder / "var"),
    }
    application = "tests.browser.wsgi:application"
    with gunicorn(application, "/admin/login/", folder / "web", 8, environment) as port:
        yield Browser(window.driver, f"http://127.0.0.1:{port}")


@pytest.fixture
def plain(browser: Browser) -> Browser:
    """The window at the server without a theme, on rows of every kind that do not change with time."""
    fill(User.objects.get(username=NAME).pk)
    now = clock.now("default")
    Worker.objects.update(heartbeat_at=now + timedelta(hours=1))
    Job.objects.filter(state=State.ACTIVE).update(
        started_at=now - timedelta(seconds=9), deadline_at=now + timedelta(days=1)
    )
    browser.driver.set_script_timeout(60)
    return browser


def pages() -> list[str]:
    """One of each kind: jobs differ in few parts."""
    found = [*every_page(), *every_form()]
    jobs = [path for path in found if "/job/" in path or path.startswith("job/")]
    kept = {*jobs[:1], *(path for path in jobs if "change" in path or "lens" in path)}
    kept |= {path for path in jobs if path.endswith(("do/requeue/", "do/extend/", "do/purge/"))}
    return [path for path in found if path not in jobs or path in kept]


def shown(browser: Browser, path: str) -> Counter[str]:
    """The parts of a page with everything open."""
    browser.open(path)
    browser.driver.execute_script(_OPEN)
    return structure.parts(browser)


@pytest.mark.timeout(900)
def test_nothing_is_lost(plain: Browser, themed: Browser) -> None:
    found = []
    with looking(plain, ON_A_LAPTOP):
        for path in pages():
            wanted = shown(plain, path)
            fields = structure.fields(plain)
            assert wanted.total() + len(fields) > 5, path
            lost = wanted - shown(themed, path)
            found += [f"{path}: does not say {text!r}" for text in structure.lacks(themed, fields)]
            found += [f"{path}: lost {count} x {part}" for part, count in lost.items()]
            themed.driver.execute_script(_CLOSE)
            found += [f"{path}: {flaw}" for flaw in structure.flaws(themed)]
    assert not found, "\n".join(found)


@pytest.mark.timeout(300)
def test_everything_can_be_read(plain: Browser, theme: str, themed: Browser) -> None:
    found = []
    paths = (
        "dashboard/",
        "failurestat/",
        "queue/",
        "worker/",
        "job/",
        "job/?state=discarded",
        "auditentry/",
    )
    job = Job.objects.filter(state=State.ACTIVE)[0].pk
    for dark in (False, True):
        with looking(plain, Look(1280, dark, "en")):
            for path in (*paths, f"job/{job}/change/", f"job/{job}/do/cancel/"):
                themed.open(path)
                if dark and theme == "jazzmin":
                    themed.driver.execute_script(_DARK)
                faults = axe.violations(themed, "color-contrast", within=structure.OURS)
                found += [f"{'dark' if dark else 'light'} {fault}" for fault in faults]
    assert not found, "\n".join(found)


@pytest.mark.timeout(180)
def test_people_do_their_work(plain: Browser, themed: Browser) -> None:
    """Go on, search, save a view, select and act, act on the page of a job, pause a queue in place."""
    # Themes that scroll slowly do not where nobody wants to see that.
    still = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    themed.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", still)
    themed.open("job/")
    first = [row.get_attribute("data-key") for row in themed.all(".ojs-job")]
    assert len(first) == 50
    themed.submit(".ojs-pages [rel=next]")
    assert not {*first} & {row.get_attribute("data-key") for row in themed.all(".ojs-job")}

    make(3, "shop.invoice", queue="mail")
    themed.open("job/")
    themed.fill("q", "type:shop.invoice")
    themed.leave(lambda: themed.press(Keys.ENTER))
    assert len(themed.all(".ojs-job")) == 3
    themed.one(".ojs-save summary").click()
    themed.fill("name", "Invoices")
    themed.submit(".ojs-save .button")
    assert SavedView.objects.filter(name="Invoices").exists()
    themed.select(2)
    assert "2 of 3 selected" in themed.one(".actions").text
    themed.act("cancel")
    themed.confirm("a test")
    poll(lambda: Job.objects.filter(type="shop.invoice", state="cancelled").count() == 2)

    themed.open("job/?state=completed")
    themed.one("#action-toggle").click()
    assert len(themed.all(".action-select:checked")) == 50
    themed.one(".actions .question a").click()
    themed.act("purge")
    most = Job.objects.filter(state="completed").count()
    assert f"{most} rows" in themed.text

    themed.open(f"job/{Job.objects.filter(state='discarded')[0].pk}/change/")
    themed.follow("Retry", ".object-tools")
    themed.confirm("again")
    assert themed.one("h1.ojs-title .ojs-badge").text == "available"
    assert AuditEntry.objects.filter(action="job.retried", reason="again").exists()

    themed.open("queue/")
    row: Any = themed.one("#ojs-board tr[data-key='mail']")
    row.find_element("css selector", ".ojs-switch summary").click()
    row.find_element("css selector", "[name=reason]").send_keys("the mail server is down")
    themed.leave(row.find_element("css selector", ".ojs-switch .button").click)
    assert Queue.objects.get(name="mail").paused

    themed.open("auditentry/")
    themed.one(".ojs-filter summary").click()
    themed.follow("retry", "#changelist-filter")
    assert themed.texts("#result_list .field-action") == ["job.retried"]


@pytest.mark.timeout(120)
def test_a_loss_is_seen(plain: Browser, themed: Browser) -> None:
    """What is hidden, covered or too wide is found."""
    with looking(plain, ON_A_LAPTOP):
        themed.open("job/")
        wanted = structure.parts(themed)
        assert not structure.flaws(themed)
        themed.driver.execute_script(
            "document.querySelector('.ojs-tabs a').style.display = 'none';"
            "document.body.insertAdjacentHTML('beforeend', '<p id=planted>before</p>');"
            "document.getElementById('planted').style.cssText ="
            " 'position: fixed; inset: 0; width: 2000px; z-index: 99999';"
        )
        assert [*(wanted - structure.parts(themed))] == ["a All"]
        assert any("covered" in flaw for flaw in structure.flaws(themed))
