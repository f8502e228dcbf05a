"""UUIDv7: the bits, the order, and what is taken for one (RFC 9562)."""

from __future__ import annotations

import copy
import pickle
import threading
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.domain.errors import InvalidRequest
from django_ojs.domain.ids import (
    Uuid7Generator,
    keyed_uuid7,
    made_at,
    parse_uuid7,
    time_of,
    uuid4_of,
    uuid7,
    uuid_of,
)

MS = 1_770_892_200_123
ALL_ONES = (1 << 74) - 1


@given(st.integers(0, (1 << 128) - 1))
def test_what_is_made_unchecked_is_a_uuid_as_any_other(number: int) -> None:
    made, checked = uuid_of(number), UUID(int=number)
    assert (made, hash(made), str(made), repr(made)) == (
        checked,
        hash(checked),
        str(checked),
        repr(checked),
    )
    assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == made
    assert made.is_safe is checked.is_safe


def test_when_it_was_made() -> None:
    assert made_at(uuid7(MS, 0)) == datetime(2026, 2, 12, 10, 30, 0, 123_000, tzinfo=UTC)


def test_no_moment_is_later_than_the_year_9999() -> None:
    """The bits go on to the year 10889."""
    assert made_at(uuid7(1 << 60, 0)) == datetime(9999, 1, 1, tzinfo=UTC)


@given(st.binary(min_size=16, max_size=16))
def test_a_random_one(drawn: bytes) -> None:
    assert uuid4_of(int.from_bytes(drawn, "big")) == UUID(bytes=drawn, version=4)


def test_the_example_of_the_rfc() -> None:
    made = uuid7(0x017F22E279B0, (0xCC3 << 62) | 0x18C4DC0C0C07398F)
    assert str(made) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@given(st.integers(0, (1 << 48) - 1), st.integers(0, 1 << 100))
def test_bits(ms: int, bits: int) -> None:
    made = uuid7(ms, bits)
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert time_of(made) == ms
    random = ((made.int >> 64) & 0xFFF) << 62 | (made.int & ((1 << 62) - 1))
    assert random == bits & ALL_ONES
    assert parse_uuid7(str(made), "id") == made


def test_a_moment_outside_of_the_range_is_clamped() -> None:
    assert time_of(uuid7(-5, 0)) == 0
    assert time_of(uuid7(1 << 60, 0)) == (1 << 48) - 1


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(MS - 3, MS + 3), st.integers(0, ALL_ONES)), max_size=60))
def test_only_grows_whatever_clock_and_dice_do(draws: list[tuple[int, int]]) -> None:
    generator = Uuid7Generator()
    made = [generator.next(ms, bits) for ms, bits in draws]
    assert all(one < other for one, other in pairwise(made))
    assert all(str(one) < str(other) for one, other in pairwise(made))
    assert all(UUID(str(one)).version == 7 for one in made)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(MS - 3, MS + 3), st.lists(st.integers(0, (1 << 32) - 1)))))
def test_a_batch_grows_after_all_that_was_made_before(draws: list[tuple[int, list[int]]]) -> None:
    generator = Uuid7Generator()
    made = [one for ms, steps in draws for one in generator.several(ms, ALL_ONES - 9, steps)]
    assert len(made) == sum(len(steps) + 1 for _, steps in draws)
    assert all(one < other for one, other in pairwise([*made, generator.next(MS, 0)]))
    assert all(one.version == 7 for one in made)


def test_many_in_one_millisecond() -> None:
    generator = Uuid7Generator()
    made = [generator.next(MS, 12345) for _ in range(20_000)]
    assert made == sorted(set(made))
    assert {time_of(one) for one in made} == {MS}


def test_a_full_millisecond_runs_over_into_the_next() -> None:
    generator = Uuid7Generator()
    first = generator.next(MS, ALL_ONES)
    second = generator.next(MS, 0)
    assert (time_of(first), time_of(second)) == (MS, MS + 1)
    assert first < second and second.version == 7


def test_the_clock_going_back_is_overtaken_again() -> None:
    generator = Uuid7Generator()
    first = generator.next(MS, 5)
    back = generator.next(MS - 3_600_000, 5)
    later = generator.next(MS + 1, 5)
    assert first < back < later
    assert time_of(back) == MS
    assert time_of(later) == MS + 1


