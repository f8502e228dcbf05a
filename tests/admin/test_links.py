"""The addresses of rows are those that Django would find for each."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest
from django.contrib.admin import site
from django.urls import set_script_prefix

from django_ojs.admin import links

KEYS = (
    UUID(int=7),
    12,
    "mail",
    "tenant-1_a",
    "a b/c",
    "50%",
    "ü:ß?#&=+;,!@$'()*~",
    '<b>"x"</b>',
    "ojs0key",
    "_5F",
)


@pytest.mark.parametrize("prefix", ["/", "/below/a folder/"])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_an_address_of_a_row_is_what_it_would_be_alone(key: object, prefix: str) -> None:
    set_script_prefix(prefix)
    try:
        alone = links.page_of(site, "queue", key)
        assert alone.startswith(prefix.replace(" ", "%20"))
        assert links.of_rows(partial(links.page_of, site, "queue"))(key) == alone
        assert links.SiteLinks(site).page_of("queue", key) == alone
    finally:
        set_script_prefix("/")


def test_addresses_of_lists_and_of_what_is_not_registered() -> None:
    ours = links.SiteLinks(site)
    for query in ({}, {"state": "active", "queue": "a&b"}):
        assert ours.list_of("job", **query) == links.list_of(site, "job", **query)
    assert ours.page_of("nothing", 1) == ours.list_of("nothing", state="x") == ""
