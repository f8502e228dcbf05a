"""Who holds the keys of unique jobs."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.fields import CaseSensitiveCharField
from django_ojs.models.indexes import OrderedIndex


class UniqueKey(models.Model):
    """A key of unique jobs: whoever enqueues or retries one of them holds this row until its commit.

    ``holders`` are the ids of the jobs with the key on which a later decision can depend: all that
    have not ended, and of each final state the last one. A list here, and not an index of jobs: reading
    one by its key locks nothing beside it, while a locking scan of an index locks the gap to the next
    key (MariaDB), in which others insert. ``used_at`` is when a job was last enqueued or retried, or
    pruning found that the row is needed.
    """

    key = models.CharField(_("unique key"), max_length=64, primary_key=True)
    type = CaseSensitiveCharField(_("job type"), max_length=255)
    holders = models.JSONField(_("holders"), default=list)
    used_at = models.DateTimeField(_("last used"))

    class Meta:
        verbose_name = _("unique key")
        verbose_name_plural = _("unique keys")
        indexes = [OrderedIndex(fields=["used_at"], name="ojs_unique_used")]

    def __str__(self) -> str:
        return f"{self.type} {self.key}"
