"""What goes on for long is asked again whether it may: streams and fetches that wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from django_ojs.http.principal import Principal, of_token, of_user
from django_ojs.http.views import events
from django_ojs.models import ApiToken, Job
from django_ojs.services import stream, tokens
from django_ojs.services.stream import Wanted
from tests.http.conftest import Caller
from tests.http.support import Answer, Api, enqueue

pytestmark = [pytest.mark.every_database, pytest.mark.usefixtures("one_window", "ojs_db", "no_wait")]
Change = Callable[[], object]


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that ask before every step, and do not sleep."""
    monkeypatch.setattr(events, "RECHECK_SECONDS", 0.0)
    monkeypatch.setattr(events, "LOOK_EVERY", 0.001)
    monkeypatch.setattr(events, "STREAM_SECONDS", 20.0)


@pytest.fixture
def user() -> Iterator[User]:
    """A staff user who may look by a permission, and work by a group."""
    made = User.objects.create_user("lasting", is_staff=True)
    group = Group.objects.create(name="lasting")
    try:
        made.user_permissions.add(Permission.objects.get(codename="http_inspect"))
        group.permissions.add(Permission.objects.get(codename="http_work"))
        made.groups.add(group)
        yield made
    finally:
        User.objects.filter(username="lasting").delete()
        group.delete()


def of(api: Api) -> Principal:
    token = tokens.verify(api.token or "")
    assert token is not None
    return of_token(token)


def token_with(**columns: Any) -> Change:
    return lambda: ApiToken.objects.filter(name="mine").update(**columns)


def user_with(**columns: Any) -> Change:
    return lambda: User.objects.filter(username="lasting").update(**columns)


def withdrawn() -> None:
    User.objects.get(username="lasting").user_permissions.clear()


def no_member() -> None:
    User.objects.get(username="lasting").groups.clear()


def deleted() -> None:
    User.objects.get(username="lasting").delete()


def streamed(every: Api, principal: Principal, change: Change) -> bool:
    """Whether a stream goes on after the change."""
    lines = events._follow(principal, Wanted(), stream.newest(), "default")
    next(lines)
    first = enqueue(every)
    assert first["id"].encode() in next(lines)
    change()
    second = enqueue(every)
    rest = next(lines, None)
    lines.close()
    assert rest is None or second["id"].encode() in rest
    return rest is not None


@pytest.mark.fault("S30")
@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        (token_with(created_by="x"), True),
        (token_with(scopes=["inspect"]), True),
        (token_with(scopes=["produce", "work"]), False),
        (token_with(queues=["a-*"]), False),
        (token_with(queues=["*", "a-*"]), False),
    ],
    ids=["nothing", "enough", "no scope", "fewer queues", "other queues"],
)
def test_a_stream_lasts_while_its_token_has_the_rights(
    caller: Caller, change: Change, goes_on: bool
) -> None:
    """Whoever narrows a token of a partner means what is open too."""
    assert streamed(caller(name="all"), of(caller(name="mine")), change) is goes_on


@pytest.mark.fault("S30")
@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        (user_with(first_name="x"), True),
        (no_member, True),
        (user_with(is_active=False), False),
        (user_with(is_staff=False), False),
        (withdrawn, False),
        (deleted, False),
    ],
    ids=["nothing", "enough", "inactive", "no staff", "no permission", "deleted"],
)
def test_a_stream_lasts_while_its_user_has_the_rights(
    caller: Caller, user: User, change: Change, goes_on: bool
) -> None:
    fresh = User.objects.get(pk=user.pk)
    assert streamed(caller(name="all"), of_user(fresh), change) is goes_on


def polled(
    every: Api,
    post: Callable[[dict[str, Any]], Answer],
    change: Change,
    monkeypatch: pytest.MonkeyPatch,
) -> Answer:
    """What a fetch that waits is answered when the change comes after its first look, with a job."""
    asked: list[int] = []
    renewed = Principal.renewed

    def interrupted(self: Principal, *, using: str) -> Principal | None:
        asked.append(1)
        if len(asked) == 2:
            change()
            enqueue(every)
        return renewed(self, using=using)

    monkeypatch.setattr(Principal, "renewed", interrupted)
    return post({"queues": ["default"], "wait_ms": 20_000})


@pytest.mark.parametrize(
    ("change", "status", "jobs"),
    [
        (token_with(scopes=["work"]), 200, 1),
        (token_with(scopes=["produce", "inspect"]), 200, 0),
        (token_with(queues=["a-*"]), 200, 0),
        (lambda: tokens.revoke("mine"), 401, 0),
    ],
    ids=["enough", "no scope", "fewer queues", "revoked"],
)
def test_a_fetch_waits_while_its_token_has_the_rights(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, change: Change, status: int, jobs: int
) -> None:
    """Where they have changed it ends without a job: the next fetch is judged anew."""
    every, mine = caller(name="all"), caller(name="mine")
    answer = polled(every, lambda body: mine.post("/workers/fetch", body), change, monkeypatch)
    assert answer.status == status, answer.raw
    assert Job.objects.filter(state="active").count() == jobs
    if status == 200:
        assert len(answer.body["jobs"]) == jobs


@pytest.mark.parametrize(
    ("change", "status", "jobs"),
    [(withdrawn, 200, 1), (no_member, 200, 0), (user_with(is_active=False), 401, 0), (deleted, 401, 0)],
    ids=["enough", "no permission", "inactive", "deleted"],
)
def test_a_fetch_waits_while_its_user_has_the_rights(
    caller: Caller,
    user: User,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    status: int,
    jobs: int,
) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(user)

    def post(body: dict[str, Any]) -> Answer:
        path = "/ojs/v1/workers/fetch"
        response = client.post(path, body, content_type="application/json")
        return Answer(response.status_code, dict(response.items()), response.content)

    assert polled(caller(name="all"), post, change, monkeypatch).status == status
    assert Job.objects.filter(state="active").count() == jobs


def test_a_result_is_waited_for_while_the_token_has_the_rights(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    every, mine = caller(name="all"), caller(name="mine")
    job = enqueue(every)
    ask = lambda _: mine.get(f"/jobs/{job['id']}/result?wait=true&timeout=20")  # noqa: E731
    change = token_with(queues=["a-*"])
    assert polled(every, ask, change, monkeypatch).code == "wait_timeout"


def test_a_credential_of_a_projects_own_class_is_taken_as_it_was(caller: Caller) -> None:
    own = Principal("partner:1", "partner", frozenset({"inspect"}))
    assert own.renewed(using="default") is own
    assert streamed(caller(name="all"), own, lambda: None)
