"""Equal jobs in queues that a caller does not see: neither named to it nor replaced by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django_ojs.domain.errors import Duplicate
from django_ojs.http.principal import Principal
from django_ojs.services.unique import replacing

_OWN = ("existing_job_id", "existing_workflow_id")
"""Who repeats an id has given it."""
_ALWAYS = ("unique_key", "index")


@contextmanager
def shielded(caller: Principal) -> Iterator[None]:
    """In the block, unique jobs replace only jobs that the caller sees, and :class:`Duplicate` tells no
    more than the caller may know.
    """
    try:
        with replacing(lambda job: caller.sees(job.queue)):
            yield
    except Duplicate as error:
        raise _hidden(error, caller) from None


def _hidden(error: Duplicate, caller: Principal) -> Duplicate:
    if caller.unrestricted:
        return error
    if error.existing is None:
        shown: tuple[str, ...] = _OWN
    elif not caller.sees(error.existing.queue):
        error.message = "an equal job exists"
        shown = _ALWAYS
    else:
        return error
    error.details = {name: error.details[name] for name in shown if name in error.details}
    return error
