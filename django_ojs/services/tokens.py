"""API tokens: made, shown once, verified, rotated with overlap, revoked (OJS security 5 and 7)."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from django_ojs import clock, conf
from django_ojs.domain.durations import LATEST
from django_ojs.domain.errors import Conflict, InvalidRequest, NotFound, PermissionDenied
from django_ojs.domain.job import Actor
from django_ojs.domain.lru import LRU
from django_ojs.models import ApiToken
from django_ojs.services import audit
from django_ojs.store import known_rows
from django_ojs.store.contention import in_transaction

SCOPES = ("produce", "work", "inspect", "administer", "metrics")
OVERLAP = timedelta(hours=24)
"""How long a rotated token goes on working beside its successor."""

COST = 1 << 14
"""Of the hash: 16 MiB and some 50 ms."""

_NAME = re.compile(r"(?!ojs_)[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)
_PATTERN = re.compile(r"\*|[a-z0-9][a-z0-9_\-.]{0,254}\*?", re.ASCII)
_PREFIX = re.compile(r"ojs_[a-z0-9]{12}", re.ASCII)
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_USED_EVERY = timedelta(minutes=1)
_KNOWN_MOST = 1024


@in_transaction
def create(
    name: str,
    *,
    scopes: Collection[str],
    queues: Collection[str] = ("*",),
    expires_at: datetime | None = None,
    actor: Actor = Actor(),
    using: str = "",
) -> tuple[ApiToken, str]:
    """A token for the client ``name``, and its text, which is not stored and never shown again.

    ``actor`` is who does it, for the audit. Raises :class:`InvalidRequest`, and :class:`Conflict` when
    the client has a live token.
    """
    allowed, patterns = check_scopes(scopes), check_queues(queues)
    check_new(name, expires_at, using=using)
    made = _issue(name, allowed, patterns, expires_at, actor.name, clock.now(using), using)
    _note("created", name, actor, using, prefix=made[0].prefix, scopes=allowed, queues=patterns)
    return made


def check_new(name: str, expires_at: datetime | None, *, using: str | None = None) -> None:
    """Raise what :func:`create` would: :class:`InvalidRequest` or :class:`Conflict`."""
    using = using or conf.current().database
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            "name", "must be letters, digits, '.', '_' and '-', at most 200, and not begin with 'ojs_'"
        )
    moment = clock.now(using)
    check_expiry(expires_at, moment)
    if any(is_live(token, moment) for token in ApiToken.objects.using(using).filter(name=name)):
        raise Conflict(f"the client {name!r} has a token: rotate it, or revoke it first")


def check_expiry(expires_at: datetime | None, now: datetime) -> None:
    """Raise :class:`InvalidRequest` for an expiry that is past, or further ahead than a century."""
    if expires_at is not None and expires_at <= now:
        raise InvalidRequest("expires_at", "must be in the future")
    if expires_at is not None and expires_at - now > LATEST:
        raise InvalidRequest("expires_at", "must be at most a hundred years ahead")


def check_scopes(scopes: Collection[str]) -> list[str]:
    """The scopes in their order. Raises :class:`InvalidRequest` for none and for unknown ones."""
    if not scopes or not set(scopes) <= set(SCOPES):
        raise InvalidRequest("scopes", f"must be one or more of {', '.join(SCOPES)}")
    return [scope for scope in SCOPES if scope in scopes]


def check_queues(queues: Collection[str]) -> list[str]:
    """Queue names, or prefixes that end in ``*``. Raises :class:`InvalidRequest`."""
    if not queues or not all(isinstance(q, str) and _PATTERN.fullmatch(q) for q in queues):
        raise InvalidRequest("queues", "must be queue names, or prefixes that end in '*'")
    return list(dict.fromkeys(queues))


def _issue(
    name: str,
    scopes: Sequence[str],
    queues: Sequence[str],
    expires_at: datetime | None,
    by: str,
    now: datetime,
    using: str,
) -> tuple[ApiToken, str]:
    prefix = "ojs_" + "".join(secrets.choice(_LETTERS) for _ in range(12))
    secret = secrets.token_urlsafe(32)
    token = ApiToken.objects.using(using).create(
        name=name,
        prefix=prefix,
        secret_hash=_hash(secret, secrets.token_bytes(16)),
        scopes=list(scopes),
        queues=list(queues),
        created_at=now,
        expires_at=expires_at,
        created_by=by[:255],
    )
    return token, f"{prefix}.{secret}"


@in_transaction
def rotate(
    name: str,
    *,
    overlap: timedelta = OVERLAP,
    expires_at: datetime | bool | None = False,
    allowed: Collection[str] = SCOPES,
    actor: Actor = Actor(),
    using: str = "",
) -> tuple[ApiToken, str]:
    """A successor for the client's token; the old one expires after ``overlap``.

    An older token from an earlier rotation ends at once, so that at most two are live.
    ``expires_at`` is the successor's expiry, ``None`` for never; ``False`` gives it, from now, the
    time that the old one was given. Leases that were fetched with the old one can be finished with
    the new one. Raises :class:`InvalidRequest`, :class:`NotFound` without a live token, and
    :class:`PermissionDenied` for a token with scopes that are not ``allowed``.
    """
    moment = clock.now(using)
    old = _live(name, moment, using)
    newest = max(old, key=lambda token: token.pk)
    if not set(newest.scopes) <= set(allowed):
        raise PermissionDenied(f"the token of {name!r} has scopes that you do not have")
    expiry = _renewed(name, moment, using) if isinstance(expires_at, bool) else expires_at
    check_expiry(expiry, moment)
    rows = ApiToken.objects.using(using)
    until = moment + overlap
    if newest.expires_at is None or newest.expires_at > until:
        rows.filter(pk=newest.pk).update(expires_at=until)
    older = [token for token in old if token is not newest]
    rows.filter(pk__in=[token.pk for token in older]).update(revoked_at=moment)
    made = _issue(name, newest.scopes, newest.queues, expiry, actor.name, moment, using)
    ended: dict[str, Any] = {"ended": [token.prefix for token in older]} if older else {}
    _note("rotated", name, actor, using, prefix=made[0].prefix, old=newest.prefix, **ended)
    return made


def _renewed(name: str, moment: datetime, using: str) -> datetime | None:
    """From now the time that the client's last token was given, though it may be revoked: only that
    of those before it was shortened, when it followed them.
    """
    last = ApiToken.objects.using(using).filter(name=name).latest("pk")
    if last.expires_at is None:
        return None
    return moment + min(last.expires_at - last.created_at, LATEST)


@in_transaction
def revoke(name: str, *, actor: Actor = Actor(), using: str = "") -> int:
    """End every live token of the client at once; returns how many there were.

    ``name`` may also be the prefix of one token. Raises :class:`NotFound`.
    """
    moment = clock.now(using)
    column = "prefix" if _PREFIX.fullmatch(name) else "name"

    tokens = ApiToken.objects.using(using).filter(**{column: name}, revoked_at=None)
    # Lock first, then read again: a concurrent rotation may have added a successor.
    list(tokens.select_for_update().values_list("pk"))
    found = list(tokens.select_for_update())
    if not found:
        raise NotFound(f"no token of {name!r}", resource_type="token", resource_id=name)
    ended = [token for token in found if is_live(token, moment)]
    rows = ApiToken.objects.using(using)
    rows.filter(pk__in=[token.pk for token in ended]).update(revoked_at=moment)
    for client in sorted({token.name for token in ended}):
        prefixes = [token.prefix for token in ended if token.name == client]
        _note("revoked", client, actor, using, prefixes=prefixes)
    return len(ended)


def _note(what: str, name: str, actor: Actor, using: str, **data: Any) -> None:
    audit.note(f"token.{what}", actor, target=("token", name), using=using, **data)


def _live(name: str, now: datetime, using: str) -> list[ApiToken]:
    rows = ApiToken.objects.using(using).select_for_update().filter(name=name, revoked_at=None)
    # Lock first, then read: a concurrent rotation may have added a token.
    list(rows.values_list("pk"))
    found = [token for token in rows.all() if is_live(token, now)]
    if not found:
        raise NotFound(f"no live token of {name!r}", resource_type="token", resource_id=name)
    return found


def is_live(token: ApiToken, now: datetime) -> bool:
    """Neither revoked nor expired."""
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > now)


def listed(*, using: str | None = None) -> list[ApiToken]:
    """All tokens, by client."""
    return list(ApiToken.objects.using(using or conf.current().database).order_by("name", "id"))


def prefix_of(text: str) -> str | None:
    """The public part of a token's text, ``None`` if it is none."""
    prefix, dot, secret = text.partition(".")
    if not dot or not _PREFIX.fullmatch(prefix) or not 20 <= len(secret) <= 100:
        return None
    return prefix