def test_threads_share_a_generator() -> None:
    generator = Uuid7Generator()
    made: list[list[UUID]] = [[] for _ in range(4)]

    def draw(into: list[UUID]) -> None:
        into.extend(generator.next(MS, 7) for _ in range(2000))

    threads = [threading.Thread(target=draw, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one == sorted(one) for one in made)
    assert len(set().union(*made)) == 8000


def test_parse() -> None:
    text = "019539a4-b68c-7def-8000-1a2b3c4d5e6f"
    assert parse_uuid7(text, "id") == UUID(text)
    assert parse_uuid7(UUID(text), "id") == UUID(text)
    assert time_of(UUID(text)) == 0x019539A4B68C


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x",
        "019539A4-B68C-7DEF-8000-1A2B3C4D5E6F",
        "019539a4b68c7def80001a2b3c4d5e6f",
        "{019539a4-b68c-7def-8000-1a2b3c4d5e6f}",
        "urn:uuid:019539a4-b68c-7def-8000-1a2b3c4d5e6f",
        "019539a4-b68c-4def-8000-1a2b3c4d5e6f",
        "019539a4-b68c-8def-8000-1a2b3c4d5e6f",
        "019539a4-b68c-7def-0000-1a2b3c4d5e6f",
        "019539a4-b68c-7def-c000-1a2b3c4d5e6f",
        "019539a4-b68c-7def-8000-1a2b3c4d5e6",
        "019539a4-b68c-7def-8000-1a2b3c4d5e6f0",
        "019539a4-b68c-7def-8000-1a2b3c4d5e6f\n",
        " 019539a4-b68c-7def-8000-1a2b3c4d5e6f",
        "\u0660\u0661\u0669539a4-b68c-7def-8000-1a2b3c4d5e6f",
        str(uuid4()),
        uuid4(),
        UUID(int=0),
        1,
        None,
        True,
        [],
        b"019539a4-b68c-7def-8000-1a2b3c4d5e6f",
    ],
    ids=lambda value: ascii(value)[:45] if not isinstance(value, UUID) else "a uuid",
)
def test_parse_refuses(value: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_uuid7(value, "jobs[1].id")
    assert caught.value.field == "jobs[1].id"


PLACED = datetime(2026, 11, 23, 14, 5, 6, 789_000, tzinfo=UTC)
KEY = ("order.invoice", 4711)


def test_an_id_of_a_moment_and_a_key() -> None:
    """The value is part of the contract: a release that made another would enqueue twice."""
    made = keyed_uuid7(PLACED, KEY)
    assert str(made) == "01a208b9-8965-7f9f-982f-033f24404582"
    assert parse_uuid7(made, "id") == made
    assert time_of(made) == int(PLACED.timestamp() * 1000)
    elsewhere = PLACED.astimezone(timezone(timedelta(hours=5))) + timedelta(microseconds=999)
    assert keyed_uuid7(elsewhere, KEY) == made
    assert keyed_uuid7(PLACED.date(), KEY) == keyed_uuid7(datetime(2026, 11, 23, tzinfo=UTC), KEY)


def test_another_moment_or_key_is_another_id() -> None:
    keys: list[tuple[object, ...]] = [
        KEY,
        ("order.invoice", "4711"),
        ("order.invoice4711",),
        (4711, "order.invoice"),
        ("order.invoice", 4711, ""),
        ("order.invoice", UUID(int=4711)),
        ("order.invoice", PLACED),
        ("order.invoice", PLACED.date()),
        ("order.invoice", "2026-11-23"),
    ]
    made = {keyed_uuid7(moment, key) for key in keys for moment in (PLACED, PLACED.date())}
    assert len(made) == 2 * len(keys)


@pytest.mark.parametrize(
    ("moment", "key", "field"),
    [
        (PLACED.replace(tzinfo=None), KEY, "moment"),
        (datetime(1969, 12, 31, tzinfo=UTC), KEY, "moment"),
        ("2026-11-23", KEY, "moment"),
        (PLACED, (), "key"),
        (PLACED, ("a", 1.5), "key"),
        (PLACED, ("a", True), "key"),
        (PLACED, ("a", None), "key"),
        (PLACED, ("a", PLACED.replace(tzinfo=None)), "key"),
    ],
)
def test_what_makes_no_id(moment: Any, key: tuple[object, ...], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        keyed_uuid7(moment, key)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "part",
    [
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))),
    ],
)
def test_a_datetime_that_has_no_utc_is_no_part_of_a_key(part: datetime) -> None:
    with pytest.raises(InvalidRequest, match=r"^key: must have datetimes whose year in UTC is"):
        keyed_uuid7(datetime(2026, 1, 1, tzinfo=UTC), ["report", part])


def test_a_moment_at_the_end_of_time_is_one() -> None:
    last = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14)))
    assert time_of(keyed_uuid7(last, ["a"])) == 253_402_347_600_000
