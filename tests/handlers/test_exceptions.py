"""What handlers raise has the name by which it is imported: in stored errors, logs and tracebacks."""

from __future__ import annotations

import pickle

import pytest

import django_ojs

NAMES = ("DeadLetter", "Discard", "Fail", "LeaseGone", "Retry", "SoftStop")


@pytest.mark.parametrize("name", NAMES)
def test_an_exception_has_its_public_name(name: str) -> None:
    kind = getattr(django_ojs, name)
    assert f"{kind.__module__}.{kind.__qualname__}" == f"django_ojs.{name}"
    error = kind("a reason")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert copy.args == error.args


def test_a_subclass_keeps_its_own_name() -> None:
    class OutOfStock(django_ojs.Discard):
        """Of a project."""

    assert OutOfStock.__module__ == __name__
