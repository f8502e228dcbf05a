"""The table of docs/reliability.md: ``python -m tests.faults.page`` writes it anew."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.faults.catalogue import ROWS

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "reliability.md"
_BEGIN, _END = "<!-- faults -->", "<!-- end of faults -->"
_ROW = re.compile(r"[FS]\d+")


@cache
def where_tested() -> dict[str, list[str]]:
    """The files of tests that inject each row, by marks or by counting what they inject."""
    found: dict[str, set[str]] = {name: set() for name in ROWS}
    for path in sorted(TESTS.rglob("*.py")):
        where = path.relative_to(TESTS).as_posix()
        if where.startswith(("faults/", "architecture/")):
            continue
        for row in _named(ast.parse(path.read_text())):
            found[row].add(where)
    return {name: sorted(files) for name, files in found.items()}


def _named(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _ROW.fullmatch(node.value)
        ):
            yield node.value


def table() -> str:
    """The catalogue in Markdown, by area."""
    files = where_tested()
    lines: list[str] = []
    area = ""
    for name, row in ROWS.items():
        if row.area != area:
            area = row.area
            head = [
                "",
                f"### {area}",
                "",
                "| | What happens | What holds | Tests |",
                "|---|---|---|---|",
            ]
            lines += head
        tests = ", ".join(f"`{file}`" for file in files[name]) or "none"
        lines.append(f"| {name} | {row.fault} | {row.holds} | {tests} |")
    return "\n".join([*lines[1:], ""])


def filled(text: str) -> str:
    """The page with the table of today."""
    before, rest = text.split(f"{_BEGIN}\n")
    after = rest.split(_END)[1]
    return f"{before}{_BEGIN}\n{table()}{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
