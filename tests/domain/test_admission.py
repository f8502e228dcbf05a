"""From a request and the terms of its type to the first record (T1, T3, T5, L4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_ojs.domain.admission import VERBATIM, JobDefaults, admit, creation_events, digest
from django_ojs.domain.durations import format_instant
from django_ojs.domain.envelope import Envelope, from_call, from_wire
from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import JobRow
from django_ojs.domain.limits import NO_LIMITS, Limits
from tests.domain.records import ID, NOW, at, policy

DEFAULTS = Limits(timeout_ms=1_800_000, grace_period_ms=30_000, heartbeat_timeout_ms=60_000)


def terms(explicit: Limits = NO_LIMITS, limits: Limits = DEFAULTS, **changes: Any) -> JobDefaults:
    settings: dict[str, Any] = {
        "queue": "default",
        "priority": 3,
        "explicit": explicit,
        "limits": explicit.over(limits),
        "max_attempts": 3,
        "retry": policy(),
        "always_armed": False,
    }
    return JobDefaults(**{**settings, **changes})


def request(**fields: Any) -> Envelope:
    return from_wire({"type": "video.transcode", "args": [1, "x"], **fields}, now=NOW)


def admitted(agreed: JobDefaults | None = None, **fields: Any) -> JobRow:
    return admit(request(**fields), agreed or terms(), job_id=ID, now=NOW)


def test_the_first_record() -> None:
    job = admitted(meta={"a": 1}, tags=["t"], x_more=[1])
    assert (job.id, job.state, job.queue, job.type) == (
        ID,
        "available",
        "default",
        "video.transcode",
    )
    assert (job.priority, job.attempt, job.max_attempts, job.lease_seq) == (3, 0, 3, 0)
    assert (job.created_at, job.limits_from, job.enqueued_at) == (NOW, NOW, NOW)
    assert (job.args, job.meta, job.tags) == ('[1,"x"]', '{"a":1}', '["t"]')
    assert job.json("extra") == {"x_more": [1]}
    assert (job.errors, job.error, job.result, job.lease_id) == ("[]", None, None, None)
    assert (job.timeout_ms, job.grace_period_ms) == (1_800_000, 30_000)
    assert (job.heartbeat_timeout_ms, job.total_timeout_ms) == (60_000, None)
    assert (job.deadline_at, job.digest) == (None, None)
    assert type(job.state) is str


def test_the_request_wins_over_the_terms() -> None:
    job = admitted(queue="mail", priority=-7)
    assert (job.queue, job.priority) == ("mail", -7)
    assert admitted(priority=0).priority == 0


class TestStates:
    @pytest.mark.parametrize(
        ("fields", "state", "events"),
        [
            ({}, "available", ["job.enqueued"]),
            ({"scheduled_at": "1s"}, "scheduled", ["job.scheduled"]),
            ({"scheduled_at": "0s"}, "available", ["job.enqueued"]),
            ({"scheduled_at": "2020-01-01T00:00:00Z"}, "available", ["job.enqueued"]),
            ({"pending": True}, "pending", []),
            ({"pending": True, "scheduled_at": "1s"}, "pending", []),
        ],
    )
    def test_states(self, fields: dict[str, Any], state: str, events: list[str]) -> None:
        job = admitted(**fields)
        assert job.state == state
        assert [str(job_event.kind) for job_event in creation_events(job)] == events
        assert job.enqueued_at == (None if state == "pending" else NOW)

    def test_what_is_announced(self) -> None:
        (scheduled,) = creation_events(admitted(scheduled_at="5s"))
        assert scheduled.data["scheduled_at"] == format_instant(at(5))
        (enqueued,) = creation_events(admitted())
        assert (enqueued.data["priority"], enqueued.data["job_id"]) == (3, str(ID))


class TestGrace:
    """Decision T3."""

    @pytest.mark.parametrize(
        ("fields", "grace"),
        [
            ({}, 30_000),
            ({"timeout": 10}, 30_000),
            ({"timeout": "10s"}, 30_000),
            ({"timeout_ms": 10_000}, 0),
            ({"options": {"timeout_ms": 10_000}}, 0),
            ({"timeout_ms": 0}, 30_000),
            ({"timeout_ms": 0, "timeout": 10}, 30_000),
            ({"timeout_ms": 10_000, "grace_period": 5}, 5000),
            ({"timeout_ms": 10_000, "grace_period_ms": 5}, 5),
            ({"timeout": 10, "grace_period": 0}, 0),
            ({"grace_period": 7}, 7000),
        ],
    )
    def test_rule(self, fields: dict[str, Any], grace: int) -> None:
        assert admitted(**fields).grace_period_ms == grace

    def test_strict_timeouts_restore_the_letter(self) -> None:
        assert admitted(terms(always_armed=True), timeout_ms=10_000).grace_period_ms == 30_000

    def test_a_grace_of_the_type_is_explicit(self) -> None:
        typed = terms(Limits(grace_period_ms=9000))
        assert admitted(typed, timeout_ms=10_000).grace_period_ms == 9000
        assert admitted(typed, grace_period=1).grace_period_ms == 1000
        assert admitted(terms(Limits(grace_period_ms=0))).grace_period_ms == 0


class TestLimits:
    def test_request_then_terms(self) -> None:
        typed = terms(
            Limits(
                timeout_ms=5000,
                heartbeat_timeout_ms=4000,
                total_timeout_ms=60_000,
                enqueue_ttl_ms=7000,
                visibility_timeout_ms=8000,
            )
        )
        job = admitted(typed)
        assert (job.timeout_ms, job.heartbeat_timeout_ms, job.total_timeout_ms) == (
            5000,
            4000,
            60_000,
        )
        assert (job.enqueue_ttl_ms, job.visibility_timeout_ms) == (7000, 8000)
        asked = admitted(
            typed,
            timeout=1,
            heartbeat_timeout=2,
            total_timeout=3,
            enqueue_ttl=4,
            visibility_timeout=5,
        )
        assert (asked.timeout_ms, asked.heartbeat_timeout_ms, asked.total_timeout_ms) == (
            1000,
            2000,
            3000,
        )
        assert (asked.enqueue_ttl_ms, asked.visibility_timeout_ms) == (4000, 5000)

    @pytest.mark.parametrize(
        ("agreed", "fields", "timeout", "heartbeat"),
        [
            (terms(), {}, False, False),
            (terms(), {"timeout": 5}, True, False),
            (terms(), {"timeout_ms": 5}, True, False),
            (terms(), {"heartbeat_timeout": 5}, False, True),
            (terms(Limits(timeout_ms=5000)), {}, True, False),
            (terms(Limits(heartbeat_timeout_ms=5000)), {}, False, True),
            (terms(always_armed=True), {}, False, True),
        ],
    )
    def test_what_counts_as_explicit(
        self, agreed: JobDefaults, fields: dict[str, Any], timeout: bool, heartbeat: bool
    ) -> None:
        job = admitted(agreed, **fields)
        assert (job.timeout_explicit, job.heartbeat_explicit) == (timeout, heartbeat)
        assert job.heartbeat_armed is False

    def test_total_below_an_explicit_timeout_is_refused(self) -> None:
        typed = terms(Limits(timeout_ms=5000))
        with pytest.raises(InvalidRequest) as caught:
            admitted(typed, total_timeout=4)
        assert caught.value.field == "total_timeout"
        assert admitted(typed, total_timeout=5).total_timeout_ms == 5000
        with pytest.raises(InvalidRequest):
            admitted(terms(Limits(total_timeout_ms=4000)), timeout=5)

    def test_total_below_the_default_timeout_is_accepted(self) -> None:
        assert admitted(total_timeout=1).total_timeout_ms == 1000

    @pytest.mark.parametrize(
        ("fields", "due"),
        [
            ({}, None),
            ({"total_timeout": 60}, at(60)),
            ({"enqueue_ttl": 50}, at(50)),
            ({"expires_at": "40s"}, at(40)),
            ({"total_timeout": 60, "enqueue_ttl": 50, "expires_at": "40s"}, at(40)),
            ({"total_timeout": 30, "enqueue_ttl": 50, "scheduled_at": "1h"}, at(30)),
            ({"enqueue_ttl": 50, "pending": True}, at(50)),
        ],
    )
    def test_deadline(self, fields: dict[str, Any], due: Any) -> None:
        assert admitted(**fields).deadline_at == due

    def test_deadline_of_a_limit_of_the_terms(self) -> None:
        assert admitted(terms(limits=DEFAULTS.over(Limits(enqueue_ttl_ms=9000)))).deadline_at == at(9)


def test_times_are_echoed_as_written() -> None:
    text = "2099-12-31T23:59:59Z"
    job = admitted(scheduled_at=text, expires_at="5s", x_a=1)
    assert json.loads(job.extra) == {"x_a": 1, VERBATIM: {"scheduled_at": text}}
    assert json.loads(admitted(expires_at=text).extra) == {VERBATIM: {"expires_at": text}}
    assert admitted(scheduled_at="5s").extra == "{}"


class TestDigest:
    """Decision L4: the same id with the same content is the same request."""

    BASE: dict[str, Any] = {
        "id": str(ID),
        "queue": "mail",
        "meta": {"a": 1, "b": 2},
        "retry": {"max_attempts": 5, "jitter": False},
        "x_more": {"p": 1, "q": 2},
    }

    def test_only_where_the_client_named_an_id(self) -> None:
        assert admitted().digest is None
        job = admitted(**self.BASE)
        assert job.digest is not None and len(job.digest) == 64
        assert job.digest == digest(request(**self.BASE))

    def test_the_same_again(self) -> None:
        one = digest(request(**self.BASE))
        assert digest(request(**self.BASE)) == one
        later = from_wire({"type": "video.transcode", "args": [1, "x"], **self.BASE}, now=at(3600))
        assert digest(later) == one

    def test_the_order_of_keys_and_the_place_of_options_do_not_matter(self) -> None:
        turned = {**self.BASE, "meta": {"b": 2, "a": 1}, "x_more": {"q": 2, "p": 1}}
        turned["retry"] = {"jitter": False, "max_attempts": 5}
        del turned["queue"]
        assert digest(request(**turned, options={"queue": "mail"})) == digest(request(**self.BASE))

    def test_a_relative_time_repeated_later_is_the_same_request(self) -> None:
        bodies = [{"type": "a", "args": [], "scheduled_at": "+PT5S", "expires_at": "1h"}] * 2
        one, two = (
            digest(from_wire(body, now=now)) for body, now in zip(bodies, (NOW, at(9)), strict=True)
        )
        assert one == two

    @pytest.mark.parametrize(
        "change",
        [
            {"args": [1, "y"]},
            {"args": [1, "x", None]},
            {"type": "video.other"},
            {"queue": "bulk"},
            {"priority": 1},
            {"meta": {"a": 1, "b": 3}},
            {"tags": ["t"]},
            {"retry": {"max_attempts": 6, "jitter": False}},
            {"timeout": 5},
            {"timeout_ms": 5000},
            {"enqueue_ttl": 5},
            {"scheduled_at": "2099-12-31T23:59:59Z"},
            {"scheduled_at": "+PT5S"},
            {"scheduled_at": "+PT6S"},
            {"expires_at": "2099-12-31T23:59:59Z"},
            {"expires_at": "1h"},
            {"pending": True},
            {"x_more": {"p": 1}},
        ],
        ids=str,
    )
    def test_other_content(self, change: dict[str, Any]) -> None:
        assert digest(request(**{**self.BASE, **change})) != digest(request(**self.BASE))

    def test_other_times(self) -> None:
        def of(**options: Any) -> str:
            return digest(from_call("a", [], now=NOW, id=ID, **options))

        texts = [
            of(),
            of(delay=5),
            of(delay=6),
            of(scheduled_at=at(60)),
            of(scheduled_at=at(61)),
            of(expires_at=at(60)),
            of(scheduled_at=at(60), expires_at=at(60)),
        ]
        assert len(set(texts)) == len(texts)
        assert of(scheduled_at=at(60)) == of(scheduled_at=at(60))
