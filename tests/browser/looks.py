"""What a user looks at the admin with: a screen of some width, colours, and a language."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.browser.support import Browser

_CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
function parts(colour) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
}
function light(colour) {
    const found = parts(colour).slice(0, 3).map(function (part) {
        part /= 255;
        return part <= 0.03928 ? part / 12.92 : Math.pow((part + 0.055) / 1.055, 2.4);
    });
    return 0.2126 * found[0] + 0.7152 * found[1] + 0.0722 * found[2];
}
function behind(element) {
    for (let one = element; one !== null; one = one.parentElement) {
        const colour = getComputedStyle(one).backgroundColor;
        if (parts(colour)[3] === 255) {
            return colour;
        }
    }
    return 'white';
}
return [...document.querySelectorAll(arguments[0])].filter((element) => element.offsetWidth).map(
    function (element) {
        const pair = [light(getComputedStyle(element).color), light(behind(element))];
        const [dark, bright] = pair.sort((a, b) => a - b);
        return [element.textContent.trim().slice(0, 60), (bright + 0.05) / (dark + 0.05)];
    }
);
"""
_TOO_WIDE = "return document.documentElement.scrollWidth - window.innerWidth"


class Look(NamedTuple):
    """A width in pixels, whether colours are dark, and the language."""

    width: int
    dark: bool
    language: str

    def __str__(self) -> str:
        return f"{self.width}-{'dark' if self.dark else 'light'}-{self.language}"


@contextmanager
def looking(browser: Browser, look: Look, height: int = 900) -> Iterator[None]:
    """For the block, the window is of this kind."""
    cdp = browser.driver.execute_cdp_cmd
    size = {"width": look.width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    feature = {"name": "prefers-color-scheme", "value": "dark" if look.dark else "light"}
    cdp("Emulation.setDeviceMetricsOverride", size)
    cdp("Emulation.setEmulatedMedia", {"features": [feature]})
    cdp("Network.enable", {})
    cdp("Network.setExtraHTTPHeaders", {"headers": {"Accept-Language": look.language}})
    try:
        yield
    finally:
        cdp("Network.setExtraHTTPHeaders", {"headers": {}})
        cdp("Emulation.setEmulatedMedia", {"features": []})
        cdp("Emulation.clearDeviceMetricsOverride", {})


def flaws(browser: Browser, look: Look, readable: str) -> list[str]:
    """What is wrong with the page as it is seen: too wide, in the wrong language, or, among the
    elements that must be readable, too pale.
    """
    found = browser.faults()
    if (over := browser.driver.execute_script(_TOO_WIDE)) > 0:
        found.append(f"{browser.path}: {over} px too wide")
    if (language := browser.one("html").get_attribute("lang")) != look.language:
        found.append(f"{browser.path}: in the language {language!r}")
    shown = browser.driver.execute_script(_CONTRAST, readable)
    assert shown, f"{browser.path} has nothing of {readable}"
    found += [f"{browser.path}: {text!r} has {ratio:.1f}" for text, ratio in shown if ratio < 4.5]
    return found
