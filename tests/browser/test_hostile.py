"""Everything that is shown is hostile: no page of the app runs it, loads it or makes elements of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.sites import site
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.db.models import Model
from django.urls import reverse

from django_ojs.models import Job, Workflow
from tests.browser.conftest import NAME
from tests.browser.rows import FEW, MANY, MARK, hostile
from tests.browser.support import Browser
from tests.support import not_none, poll

OURS = {
    not_none(model._meta.model_name): model
    for model in site._registry
    if model._meta.app_label == "django_ojs"
}
SCREENS = ("dashboard", "failurestat")
"""Pages in the place of lists."""
# Django's calendar and clock are the only elements that scripts give a style.
_MADE = f"""
return [...document.querySelectorAll(
    '[{MARK}], [onerror], [onload], [onclick], [onmouseover], script:not([src]):not([type]), '
    + '[style]:not(.calendarbox, .clockbox)'
)].map(x => x.outerHTML.slice(0, 200)).concat(
    [...document.querySelectorAll('[href], [src], [action], [formaction]')].flatMap(
        x => ['href', 'src', 'action', 'formaction'].map(name => x.getAttribute(name) || '')
    ).filter(url => /^[\\s\\x00-\\x1f]*(javascript|data|vbscript):/i.test(url))
)
"""


@pytest.fixture(scope="module")
def rows(window: Browser, django_db_blocker: Any) -> Iterator[tuple[Browser, list[UUID]]]:
    """The window on a database in which every text is hostile."""
    from tests.conftest import empty_tables

    with django_db_blocker.unblock():
        empty_tables()
        found = hostile()
        yield window, found
        window.driver.get("about:blank")
        empty_tables()


def harmed(browser: Browser, path: str) -> list[str]:
    """What a page makes of it that is more than text."""
    browser.heard()
    browser.open(path)
    if browser.alerted():
        browser.driver.switch_to.alert.dismiss()
        return [f"{path}: a script ran"]
    if "Traceback" in browser.driver.title or browser.all("#traceback"):
        return [f"{path}: {browser.text[:300]}"]
    found = [*browser.driver.execute_script(_MADE), *browser.heard()]
    if len(browser.all("h1")) != 1:
        found.append(f"not one heading: {browser.text[:300]}")
    return [f"{path}: {fault}" for fault in found]


def shown(browser: Browser, text: str = "{{7*7}}") -> bool:
    """Whether the page has the text, as it is: what it leaves out proves nothing."""
    return text in browser.driver.page_source


def of(model: type[Model], page: str, *arguments: str) -> str:
    """The address of a page of the admin."""
    return reverse(f"admin:django_ojs_{model._meta.model_name}_{page}", args=arguments)


def test_a_page_of_django_itself_bears_the_policy(rows: tuple[Browser, list[UUID]]) -> None:
    """So that whatever is found elsewhere is ours."""
    browser, _ids = rows
    user = User.objects.get(username=NAME)
    found = harmed(browser, reverse("admin:auth_user_changelist"))
    found += harmed(browser, reverse("admin:auth_group_add"))
    found += harmed(browser, reverse("admin:auth_user_change", args=[user.pk]))
    assert not found, "\n".join(found)


def test_harm_would_be_seen(rows: tuple[Browser, list[UUID]]) -> None:
    """What the other tests look for is found when it is there."""
    browser, _ids = rows
    browser.open("job/")
    assert not browser.driver.execute_script(_MADE)
    browser.driver.execute_script(
        "document.querySelector('h1').insertAdjacentHTML('beforeend', arguments[0])",
        '<img src="data:," onerror="alert(9)" data-owned><a href=" javascript:alert(9)">x</a>',
    )
    assert len(browser.driver.execute_script(_MADE)) == 3
    assert any("Content Security Policy" in said for said in browser.heard())
    browser.driver.execute_script("setTimeout(function () { alert(9); })")
    poll(browser.alerted)
    browser.driver.switch_to.alert.dismiss()


@pytest.mark.parametrize("name", sorted(OURS))
@pytest.mark.fault("S10")
def test_lists_and_pages(rows: tuple[Browser, list[UUID]], name: str) -> None:
    browser, _ids = rows
    model = OURS[name]
    found = harmed(browser, of(model, "changelist"))
    if name != "dashboard":
        assert shown(browser) and shown(browser, MARK)
    if name not in SCREENS:
        dead = {"dead_letter": True} if name == "deadletter" else {}
        for row in model._default_manager.filter(**dead)[:16]:
            found += harmed(browser, of(model, "change", quote(row.pk)))
            assert shown(browser), row.pk
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("total", "graphs"), [(FEW, 1), (MANY, 0)])
@pytest.mark.fault("S10")
def test_workflows_in_each_layout(rows: tuple[Browser, list[UUID]], total: int, graphs: int) -> None:
    """Names, types and errors of the members, in the graph and in the table."""
    browser, _ids = rows
    found = []
    outer = Workflow.objects.filter(parent_id__isnull=True, total=total)
    assert len(outer) == 2
    for row in outer:
        found += harmed(browser, of(Workflow, "change", quote(row.pk)))
        assert len(browser.all(".ojs-graph")) == graphs
        assert len(browser.all(".ojs-flow tbody tr")) == total + 1
        for place in (".ojs-story", ".ojs-flow tbody td", "main h1"):
            assert "7*7" in browser.one(place).text, place
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "query", [*(f"state={state}" for state in Job.States.values), "lens=timed_out"]
)
@pytest.mark.fault("S10")
def test_tabs(rows: tuple[Browser, list[UUID]], query: str) -> None:
    browser, _ids = rows
    found = harmed(browser, f"job/?{query}")
    found += harmed(browser, f"job/?{query}&q=<script>alert(5)</script>%22><img+data-owned+src=x>")
    found += harmed(browser, f"job/?{query}&queue=%22><img+data-owned+src=x+onerror=alert(6)>")
    assert not found, "\n".join(found)


@pytest.mark.fault("S10")
def test_confirmations(rows: tuple[Browser, list[UUID]]) -> None:
    """Of one row, by its page, and of many, by the list."""
    browser, _ids = rows
    found, seen = [], 0
    for name, model in OURS.items():
        admin = site._registry[model]
        if name == "deadletter":
            continue
        for operation in getattr(admin, "operations", ()):
            row = next((r for r in model._default_manager.all() if operation.allowed(r)), None)
            if row is None:
                continue
            found += harmed(browser, of(model, "do", quote(row.pk), operation.name))
            seen += 1
            if not operation.single:
                browser.open(of(model, "changelist"))
                browser.select(1)
                browser.act(operation.name)
                found += [*browser.driver.execute_script(_MADE), *browser.heard()]
    assert seen >= 9
    assert not found, "\n".join(found)


@pytest.mark.fault("S10")
def test_what_a_form_is_told(rows: tuple[Browser, list[UUID]]) -> None:
    """A reason, and a refusal, come back as text."""
    browser, ids = rows
    key = next(key for key in ids if Job.objects.get(pk=key).state == "available")
    browser.open(f"job/{key}/do/edit/")
    browser.fill("queue", "<img src=x onerror=alert(7) data-owned>")
    browser.confirm("<script>alert(8)</script>")
    assert not browser.alerted()
    assert not browser.driver.execute_script(_MADE)
    assert browser.all(".errorlist")
    assert not browser.heard()
