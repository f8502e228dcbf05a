"""The rate limits: the list, the page, override and its end."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.models import AuditEntry, RateLimit
from tests.admin.support import login, page
from tests.services.support import make, take

pytestmark = pytest.mark.usefixtures("no_users")
ONE = {"key": "stripe", "concurrency": 1}


def do(name: str, *permissions: str, **fields: str) -> Any:
    """Confirm an operation on the limit."""
    browser = login("view_ratelimit", *permissions, name=f"ada-{name}")
    path = f"/admin/django_ojs/ratelimit/stripe/do/{name}/"
    return browser.post(path, {"_confirmed": "1", **fields})


def test_the_list_and_the_page_say_who_has_places_and_who_waits() -> None:
    first, second = make(2, rate_limit=ONE)
    take(1)
    browser = login("view_ratelimit", "view_job")
    text = page(browser, "ratelimit/")
    assert "stripe" in text
    assert "1 at once" in text
    assert "when a job ends" in text
    text = page(browser, "ratelimit/stripe/change/")
    assert str(first.id) in text
    assert str(second.id) in text
    assert "/do/override/" not in text


def test_an_override_needs_the_permission() -> None:
    make(1, rate_limit=ONE)
    assert do("override", concurrency="5").status_code == 403
    assert RateLimit.objects.get().override is None


def test_an_operator_overrides_and_restores() -> None:
    make(3, rate_limit=ONE)
    answer = do("override", "override_ratelimit", concurrency="2", reason="more", until="1h")
    assert answer.status_code == 302
    row = RateLimit.objects.get()
    assert (row.override, row.override_by) == ({"concurrency": 2}, "ada-override")
    assert len(take(3)) == 2
    assert do("restore", "override_ratelimit").status_code == 302
    assert RateLimit.objects.get().override is None
    actions = AuditEntry.objects.order_by("pk").values_list("action", "source", "reason")
    assert list(actions) == [
        ("rate_limit.overridden", "admin", "more"),
        ("rate_limit.restored", "admin", ""),
    ]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rate": "5", "period": "soon"}, 'id="id_period_error"><li>must be whole seconds'),
        ({"rate": "5"}, 'id="id_period_error"><li>is required'),
        ({"rate": "5", "period": "1000h"}, 'id="id_period_error"><li>must be above 0'),
        ({"concurrency": "2", "period": "1m"}, 'id="id_period_error"><li>needs a rate'),
        ({"concurrency": "2", "until": "2020-01-01T00:00:00Z"}, "<li>must be in the future"),
        ({}, "<li>needs concurrency, rate or throttle"),
    ],
)
def test_a_bad_override_is_said_on_the_form(fields: dict[str, str], said: str) -> None:
    make(1, rate_limit=ONE)
    answer = do("override", "override_ratelimit", **fields)
    assert RateLimit.objects.get().override is None
    assert answer.status_code == 200
    assert said in answer.content.decode()


def test_a_longer_list_takes_no_more_statements() -> None:
    browser = login("view_ratelimit")
    counts = []
    for some in (range(2), range(2, 30)):
        for number in some:
            make(2, rate_limit={"key": f"k{number}", "throttle": {"limit": 1, "period": "1h"}})
        with CaptureQueriesContext(connection) as asked:
            text = page(browser, "ratelimit/")
        counts.append((text.count("1 in PT1H, evenly"), len(asked)))
    (few, first), (many, second) = counts
    assert (few, many) == (2, 30)
    assert second == first
