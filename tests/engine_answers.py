"""Whether the server at ``OJS_TEST_PG_URL`` answers; the exit code says it."""

from __future__ import annotations

import os
import sys

from tests.run import usable

sys.exit(usable(os.environ["OJS_TEST_PG_URL"]))
