"""The job list by hand: chips, and the menu of a row."""

from __future__ import annotations

from django_ojs.models import Job
from tests.browser.rows import showcase
from tests.browser.support import Browser
from tests.services.support import fail, make, now_stored, take
from tests.support import poll


def broken(count: int) -> list[str]:
    """So many discarded jobs, in the order of their list."""
    made = make(count, queue="mail", retry={"max_attempts": 1})
    for _job in made:
        fail(*take(queues=("mail",)), type="app.Broken")
    return [
        str(key) for key in Job.objects.order_by("-finished_at", "-pk").values_list("pk", flat=True)
    ]


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
