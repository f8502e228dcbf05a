"""Django's backends for tests, for tasks that are declared with the options of django-ojs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django_ojs.tasks_backend.compat import BaseTaskBackend
from django_ojs.tasks_backend.task import OJSTask

_BACKENDS = BaseTaskBackend.__module__.rpartition(".")[0]

if TYPE_CHECKING:

    class _Immediate(BaseTaskBackend): ...

    class _Dummy(BaseTaskBackend): ...

else:
    _Immediate = import_module(f"{_BACKENDS}.immediate").ImmediateBackend
    _Dummy = import_module(f"{_BACKENDS}.dummy").DummyBackend


class ImmediateBackend(_Immediate):
    """Django's ``ImmediateBackend`` that takes the options of tasks of django-ojs, and ignores them."""

    task_class: Any = OJSTask


class DummyBackend(_Dummy):
    """Django's ``DummyBackend`` that takes the options of tasks of django-ojs, and ignores them."""

    task_class: Any = OJSTask
