"""API tokens in the admin: made and shown once, rotated, revoked; refused without permission."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_ojs.clock import FrozenClock
from django_ojs.models import ApiToken, AuditEntry
from django_ojs.services import tokens

pytestmark = pytest.mark.usefixtures("ojs_db")
LIST = "/admin/django_ojs/apitoken/"
ADD = f"{LIST}add/"
SHOWN = re.compile(r'value="(ojs_[a-z0-9]{12}\.[\w-]+)"')


@pytest.fixture
def staff() -> Any:
    User.objects.all().delete()
    user = User.objects.create_superuser("root", password="x")
    yield user
    User.objects.all().delete()


@pytest.fixture
def browser(staff: User) -> Client:
    client = Client()
    client.force_login(staff)
    return client


def add(browser: Client, **fields: Any) -> Any:
    form = {"name": "billing", "scopes": ["produce", "work"], "queues": "mail\nbilling*", **fields}
    return browser.post(ADD, {**form, "expires_at_0": "", "expires_at_1": ""})


def test_a_token_is_shown_once_and_works(browser: Client) -> None:
    page = add(browser)
    shown = SHOWN.search(page.content.decode())
    assert shown is not None
    assert "no-store" in page["Cache-Control"]
    token = tokens.verify(shown[1])
    assert token is not None
    assert (token.name, token.scopes, token.queues) == (
        "billing",
        ["produce", "work"],
        ["mail", "billing*"],
    )
    assert token.created_by == "root"
    for path in (LIST, f"{LIST}{token.pk}/change/"):
        again = browser.get(path)
        assert again.status_code == 200
        secret = shown[1].partition(".")[2]
        assert secret not in again.content.decode()
        assert token.secret_hash not in again.content.decode()
    assert "messages" not in browser.cookies


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "a b"}, "must be letters, digits"),
        ({"queues": "Mail"}, "must be queue names"),
        ({"scopes": []}, "This field is required"),
        ({"scopes": ["root"]}, "not one of the available choices"),
    ],
)
def test_bad_input_is_explained(browser: Client, fields: dict[str, Any], words: str) -> None:
    assert words in add(browser, **fields).content.decode()
    assert not ApiToken.objects.exists()


def test_a_client_has_one_token(browser: Client) -> None:
    add(browser)
    assert "has a token" in add(browser).content.decode()
    assert ApiToken.objects.count() == 1


def test_it_can_be_narrowed(browser: Client) -> None:
    token, _ = tokens.create("c", scopes=["produce", "administer"])
    form = {"scopes": ["produce"], "queues": "q1", "expires_at_0": "", "expires_at_1": ""}
    assert browser.post(f"{LIST}{token.pk}/change/", form).status_code == 302
    token.refresh_from_db()
    assert (token.name, token.scopes, token.queues) == ("c", ["produce"], ["q1"])


def test_revoke_and_rotate(browser: Client) -> None:
    token, old = tokens.create("c", scopes=["produce"])
    chosen = {"_selected_action": [token.pk]}
    page = browser.post(LIST, {**chosen, "action": "rotate_selected"})
    shown = SHOWN.search(page.content.decode())
    assert shown is not None
    assert tokens.verify(old) is not None
    assert tokens.verify(shown[1]) is not None
    browser.post(LIST, {**chosen, "action": "revoke_selected"})
    assert tokens.verify(old) is None
    assert tokens.verify(shown[1]) is not None
    assert browser.post(f"{LIST}{token.pk}/delete/", {"post": "yes"}).status_code == 403


def test_without_permission_a_forged_post_is_refused(staff: User) -> None:
    clerk = User.objects.create_user("clerk", password="x", is_staff=True)
    clerk.user_permissions.add(Permission.objects.get(codename="view_apitoken"))
    token, text = tokens.create("c", scopes=["produce"])
    client = Client()
    client.force_login(clerk)
    assert client.get(LIST).status_code == 200
    assert add(client).status_code == 403
    client.post(LIST, {"_selected_action": [token.pk], "action": "revoke_selected"})
    client.post(LIST, {"_selected_action": [token.pk], "action": "rotate_selected"})
    client.post(f"{LIST}{token.pk}/change/", {"scopes": ["administer"], "queues": "*"})
    token.refresh_from_db()
    assert (ApiToken.objects.count(), token.scopes) == (1, ["produce"])
    assert tokens.verify(text) is not None


def test_to_rotate_takes_two_permissions(staff: User) -> None:
    tokens.create("shop", scopes=["produce"])
    for codenames, status in ((("add",), 1), (("change",), 1), (("add", "change"), 2)):
        user = User.objects.create_user("-".join(codenames), is_staff=True)
        user.user_permissions.add(Permission.objects.get(codename="http_produce"))
        for codename in ("view", *codenames):
            user.user_permissions.add(Permission.objects.get(codename=f"{codename}_apitoken"))
        client = Client()
        client.force_login(user)
        token = ApiToken.objects.get(name="shop")
        client.post(LIST, {"_selected_action": [token.pk], "action": "rotate_selected"})
        assert ApiToken.objects.count() == status


def test_an_expiry_is_not_moved_into_the_past(browser: Client) -> None:
    token, _text = tokens.create("shop", scopes=["produce"])
    form = {"scopes": ["produce"], "queues": "*", "expires_at_0": "2001-01-01", "expires_at_1": "00:00"}
    text = browser.post(f"{LIST}{token.pk}/change/", form).content.decode()
    assert "An expiry is in the future" in text
    assert ApiToken.objects.get().expires_at is None


def clerk(*codenames: str) -> Client:
    """A browser of somebody who may view, add and change tokens, and has these permissions."""
    user = User.objects.create_user("clerk", password="x", is_staff=True)
    for codename in ("view_apitoken", "add_apitoken", "change_apitoken", *codenames):
        user.user_permissions.add(Permission.objects.get(codename=codename))
    client = Client()
    client.force_login(user)
    return client


def change(client: Client, token: ApiToken, scopes: list[str], queues: str = "*", day: str = "") -> Any:
    """Send the form of a token."""
    expiry = {"expires_at_0": day, "expires_at_1": "00:00" if day else ""}
    form = {"scopes": scopes, "queues": queues, **expiry}
    return client.post(f"{LIST}{token.pk}/change/", form)


def test_an_expiry_beyond_all_calendars_is_refused(browser: Client) -> None:
    for at in ("23:59:59", "00:00"):
        far = {"expires_at_0": "9999-12-31", "expires_at_1": at}
        form = {"name": "c", "scopes": ["produce"], "queues": "*"}
        assert "at most a hundred years ahead" in browser.post(ADD, {**form, **far}).content.decode()
        token = tokens.create(f"of-{at[:2]}", scopes=["produce"])[0]
        answer = browser.post(f"{LIST}{token.pk}/change/", {**form, **far})
        assert "at most a hundred years ahead" in answer.content.decode()
    assert not ApiToken.objects.exclude(expires_at=None).exists()


def test_nobody_makes_a_token_of_scopes_that_he_does_not_have(staff: User) -> None:
    client = clerk("http_produce")
    text = client.get(ADD).content.decode()
    assert 'value="produce"' in text
    assert 'value="administer"' not in text
    assert "not one of the available choices" in add(client).content.decode()
    assert not ApiToken.objects.exists()
    add(client, scopes=["produce"])
    assert ApiToken.objects.get().scopes == ["produce"]


@pytest.mark.parametrize(
    ("scopes", "queues", "day", "done"),
    [
        (["inspect", "administer"], "a*\nb", "2030-01-01", True),
        (["administer"], "a*", "2029-01-01", True),
        (["produce", "inspect", "administer"], "a*\nb", "2030-01-01", True),
        (["produce"], "*", "2031-01-01", True),
        (["work", "inspect", "administer"], "a*\nb", "2030-01-01", False),
        (["inspect", "administer"], "*", "2030-01-01", False),
        (["inspect", "administer"], "a*\nb", "2031-01-01", False),
        (["inspect", "administer"], "a*\nb", "", False),
    ],
)
def test_a_token_of_more_than_one_has_is_only_narrowed(
    staff: User, scopes: list[str], queues: str, day: str, done: bool
) -> None:
    client = clerk("http_produce")
    expiry = datetime(2030, 1, 1, tzinfo=UTC)
    token, _ = tokens.create(
        "c", scopes=["inspect", "administer"], queues=["a*", "b"], expires_at=expiry
    )
    answer = change(client, token, scopes, queues, day)
    assert answer.status_code == (302 if done else 200)
    before = (token.scopes, token.queues, token.expires_at)
    token.refresh_from_db()
    assert ((token.scopes, token.queues, token.expires_at) != before) is (
        done and (scopes, queues) != (["inspect", "administer"], "a*\nb")
    )


def test_nobody_rotates_a_token_of_scopes_that_he_does_not_have(staff: User) -> None:
    client = clerk("http_produce")
    token, _ = tokens.create("c", scopes=["produce", "administer"])
    answer = client.post(LIST, {"_selected_action": [token.pk], "action": "rotate_selected"})
    assert "has scopes that you do not have" in client.get(answer["Location"]).content.decode()
    assert ApiToken.objects.count() == 1


def test_what_has_expired_is_not_brought_back(browser: Client, frozen: FrozenClock) -> None:
    expiry = frozen.now("default") + timedelta(hours=1)
    token, text = tokens.create("c", scopes=["produce"], expires_at=expiry)
    frozen.advance(3601)
    answer = change(browser, token, ["produce"], day="2099-01-01")
    assert "The token has expired: it stays as it is." in answer.content.decode()
    assert tokens.verify(text) is None
    assert ApiToken.objects.get().expires_at == expiry


def test_the_audit_has_old_and_new_values(browser: Client) -> None:
    token, _ = tokens.create("c", scopes=["produce"], queues=["a"])
    assert change(browser, token, ["produce", "work"], "*", "2099-01-01").status_code == 302
    entry = AuditEntry.objects.get(action="token.changed")
    assert entry.data["old"] == {"scopes": ["produce"], "queues": ["a"], "expires_at": None}
    assert entry.data["new"]["scopes"] == ["produce", "work"]
    assert entry.data["new"]["queues"] == ["*"]
    assert entry.data["new"]["expires_at"].startswith("2099-01-01T")


def test_a_selected_key_that_is_none_is_a_bad_request(browser: Client) -> None:
    answer = browser.post(LIST, {"action": "revoke_selected", "_selected_action": "nix"})
    assert answer.status_code == 400
