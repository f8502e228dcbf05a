"""A large module is news about the design: over 400 lines it is named, over 600 refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "django_ojs"
LOOK, REFUSE = 400, 600


def sizes(root: Path) -> dict[str, int]:
    """Lines of every module below ``root`` but migrations."""
    return {
        str(path.relative_to(root)): len(path.read_text().splitlines())
        for path in root.rglob("*.py")
        if "migrations" not in path.parts
    }


@pytest.mark.filterwarnings("default::UserWarning")
def test_no_module_grows_out_of_sight() -> None:
    found = sizes(PACKAGE)
    assert len(found) > 40
    for name, lines in found.items():
        if lines > LOOK:
            warnings.warn(f"{name} has {lines} lines: look at the design", stacklevel=1)
    assert {name: lines for name, lines in found.items() if lines > REFUSE} == {}


def test_a_large_module_is_found(tmp_path: Path) -> None:
    (tmp_path / "big.py").write_text("x = 1\n" * (REFUSE + 1))
    assert sizes(tmp_path) == {"big.py": REFUSE + 1}
