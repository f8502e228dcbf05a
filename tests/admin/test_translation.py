"""The catalogues: complete, compiled, and shown."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from gettext import GNUTranslations
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest
from django.contrib import admin
from django.test import override_settings
from django.utils import translation

import django_ojs
from django_ojs import chain, step
from django_ojs.admin.operations import JOB_OPERATIONS
from django_ojs.admin.workflows import WORKFLOW_OPERATIONS
from django_ojs.api import cancel
from django_ojs.models import Job, Worker, Workflow
from django_ojs.services import tokens
from tests.admin.support import at, login, page, worker
from tests.services.support import ack, fail, make, take

PACKAGE = Path(django_ojs.__file__).parent
DIALOGS = Path(admin.__file__).parent / "locale"
LANGUAGES = sorted(path.name for path in (PACKAGE / "locale").iterdir())
# What makemessages starts, and what compiles.
EXTRACTORS = ("xgettext", "msguniq", "msgmerge", "msgattrib")
COMPILER = "msgfmt"
HOLE = re.compile(r"%\(\w+\)[-+.\d]*[a-z]|%[sd%]|\{\w*\}|`[^`]+`|<[^>]+>|\n")
NAME = "Open Job Spec"
every_language = pytest.mark.parametrize("language", LANGUAGES)


class Entry(NamedTuple):
    """A message of a catalogue."""

    context: str
    singular: str
    plural: str
    translations: list[str]
    fuzzy: bool


def source(language: str, package: Path = PACKAGE) -> Path:
    """The catalogue that people write."""
    return package / "locale" / language / "LC_MESSAGES" / "django.po"


def parsed(path: Path) -> Iterator[Entry]:
    """The messages of a .po file and its header, but not the obsolete ones."""
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
        if "msgid" in said:
            texts = [text for key, text in said.items() if key.startswith("msgstr")]
            context, plural = said.get("msgctxt", ""), said.get("msgid_plural", "")
            yield Entry(context, said["msgid"], plural, texts, "fuzzy" in flags)


def entries(path: Path) -> list[Entry]:
    """The messages of a .po file."""
    return [entry for entry in parsed(path) if entry.singular]


def forms(language: str) -> int:
    """How many words the language has for a number of things, by the header."""
    (header,) = (entry for entry in parsed(source(language)) if not entry.singular)
    return int(re.findall(r"nplurals=(\d)", header.translations[0])[0])


def needs(*tools: str) -> None:
    """Skip where GNU gettext is not installed."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} (GNU gettext) is not installed")


Key = tuple[str, str, str]


def keys(path: Path) -> set[Key]:
    """What a catalogue has, whatever it is in its language."""
    return {(entry.context, entry.singular, entry.plural) for entry in entries(path)}


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> set[Key]:
    """The texts of the sources."""
    needs(*EXTRACTORS)
    copy = tmp_path_factory.mktemp("sources") / "django_ojs"
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
    return keys(source("de", copy))


def test_there_are_these_languages() -> None:
    assert LANGUAGES == ["de", "es", "fr", "ja"]
    assert {language: forms(language) for language in LANGUAGES} == {"de": 2, "es": 2, "fr": 2, "ja": 1}


@pytest.mark.slow
@every_language
def test_every_text_of_the_sources_is_in_the_catalogue(language: str, wanted: set[Key]) -> None:
    present = keys(source(language))
    assert len(wanted) > 300
    assert wanted - present == set(), "not in the catalogue: run makemessages and translate"
    assert present - wanted == set(), "in no source any more: run makemessages"


@pytest.mark.slow
@every_language
def test_every_text_is_translated_with_the_same_holes(language: str) -> None:
    found = entries(source(language))
    assert len({entry[:3] for entry in found}) == len(found), "a text is there twice"
    for entry in found:
        assert not entry.fuzzy, entry
        assert len(entry.translations) == (forms(language) if entry.plural else 1), entry
        for text in entry.translations:
            assert text.strip(), entry
            assert sorted(HOLE.findall(text)) == sorted(HOLE.findall(entry.singular)), entry


