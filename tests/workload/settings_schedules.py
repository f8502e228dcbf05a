"""The settings of the tests, with a schedule that is due each second."""

from __future__ import annotations

from tests.settings import *  # noqa: F403
from tests.settings import OJS as _OJS

OJS = {
    **_OJS,
    "CRON": {"ticking": {"every": "1s", "type": "work.echo", "args": ["tick"], "overlap": "allow"}},
}
