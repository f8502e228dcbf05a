"""API tokens: made, verified, rotated with overlap, revoked; only a hash is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_ojs.clock import FrozenClock
from django_ojs.domain.errors import Conflict, InvalidRequest, NotFound
from django_ojs.models import ApiToken
from django_ojs.services import tokens

pytestmark = pytest.mark.usefixtures("ojs_db")


def make(name: str = "billing", **more: object) -> str:
    return tokens.create(name, scopes=["produce"], **more)[1]  # type: ignore[arg-type]


def test_a_token_is_verified_and_not_stored(frozen: FrozenClock) -> None:
    text = make()
    found = tokens.verify(text)
    assert found is not None
    prefix, _, secret = text.partition(".")
    assert len(secret) >= 43
    row = ApiToken.objects.get()
    assert row.prefix == prefix
    assert all(secret not in str(value) for value in vars(row).values())
    assert row.last_used_at == frozen.now("default")


@pytest.mark.parametrize("change", ["", "x", "é", " "])
def test_nothing_else_is_it(change: str) -> None:
    text = make()
    wrong = text[:-1] + change if change else text[:-1]
    assert tokens.verify(wrong) is None
    assert tokens.verify(change) is None
    assert tokens.verify("ojs_000000000000." + text.partition(".")[2]) is None


def test_it_expires(frozen: FrozenClock) -> None:
    text = make(expires_at=frozen.now("default") + timedelta(seconds=10))
    assert tokens.verify(text)
    frozen.advance(10)
    assert tokens.verify(text) is None


def test_rotation_overlaps(frozen: FrozenClock) -> None:
    old = make(queues=["mail*"])
    new = tokens.rotate("billing", overlap=timedelta(seconds=60))[1]
    both = [tokens.verify(old), tokens.verify(new)]
    assert [token.name if token else None for token in both] == ["billing", "billing"]
    assert both[1] is not None
    assert both[1].queues == ["mail*"]
    frozen.advance(61)
    assert tokens.verify(old) is None
    assert tokens.verify(new)
    with pytest.raises(NotFound):
        tokens.rotate("unknown")


def test_a_revoked_successor_has_the_lifetime_of_the_client(frozen: FrozenClock) -> None:
    """The life of the one before it was cut short by the overlap."""
    make()
    revoked, _ = tokens.rotate("billing")
    tokens.revoke(revoked.prefix)
    frozen.advance(60)
    made, text = tokens.rotate("billing")
    assert made.expires_at is None
    assert tokens.verify(text)


def test_an_overlap_lengthens_no_life(frozen: FrozenClock) -> None:
    old = make(expires_at=frozen.now("default") + timedelta(seconds=10))
    tokens.rotate("billing", overlap=timedelta(seconds=60))
    assert tokens.verify(old)
    frozen.advance(10)
    assert tokens.verify(old) is None


def test_a_token_for_all_times_can_be_rotated(frozen: FrozenClock) -> None:
    text = make(expires_at=frozen.now("default") + timedelta(days=1))
    ApiToken.objects.update(expires_at=datetime.max.replace(tzinfo=UTC) - timedelta(hours=1))
    frozen.advance(7200)
    made, new = tokens.rotate("billing")
    assert made.expires_at == frozen.now("default") + timedelta(days=36_525)
    assert tokens.verify(text)
    assert tokens.verify(new)


def test_revocation_holds_at_once() -> None:
    text, other = make(), make("other")
    found = tokens.verify(text)
    assert found is not None
    assert tokens.live(found.pk) == found
    assert tokens.revoke("billing") == 1
    assert tokens.verify(text) is None
    assert tokens.live(found.pk) is None
    assert tokens.revoke(other.partition(".")[0]) == 1
    with pytest.raises(NotFound):
        tokens.revoke("billing")


def test_one_live_token_a_client(frozen: FrozenClock) -> None:
    make()
    with pytest.raises(Conflict):
        make()
    tokens.revoke("billing")
    assert make()


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("name", {"name": "a b"}),
        ("name", {"name": ""}),
        ("scopes", {"scopes": []}),
        ("scopes", {"scopes": ["root"]}),
        ("queues", {"queues": []}),
        ("queues", {"queues": ["Mail"]}),
        ("queues", {"queues": ["a*b"]}),
    ],
)
def test_bad_input_names_the_field(field: str, values: dict[str, object]) -> None:
    given = {"name": "c", "scopes": ["work"], **values}
    with pytest.raises(InvalidRequest) as caught:
        tokens.create(given.pop("name"), **given)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert not ApiToken.objects.exists()


def test_an_expiry_in_the_past_is_refused(frozen: FrozenClock) -> None:
    with pytest.raises(InvalidRequest):
        make(expires_at=frozen.now("default"))
    with pytest.raises(InvalidRequest, match="a hundred years"):
        make(expires_at=datetime.max.replace(tzinfo=UTC))
