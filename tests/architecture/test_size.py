"""A large module is news about the design: over 400 lines it needs a reason, over 600 there is none."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "django_ojs"
LOOK, REFUSE = 400, 600
LARGE = {
    "worker/supervisor/dispatcher.py": "what a frame of an executor leads to, in one table",
    "worker/supervisor/runner.py": "the life of a worker, start to end",
}
"""Why these are one module all the same."""


def sizes(root: Path) -> dict[str, int]:
    """Lines of every module below ``root`` but migrations."""
    return {
        str(path.relative_to(root)): len(path.read_text().splitlines())
        for path in root.rglob("*.py")
        if "migrations" not in path.parts
    }


def too_large(found: dict[str, int]) -> dict[str, int]:
    """The modules that are larger than they may be."""
    return {name: lines for name, lines in found.items() if lines > (REFUSE if name in LARGE else LOOK)}


def test_no_module_grows_out_of_sight() -> None:
    found = sizes(PACKAGE)
    assert len(found) > 40
    assert too_large(found) == {}, "divide it, or say in LARGE why not"
    assert not [name for name in LARGE if found.get(name, 0) <= LOOK], "no longer large"


def test_a_large_module_is_found(tmp_path: Path) -> None:
    (tmp_path / "big.py").write_text("x = 1\n" * (LOOK + 1))
    (tmp_path / "small.py").write_text("x = 1\n" * LOOK)
    (tmp_path / "worker/supervisor").mkdir(parents=True)
    (tmp_path / "worker/supervisor/runner.py").write_text("x = 1\n" * (REFUSE + 1))
    assert too_large(sizes(tmp_path)) == {"big.py": LOOK + 1, "worker/supervisor/runner.py": REFUSE + 1}
