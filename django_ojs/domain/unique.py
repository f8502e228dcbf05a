"""Unique jobs: which jobs count as the same, and what becomes of the second (OJS unique jobs)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

from django_ojs.domain.arguments import split
from django_ojs.domain.canonical import canonical
from django_ojs.domain.durations import format_iso, parse_duration_ms, parse_ms, parse_seconds_ms
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import JobRow
from django_ojs.domain.jsonvalue import MAX_META_BYTES, encode
from django_ojs.domain.states import LIVE, TERMINAL, State
from django_ojs.domain.suggestions import did_you_mean

UNIQUE_OPTIONS = ("unique", "throttle", "debounce")
"""The options of the Python API that make a job unique."""
_DIMENSIONS = ("type", "queue", "args", "meta")
_MOST = 100
UNIQUE_FIELDS = (
    *("keys", "key", "args_keys", "meta_keys", "period", "period_ms", "states", "on_conflict"),
    *("debounce_ms", "max_wait_ms", "debounced_since"),
)
"""The fields of a policy, also those that only this project writes."""
_ENCODED = "ojs_encoded"
_GIVEN_KEY = "unique_key"
"""Where the meta of an encrypted job has the key that its client computed (OJS interactions EI-001)."""
DEBOUNCED_SINCE = "debounced_since"
"""Where the stored policy has when the first of a series of debounced jobs was enqueued."""


class OnConflict(StrEnum):
    """What becomes of a new job while another one holds its key."""

    REJECT = "reject"
    IGNORE = "ignore"
    REPLACE = "replace"
    REPLACE_EXCEPT_SCHEDULE = "replace_except_schedule"


_REPLACING = frozenset({OnConflict.REPLACE, OnConflict.REPLACE_EXCEPT_SCHEDULE})
_CONFLICTS = (*map(str, OnConflict), "use_existing")
_NOT_BEGUN = frozenset({State.SCHEDULED, State.AVAILABLE, State.PENDING})


@dataclass(frozen=True, slots=True)
class UniquePolicy:
    """What makes a job unique, checked.

    ``keys`` are what is compared (``type`` always is), ``args_keys`` and ``meta_keys`` the parts of
    arguments and meta, ``key`` a text in place of all that. A job counts while it is in one of
    ``states`` and was created less than ``period_ms`` ago. With ``debounce_ms`` a new job starts that
    much later, but no later than ``max_wait_ms`` after the first that it stands for was enqueued.
    """

    keys: tuple[str, ...] = ("type",)
    args_keys: tuple[str, ...] = ()
    meta_keys: tuple[str, ...] = ()
    key: str | None = None
    period_ms: int | None = None
    states: frozenset[State] = LIVE
    on_conflict: OnConflict = OnConflict.REJECT
    debounce_ms: int | None = None
    max_wait_ms: int | None = None

    @property
    def replaces(self) -> bool:
        """Whether a new job takes the place of the one that holds its key."""
        return self.on_conflict in _REPLACING

    def matches(self, job: JobRow, now: datetime) -> bool:
        """Whether a job with the same key counts."""
        if job.state not in self.states:
            return False
        return self.period_ms is None or job.created_at + timedelta(milliseconds=self.period_ms) > now

    def for_requeue(self) -> UniquePolicy:
        """The policy of a copy that a person asks for: refused while an equal job has not ended."""
        return replace(
            self,
            states=LIVE,
            period_ms=None,
            on_conflict=OnConflict.REJECT,
            debounce_ms=None,
            max_wait_ms=None,
        )

    def to_wire(self) -> dict[str, Any]:
        """The policy as JSON, as :func:`parse_unique` reads it."""
        found: dict[str, Any] = {"keys": list(self.keys)}
        if self.key is not None:
            found = {"key": self.key}
        for name in ("args_keys", "meta_keys"):
            if names := getattr(self, name):
                found[name] = list(names)
        if self.period_ms is not None:
            found["period"] = format_iso(self.period_ms)
        found["states"] = [str(state) for state in State if state in self.states]
        found["on_conflict"] = str(self.on_conflict)
        for name in ("debounce_ms", "max_wait_ms"):
            if (ms := getattr(self, name)) is not None:
                found[name] = ms
        return found


def parse_unique(value: object, field: str = "unique") -> UniquePolicy:
    """Read a policy from the wire (OJS unique jobs 2), in the forms of all clients.

    ``key`` is a text, or an array: of dimensions as ``keys``, otherwise of names as ``args_keys``.
    Unknown fields are ignored. Raises :class:`InvalidRequest` naming the field.
    """
    if not isinstance(value, Mapping):
        raise InvalidRequest(field, "must be an object")
    given = {name: one for name, one in value.items() if one is not None}
    whole = given.pop("key", None)
    if isinstance(whole, (list, tuple)):
        words = _words(whole, f"{field}.key")
        given.setdefault("keys" if set(words) <= set(_DIMENSIONS) else "args_keys", whole)
        whole = None
    if whole is not None and (not isinstance(whole, str) or not 0 < len(whole) <= 1000):
        raise InvalidRequest(f"{field}.key", "must be a string of 1 to 1000 characters, or an array")
    if whole is not None:
        encode(whole, f"{field}.key", max_bytes=MAX_META_BYTES)
    args_keys = _named(given, field, "args_keys")
    meta_keys = _named(given, field, "meta_keys")
    implied = ["type", *(["args"] if args_keys else []), *(["meta"] if meta_keys else [])]
    keys = _words(given.get("keys", implied), f"{field}.keys", _DIMENSIONS)
    if "meta" in keys and not meta_keys:
        raise InvalidRequest(f"{field}.meta_keys", "is required with the key 'meta'")
    for name, names, dimension in (("args_keys", args_keys, "args"), ("meta_keys", meta_keys, "meta")):
        if names and dimension not in keys:
            raise InvalidRequest(f"{field}.{name}", f"needs {dimension!r} among the keys")
    states = _words(given.get("states", sorted(LIVE)), f"{field}.states", tuple(map(str, State)))
    conflict = given.get("on_conflict", "reject")
    if not isinstance(conflict, str) or conflict not in _CONFLICTS:
        raise InvalidRequest(f"{field}.on_conflict", f"must be one of {', '.join(_CONFLICTS)}")
    policy = UniquePolicy(
        keys,
        args_keys,
        meta_keys,
        whole,
        _period(given, field),
        frozenset(map(State, states)),
        OnConflict.IGNORE if conflict == "use_existing" else OnConflict(conflict),
        _ms(given, field, "debounce_ms"),
        _ms(given, field, "max_wait_ms"),
    )
    if policy.debounce_ms is not None and not policy.replaces:
        raise InvalidRequest(f"{field}.debounce_ms", "needs the on_conflict 'replace'")
    return policy


def declared(
    unique: object, throttle: object, debounce: object, *, name: str = "{}"
) -> UniquePolicy | Literal[False] | None:
    """The policy of the Python options ``unique``, ``throttle`` and ``debounce``; ``None`` without any.

    ``unique`` is a policy as on the wire, whose ``period`` may be any duration, or ``True``: type and
    arguments. ``False`` is returned as such: not unique, whatever the job type declares. ``throttle``
    is a duration in which there is one job; ``debounce`` one by which each new job puts off the start,
    or ``{"wait": ..., "max_wait": ...}``. Both compare type and arguments unless ``unique`` says
    otherwise. ``name`` is how options are named in errors. Raises :class:`InvalidRequest`.
    """
    if unique is False:
        for option, value in (("throttle", throttle), ("debounce", debounce)):
            if value is not None:
                raise InvalidRequest(name.format(option), "excludes unique=False")
        return False
    if unique is None and throttle is None and debounce is None:
        return None
    if throttle is not None and debounce is not None:
        raise InvalidRequest(name.format("debounce"), "excludes throttle")
    field = name.format("unique")
    given = {"keys": ["type", "args"]} if unique in (None, True) else unique
    if not isinstance(given, Mapping):
        raise InvalidRequest(field, "must be a dict, True or False")
    for key in given:
        if key not in UNIQUE_FIELDS:
            hint = did_you_mean(str(key), UNIQUE_FIELDS[:8], "fields")
            raise InvalidRequest(f"{field}.{str(key)[:80]}", f"is not known: {hint}")
    if throttle is not None or debounce is not None:
        option = "debounce" if throttle is None else "throttle"
        for key in ("period", "period_ms", "states", "on_conflict"):
            if given.get(key) is not None:
                raise InvalidRequest(f"{field}.{key}", f"is decided by {option}")
        if not given.keys() & {"keys", "key", "args_keys"}:
            given = {**given, "keys": ["type", "args"]}
    policy = parse_unique(given, field)
    if throttle is not None:
        return replace(
            policy,
            period_ms=parse_seconds_ms(throttle, name.format("throttle")),
            states=frozenset(State) - {State.CANCELLED},
            on_conflict=OnConflict.IGNORE,
        )
    return policy if debounce is None else _debounced(policy, debounce, name.format("debounce"))


def _debounced(policy: UniquePolicy, debounce: object, field: str) -> UniquePolicy:
    wait, most = debounce, None
    if isinstance(debounce, Mapping):
        if unknown := sorted(debounce.keys() - {"wait", "max_wait"}, key=str):
            raise InvalidRequest(f"{field}.{unknown[0]!s:.80}", "is not known: wait or max_wait")
        if "wait" not in debounce:
            raise InvalidRequest(f"{field}.wait", "is required")
        wait, most = debounce["wait"], debounce.get("max_wait")
        field += ".wait"
    wait_ms = parse_seconds_ms(wait, field)
    most_ms = None if most is None else parse_seconds_ms(most, field.replace(".wait", ".max_wait"))
    if most_ms is not None and most_ms < wait_ms:
        raise InvalidRequest(field.replace(".wait", ".max_wait"), "must not be below wait")
    return replace(
        policy,
        states=_NOT_BEGUN,
        on_conflict=OnConflict.REPLACE,
        debounce_ms=wait_ms,
        max_wait_ms=most_ms,
    )


def unique_key(
    policy: UniquePolicy, record: JobRow, parameters: Sequence[str] = (), *, field: str = "unique"
) -> str:
    """The key of a job: SHA-256, in hex, of the canonical JSON of what is compared (OJS unique 4).

    ``args_keys`` are names of arguments: of ``parameters``, by position, of arguments by keyword, or of
    members of the first object in ``args``. Raises :class:`InvalidRequest` for one that is not there,
    since jobs that merely lack it would count as the same.
    """
    found: dict[str, Any] = {"type": record.type}
    meta = record.json("meta") if policy.meta_keys or policy.key is None else {}
    key = policy.key
    if key is None and "args" in policy.keys:
        args = record.json("args")
        key = _key_of_encoded(args, meta, field)
        if key is None:
            found["args"] = _selected(args, meta, policy, parameters, field)
    if key is not None:
        found["key"] = key
    elif "queue" in policy.keys:
        found["queue"] = record.queue
    if policy.meta_keys and policy.key is None:
        found["meta"] = _picked(meta, policy.meta_keys, f"{field}.meta_keys", "meta")
    return hashlib.sha256(canonical(found).encode()).hexdigest()


def _key_of_encoded(args: list[Any], meta: Mapping[str, Any], field: str) -> str | None:
    """The key that a client gives with arguments that look different each time: encrypted ones."""
    first = args[0] if args and isinstance(args[0], dict) else {}
    if not (meta.get(_ENCODED) or first.get(_ENCODED)):
        return None
    key = meta.get(_GIVEN_KEY)
    if not isinstance(key, str) or not key:
        raise InvalidRequest(
            f"{field}.key", f"is required, or meta.{_GIVEN_KEY}: encoded args are never the same"
        )
    return key


def _selected(
    args: list[Any],
    meta: Mapping[str, Any],
    policy: UniquePolicy,
    parameters: Sequence[str],
    field: str,
) -> Any:
    if not policy.args_keys:
        return args
    by_position, by_keyword = split(args, meta)
    first = next((one for one in args if isinstance(one, dict)), {})
    named = {**first, **by_keyword, **dict(zip(parameters, by_position, strict=False))}
    return _picked(named, policy.args_keys, f"{field}.args_keys", "args")


def _picked(values: Mapping[str, Any], names: Iterable[str], field: str, where: str) -> dict[str, Any]:
    for name in names:
        if name not in values:
            raise InvalidRequest(field, f"names {name[:80]!r}, which {where} does not have")
    return {name: values[name] for name in names}


def stored_policy(record: JobRow) -> UniquePolicy | None:
    """The policy that a job was enqueued with."""
    given = record.json("extra").get("unique")
    return None if given is None else parse_unique(given)


def held_longest(jobs: Iterable[JobRow]) -> list[JobRow]:
    """Those of the jobs of one key on which a later decision can depend.

    All that have not ended; of the others the last created one of each state, since whatever policy
    matches an older one matches that one as well.
    """
    ended: dict[str, JobRow] = {}
    live = []
    for job in jobs:
        if job.state not in TERMINAL:
            live.append(job)
        elif job.state not in ended or by_age(job) > by_age(ended[job.state]):
            ended[job.state] = job
    return [*live, *ended.values()]


def by_age(job: JobRow) -> tuple[datetime, Any]:
    """The order in which jobs were created."""
    return job.created_at, job.id


def _words(value: object, field: str, allowed: Collection[str] | None = None) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= _MOST:
        raise InvalidRequest(field, f"must be an array of 1 to {_MOST} strings")
    if not all(isinstance(word, str) and word for word in value):
        raise InvalidRequest(field, "must hold strings")
    if allowed is not None and not set(value) <= set(allowed):
        raise InvalidRequest(field, f"must be out of {', '.join(allowed)}")
    if len(set(value)) != len(value):
        raise InvalidRequest(field, "must not hold a string twice")
    return tuple(value)


def _named(given: Mapping[str, Any], field: str, name: str) -> tuple[str, ...]:
    # An empty list stands for all arguments, and for no meta, as null does.
    if name not in given or given[name] in ([], ()):
        return ()
    return _words(given[name], f"{field}.{name}")


def _period(given: Mapping[str, Any], field: str) -> int | None:
    if "period" in given:
        return parse_duration_ms(given["period"], f"{field}.period")
    return _ms(given, field, "period_ms")


def _ms(given: Mapping[str, Any], field: str, name: str) -> int | None:
    return parse_ms(given[name], f"{field}.{name}") if name in given else None