@every_language
def test_no_sentence_is_still_english(language: str) -> None:
    for entry in entries(source(language)):
        if entry.singular != NAME and len(re.findall(r"[a-z]{2,}", HOLE.sub("", entry.singular))) > 2:
            assert entry.singular not in entry.translations, entry


def catalogue(path: Path) -> dict[object, str]:
    """All that a .mo file says."""
    with path.open("rb") as file:
        return dict(GNUTranslations(file)._catalog)  # type: ignore[attr-defined]


@every_language
def test_the_compiled_catalogue_is_that_of_the_source(language: str, tmp_path: Path) -> None:
    needs(COMPILER)
    made = tmp_path / "django.mo"
    result = subprocess.run(
        [COMPILER, "--check", "-o", str(made), str(source(language))],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    compiled = catalogue(source(language).with_suffix(".mo"))
    assert compiled == catalogue(made), "run msgfmt --check -o django.mo django.po"


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """For the block the site is one in this language."""
    with override_settings(LANGUAGE_CODE=language), translation.override(language):
        yield


@pytest.mark.usefixtures("no_users")
def test_the_job_list_is_german_for_a_german_site() -> None:
    browser = login(superuser=True)
    make(1, queue="x", retry={"max_attempts": 1})
    fail(*take(queues=("x",)))
    cancel(make()[0])
    with speaking("de"):
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
    ("language", "path", "said"),
    [
        ("de", "queue/", "Warteschlangen"),
        ("de", "worker/", "Der Anfang eines Namens"),
        ("de", "attempt/", "Versuche"),
        ("es", "queue/", "Colas"),
        ("es", "worker/", "El comienzo de un nombre"),
        ("es", "attempt/", "Intentos"),
        ("fr", "queue/", "Files"),
        ("fr", "worker/", "arrêtés"),
        ("fr", "attempt/", "Tentatives"),
        ("ja", "queue/", "キュー"),
        ("ja", "worker/", "ホスト名の先頭"),
        ("ja", "attempt/", "試行"),
    ],
)
def test_other_lists_are_translated_too(language: str, path: str, said: str) -> None:
    browser = login(superuser=True)
    make()
    take()
    with speaking(language):
        assert said.casefold() in page(browser, path).casefold()


