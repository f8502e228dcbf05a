"""A large module is news about the design: no file of the package has over 400 lines."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "django_ojs"
MOST = 400


def too_large(root: Path) -> dict[str, int]:
    """The modules below ``root`` that have more lines than they may, migrations left out."""
    sizes = {
        str(path.relative_to(root)): len(path.read_text().splitlines())
        for path in root.rglob("*.py")
        if "migrations" not in path.parts
    }
    assert sizes, f"no modules below {root}"
    return {name: lines for name, lines in sizes.items() if lines > MOST}


def test_no_module_grows_out_of_sight() -> None:
    assert too_large(PACKAGE) == {}, "divide it"


def test_a_large_module_is_found(tmp_path: Path) -> None:
    (tmp_path / "big.py").write_text("x = 1\n" * (MOST + 1))
    (tmp_path / "small.py").write_text("x = 1\n" * MOST)
    assert too_large(tmp_path) == {"big.py": MOST + 1}
