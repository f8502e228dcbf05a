"""The testing kit for ``unittest``: methods of a test case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.test import TestCase

from django_ojs.testing.assertions import assert_enqueued, refute_enqueued
from django_ojs.testing.clearing import clear
from django_ojs.testing.committing import commits
from django_ojs.testing.draining import drain
from django_ojs.testing.failing import fail_all, fail_next
from django_ojs.testing.holding import running
from django_ojs.testing.job_clock import JobClock
from django_ojs.testing.matching import enqueued
from django_ojs.testing.modes import mode
from django_ojs.testing.observing import events
from django_ojs.testing.performing import perform
from django_ojs.testing.resetting import forget

if TYPE_CHECKING:
    _Base = TestCase
else:
    _Base = object


class OJSTestMixin(_Base):
    """Adds the testing kit to ``TestCase`` or ``TransactionTestCase``; put it in front of them.

    ``ojs_mode`` is ``"manual"``, ``"inline"`` or ``"fake"``: what becomes of jobs when they are
    enqueued, kept until :func:`drain`, run at once, or recorded only. ``ojs_clock`` is the
    :class:`JobClock` of the test; it goes on when the test ends.
    """

    ojs_mode: str = "manual"
    ojs_clock: JobClock
    clear = staticmethod(clear)
    commits = staticmethod(commits)
    drain = staticmethod(drain)
    enqueued = staticmethod(enqueued)
    events = staticmethod(events)
    assertEnqueued = staticmethod(assert_enqueued)
    refuteEnqueued = staticmethod(refute_enqueued)
    perform = staticmethod(perform)
    running = staticmethod(running)
    failAll = staticmethod(fail_all)
    failNext = staticmethod(fail_next)

    def setUp(self) -> None:
        """Make the clock; what the process remembers of the queues is forgotten after the test."""
        super().setUp()
        self.addCleanup(forget)
        self.ojs_clock = JobClock()
        self.addCleanup(self.ojs_clock.close)
        self.enterContext(mode(self.ojs_mode))


class OJSTestCase(OJSTestMixin, TestCase):
    """``TestCase`` with the testing kit."""
