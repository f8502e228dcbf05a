"""Incidents: failures that are alike. One is of a job type and an error, by its message without what
differs from job to job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from django_ojs.domain.failures import cause_of

MOST_ERROR = 200
"""How many characters of the name of an error are compared."""
MOST_MESSAGE = 500
"""How many characters of a message are compared."""
VARYING = "#"
"""What stands for each part of a message that differs from job to job."""
_WORDED = frozenset(
    {"timeout", "stalled", "visibility_timeout", "total_timeout", "enqueue_ttl_expired"}
)
"""Errors that the server words itself: the message only repeats the limit."""
_VARIES = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"  # a UUID
    r"|0x[0-9a-f]+"  # an address in memory
    r"|[^\s'\"<>@]+@[^\s'\"<>@]+"  # an address of mail
    r"|(?<![0-9a-z])(?=[a-f]*[0-9])[0-9a-f]{8,}(?![0-9a-z])"  # a digest
    r"|[0-9]+(?:[.,:][0-9]+)*",  # numbers, times
    re.IGNORECASE,
)


def normalised(message: str) -> str:
    """A message without what differs from job to job: numbers, ids, addresses."""
    return " ".join(_VARIES.sub(VARYING, message[:MOST_MESSAGE]).split())


def identify(job_type: str, error: str, message: str) -> str:
    """The id of the incident of an error with this name and message: 16 hexadecimal digits."""
    name = error[:MOST_ERROR]
    said = "" if name in _WORDED else normalised(message)
    return blake2b("\0".join((job_type, name, said)).encode(), digest_size=8).hexdigest()


def incident_of(job_type: str, error: Mapping[str, Any]) -> str:
    """The incident of a job with this stored error: that of the cause, where no time was left for
    another attempt.
    """
    found = cause_of(error) or error
    return identify(job_type, str(found.get("type", "")), str(found.get("message", "")))
