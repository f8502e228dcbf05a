"""Create workflows, in the caller's transaction (OJS workflows 11.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from django.db import IntegrityError, transaction

from django_ojs import clock, conf
from django_ojs.domain import stored_workflow
from django_ojs.domain.admission import admit
from django_ojs.domain.envelope import Envelope
from django_ojs.domain.errors import Duplicate, InvalidRequest
from django_ojs.domain.unique import OnConflict, parse_unique
from django_ojs.domain.workflow import Call, Definition, Fan, Step, check, each_call
from django_ojs.models import Workflow
from django_ojs.services import databases, middleware
from django_ojs.services.job_defaults import queue_of, resolve_defaults, without_type_policy
from django_ojs.services.workflows.tree import Tree
from django_ojs.store.contention import in_transaction


def create(
    definition: Definition,
    *,
    created_by: str = "",
    now: datetime | None = None,
    using: str | None = None,
) -> Workflow:
    """Insert a workflow and the jobs of its first steps, all or none, and return its row.

    Every step is checked, also those that start later, and passes through the enqueue middleware here
    and not again. Without ``using`` it goes where the queues of all its steps are. An id that is taken
    by a workflow of the same content gives that one back; raises :class:`Duplicate` for other content,
    :class:`InvalidRequest` naming the member.
    """
    check(definition)
    now = now or clock.now(using or database_of(definition))
    digest = None if definition.id is None else stored_workflow.digest(definition)
    ready = _through_middleware(definition, now)
    if using is None:
        using = database_of(ready)
        now = clock.now(using) if conf.current().databases.are_several else now
    _admissible(ready, now, using)
    try:
        return _create(ready, created_by, digest, now, using=using)
    except IntegrityError:
        # Only the id can collide: everything else is new.
        if definition.id is None:
            raise
        there = Workflow.objects.using(using).filter(pk=definition.id).first()
        if there is None:
            raise
        if there.digest != digest:
            raise Duplicate(
                f"the id {definition.id} is taken by a workflow with other content",
                existing_workflow_id=str(there.id),
                existing_workflow_state=there.state,
            ) from None
        return there


def database_of(definition: Definition) -> str:
    """The database of the first step; the others must be there too."""
    known = conf.current().databases
    call = next(each_call(definition), None) if known.are_several else None
    return known.default if call is None else known.of(queue_of(call.envelope))


@in_transaction
def _create(
    definition: Definition, created_by: str, digest: str | None, now: datetime, *, using: str = ""
) -> Workflow:
    tree = Tree(now, using)
    workflow = tree.starter.workflow(definition, created_by=created_by, digest=digest)
    with transaction.atomic(using=using):
        tree.write()
    return workflow


def _through_middleware(definition: Definition, now: datetime) -> Definition:
    if not middleware.chain.members():
        return definition
    members = [changed for member in definition.members for changed in _changed(member, now)]
    callbacks = {name: _call(call, now) for name, call in definition.callbacks.items()}
    return replace(definition, members=members, callbacks=callbacks)


def _changed(member: Step | Fan, now: datetime) -> Iterator[Step]:
    if isinstance(member, Fan):
        # The middleware sees each job, and may treat them differently.
        for text in member.args:
            call = replace(member.call, envelope=member.call.envelope._replace(args_json=text))
            yield Step(_call(call, now))
    elif isinstance(member.what, Definition):
        yield replace(member, what=_through_middleware(member.what, now))
    else:
        yield replace(member, what=_call(member.what, now))


def _call(call: Call, now: datetime) -> Call:
    request = middleware.passed([middleware.request_for(call.envelope, now=now)])[0]
    if request is None:
        raise InvalidRequest(
            call.envelope.type, "is dropped by the enqueue middleware: a workflow cannot do without it"
        )
    return replace(call, envelope=request.envelope)


def checked(call: Call) -> Call:
    """One more member of a workflow, through the enqueue middleware. Raises :class:`InvalidRequest`."""
    now = clock.now(databases.of_call(call.envelope.type, call.envelope.queue))
    ready = _call(call, now) if middleware.chain.members() else call
    _check_call(ready, now)
    return ready


def _check_call(call: Call, now: datetime, *, first: bool = False) -> None:
    envelope = call.due(now)
    if envelope.id is not None:
        raise InvalidRequest("id", "cannot be chosen for a step: the workflow may have one")
    if envelope.pending:
        raise InvalidRequest("pending", "is not for a step: nothing would activate it")
    _check_unique(envelope, first)
    envelope = without_type_policy(envelope)
    admit(envelope, resolve_defaults(envelope), job_id=clock.new_id(), now=now)


def _check_unique(envelope: Envelope, first: bool) -> None:
    """A step that starts when another ends would wait for a key, whose holder may wait for that one."""
    given = envelope.extra.get("unique") if envelope.extra else None
    if given is None or given is False:
        return
    if not first:
        raise InvalidRequest("unique", "is for the first step of a workflow only")
    if parse_unique(given).on_conflict is OnConflict.IGNORE:
        raise InvalidRequest(
            "unique.on_conflict", "must not be ignore: the workflow would be without the step"
        )


def _admissible(definition: Definition, now: datetime, using: str, path: str = "") -> None:
    """Raise what would be raised when one of the steps is enqueued."""
    named = "steps" if definition.is_ordered else "jobs"
    for index, member in enumerate(definition.members):
        place = f"{path}{named}[{index}]"
        what = member.call if isinstance(member, Fan) else member.what
        if isinstance(what, Definition):
            _admissible(what, now, using, f"{place}.")
        else:
            first = not path and index == 0 and isinstance(member, Step) and not member.depends_on
            _check_at(place, what, now, using, first=first)
    for name, call in definition.callbacks.items():
        _check_at(f"{path}callbacks.{name}", call, now, using)


def _check_at(place: str, call: Call, now: datetime, using: str, *, first: bool = False) -> None:
    try:
        databases.refuse_elsewhere(queue_of(call.envelope), using, "the workflow")
        databases.refuse_shared_keys(call.envelope, using, step=True)
        _check_call(call, now, first=first)
    except InvalidRequest as error:
        raise InvalidRequest(f"{place}.{error.field}", error.rule) from None
