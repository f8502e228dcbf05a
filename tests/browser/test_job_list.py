"""The job list by hand and by keys: chips, the menu of a row, saved views, and what the keys do."""

from __future__ import annotations

from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from django_ojs.models import Job, SavedView
from tests.browser.rows import showcase
from tests.browser.support import Browser
from tests.services.support import fail, make, now_stored, take
from tests.support import poll


def focused(browser: Browser) -> str:
    """The job whose row has the focus, by the place of the row; empty outside of rows."""
    found = browser.driver.execute_script(
        "const row = document.activeElement.closest('.ojs-job');"
        "return row && row.querySelector('.ojs-id').title"
    )
    return str(found or "")


def broken(count: int) -> list[str]:
    """So many discarded jobs, in the order of their list."""
    made = make(count, queue="mail", retry={"max_attempts": 1})
    for _job in made:
        fail(*take(queues=("mail",)), type="app.Broken")
    return [
        str(key) for key in Job.objects.order_by("-finished_at", "-pk").values_list("pk", flat=True)
    ]


def test_j_and_k_go_from_row_to_row_and_enter_opens(browser: Browser) -> None:
    jobs = broken(3)
    browser.open("job/?state=discarded")
    seen = []
    for key in "jjjjkkkk":
        browser.press(key)
        seen.append(focused(browser))
    assert seen == [jobs[n] for n in (0, 1, 2, 2, 1, 0, 0, 0)]
    browser.press("j")
    browser.leave(lambda: browser.press(Keys.ENTER))
    assert browser.path == f"/admin/django_ojs/job/{jobs[1]}/change/"


def test_r_retries_the_job_of_the_row_and_leads_back(browser: Browser) -> None:
    jobs = broken(2)
    browser.open("job/?state=discarded&queue=mail")
    browser.press("r")
    assert browser.path == "/admin/django_ojs/job/", "no row has the focus"
    browser.press("j", "j")
    browser.leave(lambda: browser.press("r"))
    assert browser.path == f"/admin/django_ojs/job/{jobs[1]}/do/retry/"
    browser.confirm("by keys")
    assert Job.objects.get(pk=jobs[1]).state == "available"
    assert browser.driver.current_url.endswith("/job/?state=discarded&queue=mail")
    assert len(browser.all(".ojs-job")) == 1


def test_a_slash_searches_and_escape_leaves_the_field(browser: Browser) -> None:
    broken(1)
    browser.open("job/?q=type:test.job")
    browser.press("/")
    field = browser.one("#searchbar")
    assert browser.driver.switch_to.active_element == field
    browser.press("j", "k", "r", "/", "?")
    assert field.get_attribute("value") == "jkr/?", (
        "the old text was selected, and keys are letters here"
    )
    browser.press(Keys.ESCAPE)
    assert browser.driver.switch_to.active_element != field
    assert not browser.all(".ojs-keys[open]")


def test_keys_with_others_held_down_are_the_browsers(browser: Browser) -> None:
    broken(1)
    browser.open("job/")
    for held in (Keys.CONTROL, Keys.ALT):
        webdriver.ActionChains(browser.driver).key_down(held).send_keys("j").key_up(held).perform()
    assert focused(browser) == ""


def test_escape_closes_what_was_opened(browser: Browser) -> None:
    broken(1)
    browser.open("job/?state=discarded")
    for opener in (".ojs-menu", ".ojs-save", ".ojs-keys"):
        browser.one(f"{opener} summary").click()
        assert browser.all(f"{opener}[open]"), opener
        browser.press(Keys.ESCAPE)
        assert not browser.all(f"{opener}[open]"), opener
    browser.press("?")
    assert "retry it" in browser.one(".ojs-keys").text
    browser.press("?")
    assert not browser.all(".ojs-keys[open]")


def test_the_menu_of_a_row(browser: Browser) -> None:
    jobs = broken(2)
    browser.open("job/?state=discarded")
    for menu in browser.all(".ojs-menu"):
        browser.driver.execute_script("arguments[0].firstElementChild.click()", menu)
    poll(lambda: len(browser.all(".ojs-menu[open]")) == 1)
    assert browser.texts(".ojs-menu[open] li") == ["Retry", "Edit and requeue", "Purge"]
    assert jobs[1] in browser.one(".ojs-menu[open] code").text
    assert browser.one(".ojs-menu[open] .ojs-copy").is_displayed()
    assert not browser.faults()
    browser.follow("Retry", ".ojs-menu[open]")
    browser.follow("Go back")
    assert browser.driver.current_url.endswith("/job/?state=discarded")
    assert Job.objects.get(pk=jobs[1]).state == "discarded"


def test_the_menu_works_without_scripts(browser: Browser) -> None:
    jobs = broken(1)
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.driver.get(browser.address + "/admin/django_ojs/job/?state=discarded")
        browser.one(".ojs-menu summary").click()
        browser.one(".ojs-menu .ojs-again").click()
        poll(lambda: browser.path == f"/admin/django_ojs/job/{jobs[0]}/do/retry/")
        browser.one("[name=_confirmed]").click()
        poll(lambda: browser.driver.current_url.endswith("/job/?state=discarded"))
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert Job.objects.get().state == "available"


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


def test_a_filter_is_saved_as_a_view(browser: Browser) -> None:
    broken(2)
    make()
    browser.open("job/?state=discarded")
    browser.one(".ojs-save summary").click()
    browser.fill("name", "Lost mail")
    assert not browser.faults()
    browser.submit(".ojs-save .button")
    assert browser.texts(".ojs-views [aria-current]") == ["Lost mail"]
    browser.open("job/")
    browser.follow("Lost mail", ".ojs-views")
    assert len(browser.all(".ojs-job")) == 2
    browser.submit("[name=delete]")
    assert not SavedView.objects.exists()
    assert len(browser.all(".ojs-job")) == 2


def test_a_job_is_done_with_in_a_few_steps(browser: Browser) -> None:
    """From the list to the list: menu, retry, confirm."""
    make(1, queue="mail", retry={"max_attempts": 1})
    (job,) = take(queues=("mail",))
    fail(job)
    browser.open("job/?state=discarded")
    browser.one(".ojs-menu summary").click()
    browser.follow("Retry", ".ojs-menu")
    browser.confirm("OPS-1")
    poll(lambda: now_stored(job).state == "available")
    assert browser.path == "/admin/django_ojs/job/"
    assert browser.all(".messagelist .success")
