"""Files of projects that are tested as a user would."""

from __future__ import annotations

TEN = '''
"""Ten tests of the project of docs/howto/testing.md, written from that page and the reference."""

from datetime import timedelta
from unittest import mock

from django.contrib.auth.models import User
from django.core import mail
from django.db import transaction
from django.test import TransactionTestCase
from shop.jobs import import_users, sign_up, welcome

import django_ojs
from django_ojs import SoftStop, batch, job
from django_ojs.testing import Drained, OJSTestCase, OJSTestMixin


@job("shop.report")
def report(ctx: django_ojs.JobContext):
    return sum(ctx.parent_results)


class TenTests(OJSTestCase):
    def test_1_enqueued(self):
        user = sign_up("ada@example.org")
        self.assertEnqueued(welcome, count=2, kwargs={"user_id": user.pk})
        self.assertEnqueued(welcome, scheduled_in=timedelta(days=7), count=1)
        self.refuteEnqueued(import_users)
        with self.assertRaisesMessage(AssertionError, "queue: expected 'post', is 'mail'"):
            self.assertEnqueued(welcome, queue="post")

    def test_2_sent(self):
        sign_up("ada@example.org")
        self.assertEqual(self.drain(), Drained(completed=1))
        self.assertEqual(mail.outbox[0].to, ["ada@example.org"])

    def test_3_patched(self):
        sign_up("ada@example.org")
        with mock.patch("shop.jobs.send_mail", side_effect=OSError) as sent:
            self.assertEqual(self.drain("mail"), Drained(failed=1, retryable=1))
        sent.assert_called_once()

    def test_4_retried_until_given_up(self):
        one = welcome.enqueue(404)
        self.ojs_clock.advance(days=1, work=True)
        self.assertEqual((django_ojs.get(one).state, django_ojs.get(one).attempt), ("discarded", 3))

    def test_5_the_week_after(self):
        sign_up("ada@example.org")
        self.ojs_clock.advance(days=7, work=True)
        self.assertEqual([m.subject for m in mail.outbox], ["Welcome", "Still there?"])

    def test_6_on_commit(self):
        with self.commits(), transaction.atomic():
            welcome.enqueue_on_commit(1)
            self.refuteEnqueued(welcome)
        self.assertEnqueued(welcome, args=[1])

    def test_7_durable_blocks_of_handlers(self):
        def create(**named):
            with transaction.atomic(durable=True):
                return User.objects.create(**named), True

        one = import_users.enqueue(["ada", "grace"])
        with mock.patch.object(User.objects, "get_or_create", create):
            self.assertEqual(self.drain(raise_failures=True), Drained(completed=1))
        self.assertEqual(django_ojs.get(one).result, 2)
        self.assertEqual(User.objects.count(), 2)

    def test_8_performed(self):
        done = self.perform(import_users, ["ada", "grace"], stop_after=2)
        self.assertIsInstance(done.error, SoftStop)
        self.assertEqual((done.state, done.checkpoints), ("retryable", (1,)))
        again = self.perform(import_users, ["ada", "grace"], checkpoint=1)
        self.assertEqual(again.checkpoints, (2,))

    def test_9_cancelled_while_it_runs(self):
        one = import_users.enqueue(["ada"])
        with self.running(one) as ctx:
            django_ojs.cancel(one)
            with self.assertRaises(SoftStop):
                ctx.check()
        self.assertEqual(django_ojs.get(one).state, "cancelled")

    def test_10_a_workflow(self):
        parts = import_users.steps([(["ada"],), (["joan", "grace"],)])
        batch(parts, on_success=report.step()).enqueue()
        self.assertEqual(self.drain(), Drained(completed=3))
        (done,) = self.enqueued(report)
        self.assertEqual(done.result, 3)
'''

FIXTURES = """
import pytest
from shop.jobs import sign_up, welcome


@pytest.mark.ojs("fake")
def test_fake(ojs):
    one = welcome.enqueue(7)
    assert ojs.enqueued(args=[7]) == [one]


@pytest.mark.django_db
@pytest.mark.ojs("inline", raise_failures=True)
def test_inline(mailoutbox):
    sign_up("ada@example.org")
    assert len(mailoutbox) == 1


@pytest.mark.django_db
def test_manual(ojs, mailoutbox):
    sign_up("ada@example.org")
    assert len(mailoutbox) == 0


@pytest.mark.parametrize("again", [1, 2])
def test_worker(ojs_worker, again):
    done = ojs_worker.wait(sign_up_in_a_worker())
    assert done.result == "ada@example.org", ojs_worker.output


def sign_up_in_a_worker():
    from django.contrib.auth.models import User

    return welcome.enqueue(User.objects.create(username="ada", email="ada@example.org").pk)
"""
