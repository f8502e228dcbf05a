"""One attempt of a handler, without a row."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.utils.translation import gettext_lazy

import django_ojs
from django_ojs import DeadLetter, InvalidRequest, JobContext, Retry, SoftStop, clock, job
from django_ojs.testing import Performed, perform


@pytest.fixture(autouse=True)
def no_database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every statement would be an error."""
    if "ojs_db" not in request.fixturenames:
        monkeypatch.setattr(connections["default"], "cursor", None)
        monkeypatch.setattr(connections["default"], "connect", None)
        clock.database_clock.forget()


def test_a_result_is_as_it_is_read() -> None:
    @job("kit.adds", queue="sums")
    def adds(ctx: JobContext, a: int, *, b: int = 1) -> Any:
        return (a + b, ctx.queue, ctx.attempt, ctx.type)

    assert perform(adds, 1) == Performed("completed", [2, "sums", 1, "kit.adds"])
    assert perform("kit.adds", 1, kwargs={"b": 2}, attempt=3).result == [3, "sums", 3, "kit.adds"]
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        perform(adds)
    with pytest.raises(django_ojs.InvalidRequest, match="args"):
        perform(adds, object())
    with pytest.raises(django_ojs.HandlerNotFound):
        perform("kit.unknown")


def test_what_the_context_was_used_for_is_recorded() -> None:
    @job("kit.uses")
    def uses(ctx: JobContext) -> Any:
        ctx.progress(0.5, "half", {"rows": 2})
        ctx.checkpoint([ctx.last_checkpoint, 2])
        ctx.heartbeat()
        later = ctx.extend_timeout("1m")
        assert later == ctx.deadline
        assert ctx.workflow is not None
        ctx.workflow.add(uses.step())
        return [ctx.meta, sum(ctx.parent_results)]

    done = perform(uses, checkpoint=1, meta={"who": "me"}, parent_results=[1, 2])
    assert done == Performed(
        "completed",
        [{"who": "me"}, 3],
        progress=((0.5, "half", {"rows": 2}),),
        checkpoints=([1, 2],),
        heartbeats=1,
        extended=timedelta(minutes=1),
        added=(("kit.uses", [], {}),),
    )


def test_the_state_follows_from_the_policy() -> None:
    @job("kit.fails", retry={"max_attempts": 2, "initial_interval": "10s", "jitter": False})
    def fails(how: str) -> None:
        raise {
            "error": ValueError("no"),
            "later": Retry(after="1h"),
            "never": DeadLetter("no"),
        }[how]

    first = perform(fails, "error")
    assert (first.state, first.retry_in) == ("retryable", timedelta(seconds=10))
    assert isinstance(first.error, ValueError)
    assert perform(fails, "later").retry_in == timedelta(hours=1)
    assert perform(fails, "error", attempt=2).state == "discarded"
    assert perform(fails, "error", attempt=2, max_attempts=3).state == "retryable"
    assert (last := perform(fails, "never")).state == "discarded"
    assert isinstance(last.error, DeadLetter)
    assert last.retry_in is None


def test_stopping_at_each_use() -> None:
    @job("kit.loops", retry={"max_attempts": 2})
    def loops(ctx: JobContext) -> str:
        try:
            for step in range(3):
                ctx.check()
                ctx.checkpoint(step)
        except SoftStop as stop:
            if stop.reason == "shutdown":
                return "stopped early"
            ctx.checkpoint("cleaned up")
            raise
        return "done"

    assert perform(loops).result == "done"
    found = [perform(loops, stop_after=uses).checkpoints for uses in (1, 2, 3)]
    assert found == [("cleaned up",), ("cleaned up",), (0, "cleaned up")]
    stopped = perform(loops, stop_after=1)
    assert (stopped.state, type(stopped.error)) == ("retryable", SoftStop)
    assert perform(loops, stop_after=1, attempt=2).state == "discarded"
    assert perform(loops, stop_after=1, stop_reason="cancelled").state == "cancelled"
    assert perform(loops, stop_after=2, stop_reason="shutdown").result == "stopped early"


