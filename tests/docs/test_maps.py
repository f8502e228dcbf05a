"""The maps of the project name what is there: CONTRIBUTING.md and the page about the architecture.

``python -m tests.docs.test_maps`` writes the parts of the page that are made from the code.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from django_ojs.worker.prefork import messages
from tests.part import ROOT

GUIDE = ROOT / "CONTRIBUTING.md"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
PACKAGE = ROOT / "django_ojs"
HOW = "run: python -m tests.docs.test_maps"
_CODE = re.compile(r"`([^`\s]+)`")
_FILE = re.compile(r"[\w.*{},/-]+\.(?:py|md|toml|ini|json|yaml|lock|css|po)")
_PLACE = re.compile(r"`((?:django_ojs|tests|example_project)/[\w/.]+\.py)` \(((?:`\w+`(?:, )?)+)")
_GENERATED = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end of \2 -->\n)", re.DOTALL)


def contracts() -> list[dict[str, object]]:
    """The import contracts."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[dict[str, object]] = settings["tool"]["importlinter"]["contracts"]
    return found


def layers() -> str:
    """The layers of the package, the highest first."""
    (whole,) = [one for one in contracts() if one.get("containers") == ["django_ojs"]]
    found = whole["layers"]
    assert isinstance(found, list)
    # Packages that may import each other stand beside each other, too.
    lines = [layer.replace(" :", ",") for layer in found]
    return "\n".join(["```text", *lines, "```", ""])


TABLES = {"layers": layers}


def filled(text: str) -> str:
    """The page with the parts that are made from the code as they should be."""

    def part(found: re.Match[str]) -> str:
        return found[1] + TABLES[found[2]]() + found[3] if found[2] in TABLES else found[0]

    return _GENERATED.sub(part, text)


def _spelled(path: str) -> Iterator[str]:
    """The paths that ``a/{b,c}.py`` stands for."""
    parts = [part.split(",") for part in re.split(r"[{}]", path)]
    # What was outside of braces has no comma.
    for chosen in product(*parts):
        yield "".join(chosen)


def named_paths(page: Path) -> Iterator[str]:
    """What looks like a path of this repository in the code spans of a page."""
    for span in _CODE.findall(page.read_text()):
        if _FILE.fullmatch(span) or re.fullmatch(r"[\w.]+(?:/[\w.]+)*/", span):
            yield from _spelled(span)


def exists(path: str) -> bool:
    """Whether it is there, from the root or from the package."""
    places = (ROOT, PACKAGE) if "/" in path else (ROOT, PACKAGE, ROOT / "docs/reference")
    return any((place / path).exists() for place in places)


def defines(path: str, name: str) -> bool:
    """Whether a function, class, method or variable is defined in a module."""
    text = (ROOT / path).read_text()
    definition = rf"^\s*(?:(?:async )?def|class) {name}\b|^\s*{name}\b[^=\n(]*="
    field = rf"^    {name}: "
    return re.search(f"{definition}|{field}", text, re.MULTILINE) is not None


@pytest.mark.parametrize("page", [GUIDE, PAGE], ids=lambda page: page.name)
def test_every_named_path_exists(page: Path) -> None:
    paths = set(named_paths(page))
    assert len(paths) > 30
    assert sorted(path for path in paths if not exists(path)) == []


def test_every_named_definition_is_where_it_is_said_to_be() -> None:
    places = [
        (path, name)
        for path, names in _PLACE.findall(GUIDE.read_text())
        for name in re.findall(r"\w+", names)
    ]
    assert len(places) > 40
    assert [place for place in places if not defines(*place)] == []


def test_what_is_not_there_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`tests/attic.py` and `tests/{run,attic}.py`, `ojs.E001`, `OJS_X=a/b`, `attic/`")
    paths = list(named_paths(page))
    assert paths == ["tests/attic.py", "tests/run.py", "tests/attic.py", "attic/"]
    assert [path for path in paths if not exists(path)] == [
        "tests/attic.py",
        "tests/attic.py",
        "attic/",
    ]
    assert defines("tests/docs/test_maps.py", "HOW") and not defines("tests/docs/test_maps.py", "attic")


def test_every_make_target_is_explained_and_no_other() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)) - {"help", "docs"}
    assert set(re.findall(r"make ([a-z-]+)", GUIDE.read_text())) == targets


def test_every_package_is_on_the_page() -> None:
    packages = PAGE.read_text().partition("## Packages")[2].partition("\n## ")[0]
    there = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert sorted(name for name in there - {"__init__.py"} if f"`{name}`" not in packages) == []


def test_the_parts_made_from_the_code_are_as_the_code_says() -> None:
    text = PAGE.read_text()
    assert layers() in text, HOW
    assert filled(text) == text, HOW


def test_every_contract_is_explained() -> None:
    part = PAGE.read_text().partition("Further contracts")[2].partition("\n## ")[0]
    said = re.findall(r"^\| ([^|]+) \|", part, re.MULTILINE)[1:]
    names = [str(one["name"]) for one in contracts() if one.get("containers") != ["django_ojs"]]
    assert sorted(said) == sorted(names)


def test_every_thread_is_on_the_page() -> None:
    sources = [*(PACKAGE / "worker").rglob("*.py"), *(PACKAGE / "store").glob("*.py")]
    # Not the default of a parameter.
    named = re.compile(r'(?<!= )"(ojs-[a-z]+)"')
    there = {name for path in sources for name in named.findall(path.read_text())}
    part = PAGE.read_text().partition("## Processes")[2].partition("\n## ")[0]
    assert set(re.findall(r"\bojs-[a-z]+\b", part)) == there


def test_every_frame_is_on_the_page() -> None:
    part = PAGE.read_text().partition("<!-- frames -->")[2].partition("<!-- end of frames -->")[0]
    said = re.findall(r"^\| (\w+) \| (\w+) \| `(\w+)` \|", part, re.MULTILINE)
    assert said == [(kind.sender, kind.receiver, kind.op) for kind in messages.MESSAGES]


def test_messages_are_made_in_one_module() -> None:
    made = re.compile(r'"op"\s*:')
    sources = [*(PACKAGE / "worker").rglob("*.py"), *(PACKAGE / "handlers").rglob("*.py")]
    assert [path.name for path in sources if made.search(path.read_text())] == ["messages.py"]


def test_the_glossary_is_in_order_and_says_what_a_term_is_not() -> None:
    part = PAGE.read_text().partition("## Glossary")[2]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", part, re.MULTILINE)[1:]
    terms = [term for term, _, _ in rows]
    assert len(terms) > 35
    assert terms == sorted(set(terms))


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
