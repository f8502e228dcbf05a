"""The tests' settings on PostgreSQL with serializable transactions, some of which fail at their commit,
and without NOTIFY, which distributed engines do not have.
"""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, OJS

OJS = {**OJS, "NOTIFY": False}  # type: ignore[dict-item]
DATABASES["default"]["OPTIONS"]["options"] = "-c default_transaction_isolation=serializable"
