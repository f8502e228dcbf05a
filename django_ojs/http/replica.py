"""Lists and metrics of the binding from the replica."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from django.http import HttpResponse
from rest_framework.request import Request

from django_ojs.http.base import OJSViewSet
from django_ojs.services import reading

P = ParamSpec("P")
V = TypeVar("V", bound=OJSViewSet)
R = TypeVar("R", bound=HttpResponse)
LAG = "OJS-Replica-Lag"
"""The header of an answer from the replica: by how many seconds it is behind."""


def from_replica(
    act: Callable[Concatenate[V, Request, P], R],
) -> Callable[Concatenate[V, Request, P], R]:
    """An action that only reads, with ``self.using`` on the replica unless the client needs the latest
    (:func:`reading.needs_latest`).
    """

    @wraps(act)
    def answer(self: V, request: Request, /, *args: P.args, **kwargs: P.kwargs) -> R:
        def read() -> R:
            response = act(self, request, *args, **kwargs)
            found = reading.current()
            if found is not None and found.lag is not None and not found.refused:
                response[LAG] = f"{found.lag:.1f}"
            return response

        return reading.on_replica(read, latest=reading.needs_latest(request._request))

    return answer
