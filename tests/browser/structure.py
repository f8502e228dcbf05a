"""What a page shows, as a list of its parts, which can be compared where colours and places differ."""

from __future__ import annotations

import re
from collections import Counter

from tests.browser.support import Browser

OURS = (
    *(
        "h1.ojs-title",
        ".ojs-panel",
        ".ojs-cards",
        ".ojs-tabs",
        ".ojs-incident",
        ".ojs-bulk",
        ".ojs-narrowings",
    ),
    *(".object-tools", "#changelist", "#result_list", ".ojs-confirm", ".ojs-question", ".ojs-matrix"),
    *(".ojs-pages", ".ojs-keys", ".ojs-views"),
)
"""The regions of the screens."""
# The text of cells has times, which pass. Numbers are compared as such.
_PARTS = """
const ours = arguments[0].join(',');
const parts = 'h1, h2, h3, a, button, input, select, textarea, summary, legend, figcaption, th, td, '
    + 'svg, meter, progress, pre, .ojs-badge, .ojs-card, label';
const own = [...document.querySelectorAll(ours)].flatMap(
    (region) => [region, ...region.querySelectorAll(parts)]);
const form = [...document.querySelectorAll('[name]')].filter(
    (one) => one.form && one.form.method === 'post');
function visible(element) {
    const box = element.getBoundingClientRect();
    const shown = element.checkVisibility({opacityProperty: true, visibilityProperty: true});
    return shown && box.width > 0 && box.height > 0 && getComputedStyle(element).clipPath === 'none'
        && !element.matches('#changelist-filter summary, .sortoptions a, #logout-form *');
}
function said(element) {
    if (element.matches('td, svg, meter, progress, pre')) {
        return '';
    }
    // Some add to a label that its field is required.
    const label = element.matches('label') && element.firstChild.nodeValue;
    const text = element.name || element.id || label || element.textContent;
    return text.replace(/[▴▾]/g, '').replace(/\\d+/g, '#').replace(/\\s+/g, ' ').trim().slice(0, 60);
}
function kind(element) {
    return element.matches('[type=submit]') ? 'button' : element.tagName.toLowerCase();
}
return [...new Set([...own, ...form])].filter(visible).filter((one) => one.matches(parts)).map(
    (one) => `${kind(one)} ${said(one)}`.trim());
"""
# Forms are made by the theme, of elements of its own.
_FIELDS = """
return [...document.querySelectorAll('#content fieldset :is(label, .readonly)')].map(
    (one) => one.innerText.trim()).filter(Boolean);
"""
_COVERED = """
const ours = arguments[0].join(',');
const acting = 'a, button, input:not([type=hidden]), select, textarea, summary';
const all = [...document.querySelectorAll(ours)].flatMap(
    (region) => [...region.querySelectorAll(acting)]);
return [...new Set(all)].filter(function (element) {
    const clipped = getComputedStyle(element).clipPath !== 'none';
    if (!element.checkVisibility() || clipped || element.closest('.visually-hidden')) {
        return false;
    }
    element.scrollIntoView({block: 'center', inline: 'nearest', behavior: 'instant'});
    const box = element.getClientRects()[0];
    const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    return hit === null || !(element.contains(hit) || hit.contains(element) || hit.control === element);
}).map((element) => element.outerHTML.slice(0, 120));
"""
_TOO_WIDE = "return document.documentElement.scrollWidth - window.innerWidth"


def parts(browser: Browser) -> Counter[str]:
    """The visible parts of the page that is shown."""
    return Counter(browser.driver.execute_script(_PARTS, OURS))


def fields(browser: Browser) -> set[str]:
    """What the form of Django's own look shows: names of fields, and what cannot be changed."""
    return {_plain(text) for text in browser.driver.execute_script(_FIELDS)}


def lacks(browser: Browser, texts: set[str]) -> list[str]:
    """Which of these texts are not to be read on the page that is shown."""
    shown = _plain(browser.text)
    return sorted(text for text in texts if text not in shown)


def _plain(text: str) -> str:
    """As it is compared: not in capitals, without what passes with time."""
    return re.sub(r"\d+", "#", " ".join(text.casefold().split())).strip(": ")


def flaws(browser: Browser) -> list[str]:
    """What cannot be clicked since something is before it or it is off the screen, and how much wider
    than the screen the page is.
    """
    over = browser.driver.execute_script(_TOO_WIDE)
    found = [f"{over} px too wide"] if over > 0 else []
    return found + [f"covered: {one}" for one in browser.driver.execute_script(_COVERED, OURS)]