def verify(text: str, *, using: str | None = None) -> ApiToken | None:
    """The live token that ``text`` is, or ``None``; the row is read every time, so that a
    revocation holds at once.

    A wrong secret costs one read, whether a token has its prefix or not; the expensive hash is computed
    for a secret with the right checksum only, once per process.
    """
    using = using or conf.current().database
    prefix = prefix_of(text)
    if prefix is None:
        return None
    token = known_rows.TOKEN.read(prefix, using=using)
    right = _matches(_NOBODYS if token is None else token.secret_hash, text.partition(".")[2])
    moment = clock.now(using)
    if token is None or not right or not is_live(token, moment):
        return None
    if token.last_used_at is None or moment - token.last_used_at > _USED_EVERY:
        ApiToken.objects.using(using).filter(pk=token.pk).update(last_used_at=moment)
    return token


def live(token_id: int, *, using: str | None = None) -> ApiToken | None:
    """A token that was verified as it is now, ``None`` when it was revoked or has expired since."""
    using = using or conf.current().database
    token = ApiToken.objects.using(using).filter(pk=token_id).first()
    return token if token is not None and is_live(token, clock.now(using)) else None


_known: LRU[tuple[str, bytes], bool] = LRU(_KNOWN_MOST)
"""Verified secrets by stored hash; valid only together with the row, which is always read."""


def _matches(stored: str, secret: str) -> bool:
    check, salt, _ = stored.split("$")
    # The checksum reveals 32 of 256 random bits.
    if not hmac.compare_digest(_check(secret, bytes.fromhex(salt)), check):
        return False
    key = (stored, hashlib.sha256(secret.encode(errors="replace")).digest())
    if _known.get(key):
        return True
    right = hmac.compare_digest(_hash(secret, bytes.fromhex(salt)), stored)
    if right:
        _known.put(key, True)
    return right


def _check(secret: str, salt: bytes) -> str:
    return hashlib.sha256(salt + secret.encode(errors="replace")).hexdigest()[:8]


def _hash(secret: str, salt: bytes) -> str:
    data = hashlib.scrypt(secret.encode(errors="replace"), salt=salt, n=COST, r=8, p=1)
    return f"{_check(secret, salt)}${salt.hex()}${data.hex()}"


_NOBODYS = f"{'0' * 8}${'0' * 32}$"
"""The hash to compare with where no token has the prefix, for equal timing."""
