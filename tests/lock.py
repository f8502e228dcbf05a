"""``make lock``: write ``requirements-dev.lock`` from the packages that are installed here.

It names, with their versions, the packages that the groups ``dev`` and ``other-queues`` need, and what
those need; whatever else is in the virtual environment is left out. No index and no address is in it.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.dependency_groups import resolve_dependency_groups
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-dev.lock"
GROUPS = ("dev", "other-queues")
_PROJECT = "django-ojs"
_HEAD = """\
# The versions that development was last tested with: Python {version}, {platform}.
# To use them:   .venv/bin/python -m pip install -e . --group dev -c requirements-dev.lock
# To renew them: rm -rf .venv && make setup lock
"""


def direct(*groups: str) -> list[Requirement]:
    """What ``pyproject.toml`` asks for, with these dependency groups and the extras that they name."""
    file = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = file["project"]
    wanted = [*project["dependencies"], *resolve_dependency_groups(file["dependency-groups"], *groups)]
    found = []
    for one in map(Requirement, wanted):
        if one.name != _PROJECT:
            found.append(one)
        elif one.marker is None or one.marker.evaluate():
            for extra in one.extras:
                found += map(Requirement, project["optional-dependencies"][extra])
    return found


def pins(*groups: str) -> dict[str, str]:
    """The version of each package that these groups lead to, by its normalised name.

    Raises :class:`PackageNotFoundError` for one that is not installed.
    """
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(one, "") for one in direct(*groups)]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        found[name] = distribution(name).version
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                waiting += [(one, wanted) for one in _needs(name)]
    return found


def _needs(name: str) -> Iterator[Requirement]:
    for text in distribution(name).requires or ():
        yield Requirement(text)


def text() -> str:
    """The lock file."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    head = _HEAD.format(version=version, platform=sys.platform)
    return head + "".join(f"{name}=={pin}\n" for name, pin in sorted(pins(*GROUPS).items()))


if __name__ == "__main__":
    try:
        LOCK.write_text(text())
    except PackageNotFoundError as error:
        sys.exit(f"{error.name} is not installed: run `make lock`, which installs it")
