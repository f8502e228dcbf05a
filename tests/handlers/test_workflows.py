"""What a workflow cannot be built of, and errors that say which part of it is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from django_ojs import chain, step, workflow
from django_ojs.domain.errors import InvalidRequest


@pytest.mark.parametrize("name", [None, 5, b"x", ["a"], "a\x00b", "\udcff"])
def test_a_name_is_text(name: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^name: must "):
        chain(step("test.job"), name=name).definition()
    inner = chain(step("test.job"))
    inner.name = name
    with pytest.raises(InvalidRequest, match=r"^steps\[1\]\.name: must |^name: must "):
        chain(step("test.job"), inner).definition()


@pytest.mark.parametrize("meta", [5, "ab", ["ab"], {"a"}])
def test_meta_is_an_object(meta: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^meta: must be an object$"):
        chain(step("test.job")).definition(meta=meta)


def test_a_step_waits_for_what_add_returned() -> None:
    """A reference, not the name of a step, its place, or the step itself."""
    made = workflow("nightly")
    first = made.add(step("test.job"))
    others: list[Any] = ["extract", 0, ["extract"], step("test.job")]
    for other in others:
        with pytest.raises(TypeError, match=r"^after: must be what add\(\) returned"):
            made.add(step("test.job"), after=other)
    made.add(step("test.job"), after=(one for one in [first]))  # type: ignore[arg-type]
    assert [member.depends_on for member in made.definition().members] == [(), (0,)]  # type: ignore[union-attr]
