"""No page of the admin breaks a rule of axe, has a script within it or violates the policy: on a phone
and on a laptop, in light and in dark colours, with everything that can be opened closed and open.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User

from tests.browser import axe
from tests.browser.conftest import NAME
from tests.browser.looks import Look, looking
from tests.browser.pages import every_form, every_page, fill
from tests.browser.support import Browser
from tests.support import Manage, gunicorn

COLOURS = ("color-contrast", "link-in-text-block")
LOOKS: dict[Look, tuple[str, ...]] = {
    Look(1280, False, "en"): (),
    Look(390, True, "en"): (),
    Look(1280, True, "en"): COLOURS,
    Look(390, False, "en"): COLOURS,
}
"""With their rules: every one at both widths and in both colours; those about colours in each."""
GERMAN = (Look(1280, False, "de"), Look(390, True, "de"))
# Only data, such as JSON for a script in a file, is between the tags of a script.
_INLINE = """
return [...document.querySelectorAll('script')].filter(
    (script) => !script.src && script.textContent.trim() && !/json/.test(script.type)
).concat([...document.querySelectorAll('*')].filter(
    (one) => [...one.attributes].some(({name}) => name.startsWith('on'))
)).map((one) => one.outerHTML.slice(0, 160));
"""
_OPEN = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"


@pytest.fixture
def filled(browser: Browser) -> Browser:
    """The window on rows of every kind."""
    fill(User.objects.get(username=NAME).pk)
    browser.driver.set_script_timeout(60)
    return browser


def faults(browser: Browser, excused: set[axe.Excuse]) -> list[str]:
    """What is wrong with the page that is shown, as it is and then with everything open."""
    found = [f"{browser.path}: inline: {one}" for one in browser.driver.execute_script(_INLINE)]
    for place, (look, rules) in enumerate(LOOKS.items()):
        with looking(browser, look):
            seen = axe.violations(browser, *rules, excused=excused)
            found += [f"{look} {fault}" for fault in seen]
        if place == 0:
            browser.driver.execute_script(_OPEN)
    return found + browser.heard()


@pytest.mark.timeout(900)
def test_no_page_breaks_a_rule(filled: Browser) -> None:
    """Each excuse for an element of Django's is used: what has been mended there is no excuse."""
    found: list[str] = []
    excused: set[axe.Excuse] = set()
    pages = [*every_page(), *every_form()]
    assert len(pages) > 60
    for path in pages:
        filled.open(path)
        assert "Traceback" not in filled.driver.title
        found += faults(filled, excused)
    assert not found, "\n".join(dict.fromkeys(found))
    assert excused == {*axe.DJANGOS}


@pytest.mark.timeout(300)
def test_confirmations_of_many_break_no_rule(filled: Browser) -> None:
    found: list[str] = []
    for path, action in (("job/?state=discarded", "retry"), ("queue/", "pause"), ("worker/", "quiet")):
        filled.open(path)
        filled.select(2)
        filled.act(action)
        assert filled.all("[name=_confirmed]")
        found += faults(filled, set())
    assert not found, "\n".join(dict.fromkeys(found))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("look", GERMAN, ids=str)
def test_no_page_in_german_breaks_a_rule(filled: Browser, look: Look) -> None:
    """Words are longer, and the language of the page is another one."""
    found: list[str] = []
    with looking(filled, look):
        for path in ("dashboard/", "failurestat/", "queue/", "worker/", "job/", "job/?state=active"):
            filled.open(path)
            assert filled.one("html").get_attribute("lang") == "de"
            found += axe.violations(filled)
    assert not found, "\n".join(found)


@pytest.mark.timeout(180)
def test_the_switch_between_databases_breaks_no_rule(filled: Browser, tmp_path: Path) -> None:
    environment = {
        "DJANGO_SETTINGS_MODULE": "tests.settings_several",
        "OJS_TEST_SECOND": f"sqlite:///{tmp_path}/second.sqlite3",
        "EXAMPLE_VAR": str(tmp_path / "var"),
    }
    migrate = ("migrate", "django_ojs", "--database", "second", "--verbosity", "0")
    made = Manage(migrate, tmp_path / "migrate", environment)
    assert made.wait(100) == 0, made.stderr
    found: list[str] = []
    application = "tests.browser.wsgi:application"
    with gunicorn(application, "/admin/login/", tmp_path / "web", 8, environment) as port:
        browser = Browser(filled.driver, f"http://127.0.0.1:{port}")
        browser.open("job/")
        assert browser.texts(".ojs-databases [aria-current]") == ["default"]
        found += faults(browser, set())
        browser.follow("second", ".ojs-databases")
        assert browser.texts(".ojs-databases [aria-current]") == ["second"]
        assert not browser.all(".ojs-job")
        found += faults(browser, set())
    assert not found, "\n".join(dict.fromkeys(found))


@pytest.mark.parametrize(
    ("planted", "rule"),
    [
        ('<button type="button"></button>', "button-name"),
        ('<img src="data:,">', "image-alt"),
        ('<input type="text">', "label"),
        ('<p class="ojs-quiet" id="pale">pale</p>', "color-contrast"),
        ('<div role="listitem">alone</div>', "aria-required-parent"),
    ],
)
def test_a_violation_of_ours_is_found(filled: Browser, planted: str, rule: str) -> None:
    filled.open("job/")
    assert not axe.violations(filled)
    filled.driver.execute_script(
        "document.getElementById('ojs-list').insertAdjacentHTML('afterbegin', arguments[0]);"
        "const pale = document.getElementById('pale');"
        "if (pale) { pale.style.color = '#bbb'; }",
        planted,
    )
    (fault,) = axe.violations(filled)
    assert f": {rule} (" in fault
    filled.heard()


def test_a_script_of_a_page_itself_is_found(filled: Browser) -> None:
    filled.open("job/")
    assert not filled.driver.execute_script(_INLINE)
    filled.driver.execute_script(
        "document.getElementById('ojs-list').insertAdjacentHTML('beforeend',"
        " '<script>1</script><p onclick=\"1\">x</p>')"
    )
    assert len(filled.driver.execute_script(_INLINE)) == 2
    filled.heard()
