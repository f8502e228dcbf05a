"""``python -m tests.browser.screenshots``: make the pictures of ``docs/images`` anew."""

from __future__ import annotations

import os
import sys
import tempfile

import pytest

from tests.part import ROOT


def main() -> int:
    """By the test that makes them, on a database of its own."""
    folder = ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OJS_SCREENSHOTS", str(folder))
    with tempfile.TemporaryDirectory(prefix="ojs-shots-") as scratch:
        os.environ["DATABASE_URL"] = f"sqlite:///{scratch}/any"
        return int(
            pytest.main(["-q", "tests/browser/test_screenshots.py", "-k", "pictures_of or a_picture"])
        )


if __name__ == "__main__":
    sys.exit(main())
