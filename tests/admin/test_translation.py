"""The German catalogue: complete, compiled, and shown."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from gettext import GNUTranslations
from pathlib import Path
from typing import NamedTuple

import pytest
from django.test import override_settings
from django.utils import translation

import django_ojs
from django_ojs.api import cancel
from tests.admin.support import login, page
from tests.services.support import fail, make, take

PACKAGE = Path(django_ojs.__file__).parent
CATALOGUE = Path("locale", "de", "LC_MESSAGES")
PO = PACKAGE / CATALOGUE / "django.po"
MO = PACKAGE / CATALOGUE / "django.mo"
# What makemessages starts, and what compiles.
EXTRACTORS = ("xgettext", "msguniq", "msgmerge", "msgattrib")
COMPILER = "msgfmt"
HOLE = re.compile(r"%\(\w+\)[sd]|%[sd]|\{\w*\}")


class Entry(NamedTuple):
    """A message of a catalogue."""

    singular: str
    plural: str
    translations: list[str]
    fuzzy: bool


def entries(path: Path) -> Iterator[Entry]:
    """The messages of a .po file, but for its header and the obsolete ones."""
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        said: dict[str, str] = {}
        flags, key = "", ""
        for line in block.splitlines():
            if line.startswith("#"):
                flags += line if line.startswith("#,") else ""
                continue
            word, _, text = line.partition('"')
            key = word.strip() or key
            said[key] = said.get(key, "") + ast.literal_eval(f'"{text}')
        if said.get("msgid"):
            texts = [text for key, text in said.items() if key.startswith("msgstr")]
            yield Entry(said["msgid"], said.get("msgid_plural", ""), texts, "fuzzy" in flags)


def needs(*tools: str) -> None:
    """Skip where GNU gettext is not installed."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} (GNU gettext) is not installed")


def test_every_text_of_the_sources_is_in_the_catalogue(tmp_path: Path) -> None:
    needs(*EXTRACTORS)
    copy = tmp_path / "django_ojs"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("locale", "__pycache__"))
    (copy / "locale").mkdir()
    command = ("makemessages", "-l", "de", "--no-location", "-i", "migrations/*")
    made = subprocess.run(
        [sys.executable, "-m", "django", *command],
        cwd=copy,
        env={k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    wanted = {(entry.singular, entry.plural) for entry in entries(copy / CATALOGUE / "django.po")}
    present = {(entry.singular, entry.plural) for entry in entries(PO)}
    assert len(wanted) > 300
    assert wanted - present == set(), "not in the catalogue: run makemessages and translate"
    assert present - wanted == set(), "in no source any more: run makemessages"


def test_every_text_is_translated_with_the_same_holes() -> None:
    for entry in entries(PO):
        assert not entry.fuzzy, entry
        assert len(entry.translations) == (2 if entry.plural else 1), entry
        for text in entry.translations:
            assert text.strip(), entry
            assert sorted(HOLE.findall(text)) == sorted(HOLE.findall(entry.singular)), entry


def catalogue(path: Path) -> dict[object, str]:
    """All that a .mo file says."""
    with path.open("rb") as file:
        return dict(GNUTranslations(file)._catalog)  # type: ignore[attr-defined]


def test_the_compiled_catalogue_is_that_of_the_source(tmp_path: Path) -> None:
    needs(COMPILER)
    made = tmp_path / "django.mo"
    result = subprocess.run(
        [COMPILER, "--check", "-o", str(made), str(PO)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert catalogue(MO) == catalogue(made), "run msgfmt --check -o django.mo django.po"


@pytest.mark.usefixtures("no_users")
def test_the_job_list_is_german_for_a_german_site() -> None:
    browser = login(superuser=True)
    make(1, queue="x", retry={"max_attempts": 1})
    fail(*take(queues=("x",)))
    cancel(make()[0])
    with override_settings(LANGUAGE_CODE="de"), translation.override("de"):
        text = page(browser, "job/", state="discarded")
    for state, label, count in (("discarded", "verworfen", 1), ("cancelled", "abgebrochen", 1)):
        tab = rf'state={state}"[^>]*>{label} <span class="ojs-count">{count}<'
        assert re.search(tab, text), state
    for said in ("Zeitlimit überschritten", "Wiederholen", "Endgültig löschen"):
        assert said in text, said
    assert "Timed out" not in text
    text = page(browser, "job/", state="discarded")
    assert re.search(r'state=discarded"[^>]*>discarded <', text)
    assert "verworfen" not in text


@pytest.mark.usefixtures("no_users")
@pytest.mark.parametrize(
    ("path", "said"),
    [("queue/", "Warteschlangen"), ("worker/", "Der Anfang eines Namens"), ("attempt/", "Versuche")],
)
def test_other_lists_are_german_too(path: str, said: str) -> None:
    browser = login(superuser=True)
    make()
    take()
    with override_settings(LANGUAGE_CODE="de"), translation.override("de"):
        assert said.casefold() in page(browser, path).casefold()
