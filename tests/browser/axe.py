"""axe-core in a page: what it finds wrong there, apart from what is Django's."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tests.browser.support import Browser
from tests.support import not_none

_PACKAGE = "axe_playwright_python"
"""The package that brings axe.min.js; nothing else of it is used."""


class Excuse(NamedTuple):
    """A rule that elements of Django's own break, and why they are not ours to mend."""

    rule: str
    selector: str
    because: str


DJANGOS = (
    Excuse(
        "label-title-only",
        "#searchbar",
        "Django labels the field with a picture of a lens, whose text is an alternative",
    ),
    Excuse(
        "link-in-text-block",
        ".breadcrumbs",
        "Django's colours: links of the trail differ from its text by little, and are not underlined",
    ),
    Excuse(
        "label",
        ".vDateField, .vTimeField",
        "Django has one label for the date and the time of a moment",
    ),
)
_RUN = """
const [excuses, rules, within, done] = arguments;
// Colours that are changed over time are those at the end of it.
document.body.getBoundingClientRect();
document.getAnimations().forEach((one) => one.finish());
const options = {resultTypes: ['violations'], elementRef: true};
if (rules.length) {
    options.runOnly = rules;
}
const include = within.filter((selector) => document.querySelector(selector)).map((one) => [one]);
axe.run(within.length ? {include: include} : document, options).then(function (found) {
    const ours = [], used = [];
    for (const {id, help, nodes} of found.violations) {
        for (const node of nodes) {
            const place = excuses.findIndex(
                ([rule, selector]) => rule === id && node.element.closest(selector) !== null);
            if (place < 0) {
                const why = [...node.any, ...node.all, ...node.none].map((check) => check.message);
                const said = `${node.html.slice(0, 160)} ${why.join('; ').slice(0, 200)}`;
                ours.push(`${id} (${help}): ${said}`);
            } else {
                used.push(place);
            }
        }
    }
    done({ours: ours, used: used});
}, (error) => done({ours: [`axe: ${error}`], used: []}));
"""


def source() -> str:
    """The script."""
    package = not_none(find_spec(_PACKAGE))
    return (Path(not_none(package.origin)).parent / "axe.min.js").read_text()


def violations(
    browser: Browser,
    *rules: str,
    within: Sequence[str] = (),
    excused: set[Excuse] | None = None,
) -> list[str]:
    """What breaks a rule of axe, or one of ``rules``, on the page that is shown, or in those of its
    elements that the selectors ``within`` find. What was excused is added to ``excused``.
    """
    if not browser.driver.execute_script("return typeof axe !== 'undefined'"):
        browser.driver.execute_script(source())
    known = [[one.rule, one.selector] for one in DJANGOS]
    browser.listen()
    found = browser.driver.execute_async_script(_RUN, known, list(rules), list(within))
    # Styles that axe would like to have for itself, which the policy of the page denies it.
    browser.driver.get_log("browser")
    if excused is not None:
        excused.update(DJANGOS[place] for place in found["used"])
    return [f"{browser.path}: {fault}" for fault in found["ours"]]
