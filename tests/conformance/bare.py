"""Settings of the example project without ``OJS``: everything by default."""

from __future__ import annotations

from example_project.settings import *  # noqa: F403

del OJS  # noqa: F821