class Words(HTMLParser):
    """What a page says to its reader, in pieces as they are marked up; icons are Django's."""

    SILENT = frozenset({"script", "style", "pre", "code", "kbd"})
    SPOKEN = frozenset({"title", "aria-label", "placeholder", "data-label"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._silent = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in self.SILENT
        named = dict(attrs)
        said = {text for name, text in attrs if name in self.SPOKEN}
        if named.get("type") == "submit":
            said.add(named.get("value"))
        for text in said:
            self.handle_data(text or "")

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in self.SILENT

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.found.add(" ".join(data.split()).strip(":?.* ").casefold())


def english(language: str) -> set[str]:
    """The words that are no words of this language."""
    found = entries(source(language))
    own = {text.casefold() for entry in found for text in entry.translations}
    words = {word for entry in found for word in (entry.singular, entry.plural) if len(word) > 1}
    return {word.casefold().strip(":?. ") for word in words if not HOLE.search(word)} - own


def some_of_everything() -> None:
    """Jobs in every state, a worker, a workflow and a token."""
    make(1, queue="q.once", retry={"max_attempts": 1})
    make(1, queue="q.again")
    make(1, queue="q.good")
    fail(*take(queues=("q.once",)), type="lib.Boom")
    fail(*take(queues=("q.again",)), type="lib.Boom")
    ack(*take(queues=("q.good",)))
    cancel(make(1, rate_limit={"key": "key.7", "concurrency": 1})[0])
    make(1, scheduled_at="2099-01-01T00:00:00Z")
    make(1, job_type="type.of.none")
    make(1, pending=True)
    make()
    take()
    chain(step("type.fetch"), step("type.parse")).enqueue(name="flow.7")
    worker("w2", running=1)
    tokens.create("client.7", scopes=["produce"])


def left_over(text: str, language: str) -> set[str]:
    """The English words of ours in a page, but for the message with which jobs of the tests fail."""
    return Words(text).found & english(language) - {"no"}


def stored(path: str) -> set[str]:
    """Values that a page shows as they are stored: outcomes of attempts, kinds of targets, fields."""
    if path == "auditentry/":
        return {"admin", "job"}
    if re.fullmatch("job/.+/change/", path):
        return {"completed", "failed", "retry"}
    return {"completed", "failed"} if path == "attempt/" else set()


SHOWN = sorted(
    str(model._meta.model_name)
    for model in admin.site._registry
    if model._meta.app_label == "django_ojs"
)


@pytest.mark.slow
@pytest.mark.usefixtures("no_users")
@every_language
def test_no_list_says_an_english_word_of_ours(language: str) -> None:
    browser = login(superuser=True)
    some_of_everything()
    paths = [f"{name}/" for name in SHOWN] + ["job/?lens=timed_out", "job/?lens=overdue"]
    paths += ["failurestat/?view=table", f"{at('w2')}/change/", "queue/default/change/"]
    paths += [f"workflow/{row.pk}/change/" for row in Workflow.objects.all()]
    with speaking(language):
        for state, label in Job.States.choices:
            text = page(browser, "job/", state=state)
            assert re.search(rf'state={state}"[^>]*>{label} <span class="ojs-count">', text), state
            paths += [f"job/?state={state}"]
            paths += [f"job/{row.pk}/change/" for row in Job.objects.filter(state=state)[:1]]
        assert len(paths) > len(Job.States) * 2 + len(SHOWN)
        found = {path: left_over(page(browser, path), language) - stored(path) for path in paths}
        assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.slow
@pytest.mark.usefixtures("no_users")
@every_language
def test_cancelling_is_not_called_as_leaving_is(language: str) -> None:
    """Not on the confirmation, nor as the button that closes a dialog of Django's."""
    browser = login(superuser=True)
    (job,) = make()
    flow = chain(step("type.fetch"), step("type.parse")).enqueue()
    closes = catalogue(DIALOGS / language / "LC_MESSAGES" / "djangojs.mo")["Cancel"]
    with speaking(language):
        verb = translation.gettext("cancel").casefold()
        for path in (f"job/{job.id}", f"workflow/{flow.id}"):
            text = page(browser, f"{path}/do/cancel/")
            assert left_over(text, language) == set(), path
            (does,) = re.findall(r'name="_confirmed" value="([^"]+)"', text)
            (leaves,) = re.findall(r'class="closelink">([^<]+)<', text)
            assert verb in does.casefold(), path
            assert verb not in leaves.casefold(), path
            assert closes.casefold() not in {does.casefold(), leaves.casefold()}, path
        for operation in (*JOB_OPERATIONS, *WORKFLOW_OPERATIONS):
            for said in (operation.label, operation.several, *operation.back):
                assert str(said).casefold() not in english(language), operation.name
            cancels = operation.name == "cancel"
            assert (verb in str(operation.label).casefold()) is cancels, operation.name
            assert not any(verb in str(said).casefold() for said in operation.back), operation.name


@every_language
def test_each_state_and_verb_has_a_word_of_its_own(language: str) -> None:
    """And it is ours, whatever other apps say for the same in English."""
    ours = {text for entry in entries(source(language)) for text in entry.translations}
    operations = [
        item
        for model, screen in admin.site._registry.items()
        if model._meta.app_label == "django_ojs"
        for item in getattr(screen, "operations", ())
    ]
    assert {item.name for item in operations} >= {"cancel", "pause", "quiet", "edit", "override"}
    with speaking(language):
        for words in (
            [label for _, label in Job.States.choices],
            [label for _, label in Workflow.States.choices],
            [label for _, label in Worker.Phase.choices],
            [str(operation.label) for operation in JOB_OPERATIONS],
        ):
            assert len({word.casefold() for word in words}) == len(words), words
            assert set(words) <= ours
        assert {str(item.label) for item in operations} <= ours
