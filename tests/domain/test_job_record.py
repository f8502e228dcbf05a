"""A job as users see it."""

from __future__ import annotations

import json
import pickle

import pytest

from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.job import JobRow
from django_ojs.domain.job_record import JobRecord, id_of

from .records import record


def test_json_is_parsed() -> None:
    error = {"type": "app.Broken", "message": "no"}
    row = record(
        args='[1, {"by": 2}]',
        meta='{"ojs.kwargs": true, "trace": 5}',
        tags='["a"]',
        result='{"done": 10}',
        error=json.dumps(error),
        errors=json.dumps([error]),
    )
    job = JobRecord(row)
    assert (job.args, job.kwargs) == ([1], {"by": 2})
    assert (job.meta, job.tags, job.result) == ({"trace": 5}, ["a"], {"done": 10})
    assert (job.error, job.errors) == (error, [error])
    assert (job.id, job.state, job.attempt) == (row.id, row.state, row.attempt)
    assert JobRecord(record(result=None)).result is None
    tried = JobRecord(record(attempt=3, max_attempts=2**31 - 1))
    assert "attempt 3" in repr(tried) and "2147483647" not in repr(tried)
    assert JobRecord(record(args='[1, {"by": 2}]')).args == [1, {"by": 2}], "not said to be keywords"


def test_what_is_parsed_may_be_changed() -> None:
    job = JobRecord(record(meta='{"a": []}'))
    job.meta["a"].append(1)
    assert job.meta == {"a": []}


def test_it_fits_a_line() -> None:
    job = JobRecord(record(attempt=2, error='{"type": "timeout"}', errors="[]"))
    assert repr(job) == f"<JobRecord {job.id} video.transcode available, attempt 2 of 3: timeout>"
    assert repr(JobRecord(record())) == f"<JobRecord {record().id} video.transcode available>"


def test_records_are_values() -> None:
    one, same, other = JobRecord(record()), JobRecord(record()), JobRecord(record(priority=9))
    assert one == same != other
    assert len({one, same, other}) == 2
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(AttributeError):
        one.state = "completed"


def test_every_column_has_a_place_or_a_reason() -> None:
    inner = {
        *("lease_id", "lease_seq", "lease_principal", "lease_expires_at", "lease_visibility_ms"),
        *("heartbeat_armed", "heartbeat_explicit", "timeout_explicit", "visibility_timeout_ms"),
        *("checkpoint_seq", "checkpoint_info", "hooks", "extra", "digest", "limits_from", "held"),
        "incident",
    }
    shown = {name for name in vars(JobRecord) if name in JobRow._fields}
    assert shown | inner == set(JobRow._fields)
    assert not shown & inner


def test_an_id_or_a_job() -> None:
    row = record()
    assert id_of(row) == id_of(JobRecord(row)) == id_of(row.id) == id_of(str(row.id)) == row.id
    with pytest.raises(InvalidRequest, match="job"):
        id_of("17")