def test_a_handler_that_is_only_told_is_not_stopped() -> None:
    @job("kit.told", soft="flag")
    def told(ctx: JobContext) -> str | None:
        for _ in range(9):
            ctx.progress(0.5)
            if ctx.cancelled:
                break
        return ctx.cancel_reason

    assert perform(told, stop_after=2, stop_reason="shutdown").result == "shutdown"
    assert perform(told).result is None


def test_a_shield_defers_the_stop() -> None:
    @job("kit.shield")
    def shield(ctx: JobContext) -> None:
        with ctx.shield():
            ctx.progress(0.5)
            ctx.checkpoint("saved")
        raise AssertionError("never")

    stopped = perform(shield, stop_after=1)
    assert isinstance(stopped.error, SoftStop)
    assert stopped.checkpoints == ("saved",)


def test_coroutines_and_middleware() -> None:
    seen: list[str] = []

    def around(context: JobContext, call_next: Any) -> Any:
        seen.append(context.type)
        return call_next(context)

    @job("kit.coroutine")
    async def work(ctx: JobContext) -> str:
        ctx.checkpoint(1)
        return "done"

    django_ojs.execution_middleware.add(around, "kit")
    try:
        done = perform(work)
    finally:
        django_ojs.execution_middleware.remove("kit")
    assert done == Performed("completed", "done", checkpoints=(1,))
    assert seen == ["kit.coroutine"]


def test_a_result_that_cannot_be_stored() -> None:
    @job("kit.object")
    def returns() -> object:
        return object()

    assert perform(returns).state == "discarded"


def test_a_handler_may_use_the_database(ojs_db: None, in_test_case: None) -> None:
    seen: list[int] = []

    @job("kit.commits")
    def commits() -> None:
        with transaction.atomic(durable=True):
            transaction.on_commit(lambda: seen.append(1))

    assert perform(commits).state == "completed"
    assert seen == [1]


def test_errors_of_a_listed_class_and_its_subclasses_are_not_tried_again() -> None:
    @job("kit.declines", retry={"non_retryable_errors": [LookupError]})
    def declines(error: str) -> None:
        raise {"key": KeyError, "lookup": LookupError, "value": ValueError}[error]("no")

    states = [perform(declines, error).state for error in ("key", "lookup", "value")]
    assert states == ["discarded", "discarded", "retryable"]
    again = declines.using(retry={"non_retryable_errors": ["builtins.*"]})
    assert perform(again, "value").state == "discarded"


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        (("half",), "fraction: must be a number from 0 to 1"),
        ((None,), "fraction: must be a number from 0 to 1"),
        ((0.5, 5), "message: must be text"),
        ((0.5, None), "message: must be text"),
        ((0.5, "", float("nan")), "data: must be a finite number"),
    ],
)
def test_progress_that_is_none_is_refused_by_name(progress: Any, said: str) -> None:
    @job("kit.reports")
    def reports(ctx: JobContext) -> None:
        ctx.progress(*progress)

    done = perform(reports)
    assert (str(done.error), done.progress) == (said, ())


def test_a_message_may_be_translated_later() -> None:
    @job("kit.translates")
    def translates(ctx: JobContext) -> None:
        ctx.progress(1, gettext_lazy("Done"))  # type: ignore[arg-type]

    assert perform(translates).progress == ((1.0, "Done", None),)


def test_a_checkpoint_is_json_here_too() -> None:
    @job("kit.goes-on")
    def goes_on(ctx: JobContext) -> None: ...

    with pytest.raises(
        django_ojs.InvalidRequest, match=r"checkpoint\.day: must be a JSON value, not date"
    ):
        perform(goes_on, checkpoint={"day": date(2026, 11, 28)})


@pytest.mark.parametrize("given", [{"attempt": 0}, {"attempt": -1}, {"max_attempts": 0}])
def test_attempts_count_from_one(given: Any) -> None:
    @job("kit.counted")
    def counted() -> None: ...

    (name,) = given
    with pytest.raises(InvalidRequest, match=f"{name}: must be at least 1"):
        perform(counted, **given)
