"""What is django_ojs's own work: its types, and the queue that has no others."""

from __future__ import annotations

OWN_PREFIX = "ojs."
"""How the types of django_ojs itself begin."""
OWN_QUEUE = "ojs-admin"
"""Where the jobs of those types are. A worker takes no others from it."""


def is_own(*, type: str = "", queue: str = "") -> bool:
    """Whether the type, or the queue, is for the work of django_ojs itself.

    Such work is ordered in the admin, and nobody else acts on it or puts anything there.
    """
    return type.startswith(OWN_PREFIX) or queue == OWN_QUEUE
