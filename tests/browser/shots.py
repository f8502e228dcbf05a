"""Pictures of the documentation: where they are taken, and what must be seen on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from PIL import Image

from django_ojs import clock
from django_ojs.domain.job import Actor
from django_ojs.domain.states import State
from django_ojs.models import Job
from django_ojs.services import bulk
from tests.browser.conftest import NAME
from tests.browser.looks import Look, looking
from tests.browser.pages import fill
from tests.browser.support import Browser
from tests.browser.test_people import outage
from tests.support import ROOT

IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 150_000
MOST_SMALL = 70_000
BROKEN = 1100
_LAPTOP = Look(1280, False, "en")
_IN_VIEW = """
return arguments[0].filter(function (selector) {
    return ![...document.querySelectorAll(selector)].some(function (element) {
        const box = element.getBoundingClientRect();
        return box.width > 0 && box.height > 0 && box.left >= 0 && box.right <= innerWidth + 1
            && box.top >= 0 && box.top < innerHeight - 20;
    });
});
"""
_SCROLL = "document.querySelector(arguments[0]).scrollIntoView({block: 'start'})"


def _nothing(browser: Browser) -> None:
    """What a reader does before a picture of a page as it is."""


class Shot(NamedTuple):
    """A picture of a page: its path below the admin of the app, what must be seen on it, what the
    reader does first, and how it looks.
    """

    path: str
    shows: tuple[str, ...]
    before: Callable[[Browser], None] = _nothing
    look: Look = _LAPTOP
    height: int = 720


MAIN: Mapping[str, Shot] = {
    name: Shot(path, shows, height=900)
    for name, path, shows in (
        ("dashboard", "dashboard/?window=24h", (".ojs-card", ".ojs-plot", ".ojs-legend")),
        ("jobs", "job/", (".ojs-tabs", ".ojs-args", ".ojs-problem")),
        ("job-running", "job/{running}/change/", (".ojs-clock-execution", "progress, meter")),
        ("job-timed-out", "job/{timed_out}/change/", (".ojs-verdict", "#ojs-timeline + svg")),
        ("queues", "queue/", ("#ojs-board .field-busy", ".ojs-spark", ".ojs-switch")),
        ("failures", "failurestat/", (".ojs-incident", ".ojs-trend", ".ojs-numbers", ".ojs-acts")),
    )
}
"""Of the main pages, for the README too."""


def _open_menu(browser: Browser) -> None:
    browser.all("#result_list .ojs-menu summary")[1].click()
    browser.driver.execute_script(_SCROLL, "#changelist-form")


def _ask_to_retry_all(browser: Browser) -> None:
    browser.submit(".ojs-incident .ojs-acts .button")


def _to(section: str) -> Callable[[Browser], None]:
    selector = f"section[aria-labelledby=ojs-{section}]"
    return lambda browser: browser.driver.execute_script(_SCROLL, selector)


def _open_trace(browser: Browser) -> None:
    _to("attempts")(browser)
    browser.one("section[aria-labelledby=ojs-attempts] details summary").click()


def _open_log(browser: Browser) -> None:
    _to("attempts")(browser)
    browser.one("section[aria-labelledby=ojs-attempts] [id^=ojs-log-][id$=-folded] summary").click()


OTHERS: Mapping[str, Shot] = {
    "list-failed": Shot(
        "job/?state=discarded",
        (".ojs-problem", ".ojs-args", ".ojs-menu[open] .ojs-again", ".ojs-copy"),
        _open_menu,
    ),
    "search": Shot(
        'job/?q=error:SMTPServerDisconnected "unexpectedly closed"',
        (".ojs-narrowings .ojs-chip", ".ojs-views a", ".ojs-problem", "#searchbar"),
    ),
    "sorted": Shot("job/?state=completed&sort=-duration", (".sorted, [aria-sort]", ".field-duration")),
    "failures-table": Shot("failurestat/?view=table", (".ojs-matrix td", "[aria-sort]")),
    "retry-all": Shot("failurestat/", (".ojs-note", "[name=_confirmed]"), _ask_to_retry_all),
    "job-failed": Shot("job/{broken}/change/", (".ojs-verdict", ".ojs-frame")),
    "job-waiting": Shot("job/{waiting}/change/", ("#ojs-why", "form.ojs-remedy .button")),
    "job-attempts": Shot("job/{timed_out}/change/", ("#ojs-attempts", ".ojs-error"), _open_trace),
    "job-log": Shot("job/{timed_out}/change/", ("#ojs-attempts", "[id^=ojs-log-]"), _open_log),
    "job-data": Shot("job/{timed_out}/change/", ("#ojs-data",), _to("data")),
    "job-runs": Shot(
        "job/{completed}/change/", ("section[aria-labelledby=ojs-related] svg",), _to("related")
    ),
    "extend": Shot("job/{running}/do/extend/", ("[name=by]", "[name=reason]", "[name=_confirmed]")),
    "requeue": Shot("job/{timed_out}/do/requeue/", ("[name=args]", "[name=reason]")),
    "workers": Shot("worker/", ("#ojs-board meter", ".ojs-runs li")),
    "schedules": Shot("schedule/", ("#result_list td",)),
    "audit": Shot("auditentry/", ("#result_list td",)),
    "german": Shot("job/?state=discarded", (".ojs-problem",), look=Look(1280, False, "de")),
    "dark": Shot("dashboard/?window=24h", (".ojs-card",), look=Look(1280, True, "en")),
    "phone": Shot(
        "job/?state=discarded",
        (".ojs-problem", ".ojs-args"),
        lambda browser: browser.driver.execute_script(_SCROLL, "#result_list"),
        Look(390, False, "en"),
        844,
    ),
    "phone-failures": Shot(
        "failurestat/",
        (".ojs-incident", ".ojs-acts"),
        lambda browser: browser.driver.execute_script(_SCROLL, ".ojs-incidents"),
        Look(390, True, "en"),
        844,
    ),
}
"""Of what the page about other admins compares."""
ELSEWHERE = ("bulk", "viewer", "theme")
"""Those with rows, a user or a server of their own."""


def names() -> set[str]:
    """All pictures, as paths below the folder of images."""
    return {*MAIN, *(f"admin/{name}" for name in (*OTHERS, *ELSEWHERE))}


def scene() -> dict[str, Any]:
    """A day of work, a bad deployment, and jobs that are worth a picture, by what is said of them."""
    fill(User.objects.get(username=NAME).pk)
    Job.objects.filter(type=bulk.TYPE).delete()
    broken = outage(BROKEN)
    found = {"broken": broken[0]}
    now = clock.now("default")
    rows = Job.objects.filter(state=State.AVAILABLE, queue="billing")
    found["waiting"] = rows.order_by("-pk")[0].pk
    ended = Job.objects.filter(state=State.COMPLETED, finished_at__gt=now - timedelta(days=1))
    found["completed"] = ended.filter(type="mail.send").order_by("-pk")[0].pk
    found["running"] = Job.objects.filter(progress__gt=0.8)[0].pk
    found["timed_out"] = Job.objects.filter(error__message__startswith="The attempt ran longer")[0].pk
    return found


def retrying() -> None:
    """Bulk work of the user that is well under way."""
    user, now = User.objects.get(username=NAME), clock.now("default")
    actor, which = Actor("admin", NAME, "the bank is back"), bulk.Filter(state="discarded")
    made = bulk.start("retry", which, {}, actor, user=user.pk, count=f"{BROKEN:,}")
    Job.objects.filter(pk=made.id).update(
        state=State.ACTIVE,
        attempt=1,
        lease_id=clock.new_lease(),
        lease_seq=1,
        started_at=now - timedelta(seconds=2),
        deadline_at=now + timedelta(hours=1),
        checkpoint={"done": 600, "skipped": 2, "of": BROKEN, "exact": True},
    )


def take(browser: Browser, shot: Shot, file: Path, rows: Mapping[str, Any], colours: int) -> None:
    """Take a picture of few colours, so that it is small."""
    with looking(browser, shot.look, shot.height):
        browser.open(shot.path.format(**rows))
        shot.before(browser)
        missing = browser.driver.execute_script(_IN_VIEW, list(shot.shows))
        assert not missing, f"{file.stem} does not show {missing}"
        browser.driver.save_screenshot(str(file))
    with Image.open(file) as whole:
        assert whole.size == (shot.look.width, shot.height), file
        whole.convert("RGB").quantize(colours, dither=Image.Dither.NONE).save(file, optimize=True)
