"""Tokens: made in a shell as the pages show it, rotated, revoked, and revoked while in use."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_ojs import clock
from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import InvalidRequest, NotFound
from django_ojs.http import waiting
from django_ojs.models import ApiToken
from django_ojs.services import tokens
from tests.apart import Apart
from tests.http.conftest import Caller
from tests.http.support import Api, enqueue, fetch
from tests.support import ROOT


def documented() -> list[list[str]]:
    """Every ``ojs token create`` and ``rotate`` of the pages, as words."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    shown = re.compile(r"^\$ python manage\.py (ojs token (?:create|rotate) .*)$", re.MULTILINE)
    return [shlex.split(line) for page in pages for line in shown.findall(page.read_text())]


def run(*words: str) -> str:
    """What a command prints."""
    out = StringIO()
    call_command(*words, stdout=out, stderr=StringIO())
    return out.getvalue()


@pytest.mark.parametrize("words", documented(), ids=" ".join)
def test_the_documented_token_commands_work(ojs_db: None, words: list[str]) -> None:
    if "rotate" in words:
        tokens.create(words[3], scopes=["work"])
    assert tokens.verify(run(*words).strip())


def test_days_are_whole_days(ojs_db: None, frozen: FrozenClock) -> None:
    assert any("90d" in words for words in documented())
    run("ojs", "token", "create", "c", "--scope", "work", "--expires-at", "90d")
    old = ApiToken.objects.get()
    assert old.expires_at == frozen.now("default") + timedelta(days=90)
    run("ojs", "token", "rotate", "c", "--overlap", "2d")
    old.refresh_from_db()
    assert old.expires_at == frozen.now("default") + timedelta(days=2)


@pytest.mark.parametrize("text", ["1.5d", "d", "-3d", "soon", "٣d"])
def test_what_is_no_expiry_names_the_forms(ojs_db: None, text: str) -> None:
    with pytest.raises(CommandError) as caught:
        run("ojs", "token", "create", "c", "--scope", "work", f"--expires-at={text}")
    assert caught.value.returncode == 2
    assert not ApiToken.objects.exists()
    forms = "an RFC 3339 time, or a time from now such as 90d, 12h or PT12H"
    assert str(caught.value) == f"--expires-at: must be {forms}"


@pytest.mark.parametrize(
    ("text", "rule"), [("0d", "in the future"), ("99999d", "must not be more than ten years")]
)
def test_an_expiry_out_of_bounds(ojs_db: None, text: str, rule: str) -> None:
    with pytest.raises(CommandError, match=rule) as caught:
        run("ojs", "token", "create", "c", "--scope", "work", f"--expires-at={text}")
    assert caught.value.returncode == 2
    assert not ApiToken.objects.exists()


def test_a_successor_lives_as_long_as_the_old_one_was_given(ojs_db: None, frozen: FrozenClock) -> None:
    start = frozen.now("default")
    tokens.create("c", scopes=["work"], expires_at=start + timedelta(days=90))
    frozen.advance(80 * 86400)
    made, _ = tokens.rotate("c")
    assert made.expires_at == start + timedelta(days=170)
    frozen.advance(86400)
    assert tokens.rotate("c")[0].expires_at == start + timedelta(days=171)


def test_the_successors_expiry_can_be_chosen(ojs_db: None, frozen: FrozenClock) -> None:
    tokens.create("c", scopes=["work"], expires_at=frozen.now("default") + timedelta(days=90))
    text = run("ojs", "token", "rotate", "c", "--expires-at", "30d").strip()
    made = tokens.verify(text)
    assert made is not None
    assert made.expires_at == frozen.now("default") + timedelta(days=30)
    forever = tokens.verify(run("ojs", "token", "rotate", "c", "--expires-at", "never").strip())
    assert forever is not None
    assert forever.expires_at is None
    assert tokens.rotate("c")[0].expires_at is None
    with pytest.raises(InvalidRequest):
        tokens.rotate("c", expires_at=frozen.now("default"))
    assert tokens.verify(text) is None
    assert len(live()) == 2


def live() -> list[str]:
    """The prefixes of the live tokens."""
    now = clock.now("default")
    return [token.prefix for token in tokens.listed() if tokens.is_live(token, now)]


def test_two_rotations_leave_two_tokens(ojs_db: None) -> None:
    first = tokens.create("c", scopes=["work"])[1]
    second = tokens.rotate("c")[1]
    third = tokens.rotate("c")[1]
    assert [tokens.verify(text) is not None for text in (first, second, third)] == [False, True, True]
    assert len(live()) == 2


@pytest.mark.every_database
def test_two_rotations_at_once_leave_two_tokens(ojs_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens.create("c", scopes=["work"])
    issue = tokens._issue
    other: list[Apart] = []

    def interrupted(*args: Any) -> Any:
        if not other:
            other.append(Apart(lambda: tokens.rotate("c")))
            assert other[0].goes_as_far_as_it_can(), "it waits for this one"
        return issue(*args)

    monkeypatch.setattr(tokens, "_issue", interrupted)
    tokens.rotate("c")
    other[0].outcome()
    assert len(tokens.listed()) == 3
    assert len(live()) == 2


def test_a_revocation_counts_the_living(ojs_db: None, frozen: FrozenClock) -> None:
    tokens.create("c", scopes=["work"])
    tokens.rotate("c", overlap=timedelta(seconds=10))
    frozen.advance(11)
    assert tokens.revoke("c") == 1
    assert live() == []
    assert ApiToken.objects.filter(revoked_at=None).count() == 1, "it had expired by itself"
    assert tokens.revoke("c") == 0
    with pytest.raises(NotFound):
        tokens.revoke("nobody")


@pytest.mark.every_database
def test_a_token_that_is_rotated_at_the_same_moment_is_revoked_too(
    ojs_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, old = tokens.create("client", scopes=["work"])
    issue = tokens._issue
    other: list[Apart] = []

    def interrupted(*args: Any) -> Any:
        # The rotation holds the old token; before the new one is there, an operator revokes.
        other.append(Apart(lambda: tokens.revoke("client")))
        assert other[0].goes_as_far_as_it_can(), "it waits for the rotation"
        return issue(*args)

    monkeypatch.setattr(tokens, "_issue", interrupted)
    _, new = tokens.rotate("client")
    assert other[0].outcome() == 2
    assert (tokens.verify(old), tokens.verify(new)) == (None, None)


def test_a_revoked_token_gets_nothing_from_a_poll_under_way(
    api: Api, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = caller("work", name="poller")

    def until(look: Callable[[], Any], *args: Any, **more: Any) -> Any:
        assert not more["gone"]()
        assert look() == []
        tokens.revoke("poller")
        enqueue(api)
        return None if more["gone"]() else look()

    monkeypatch.setattr(waiting, "until", until)
    answer = worker.post("/workers/fetch", {"queues": ["default"], "wait_ms": 1000})
    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert len(fetch(api)) == 1
