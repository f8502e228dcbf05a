"""A virtual environment for each of the other systems, made on first use, with pinned versions."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_BASE = ("Django==5.2.19", "psycopg[binary]==3.3.9")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is installed, and the oldest Python that can run it."""

    packages: tuple[str, ...]
    python: tuple[int, int] = (3, 11)


RECIPES = {
    # its command line fails with typer 0.20 and newer
    "pgqueuer": Recipe((*_BASE, "pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0", "typer<0.20")),
    "procrastinate": Recipe((*_BASE, "procrastinate[django]==3.10.0")),
    "celery": Recipe((*_BASE, "celery[redis]==5.7.0", "redis==8.1.0")),
    "huey": Recipe((*_BASE, "huey==3.5.4")),
    "tasks_db": Recipe((*_BASE, "django-tasks==0.12.0", "django-tasks-db==0.13.0")),
    "ox": Recipe(("Django==6.1.3", "psycopg[binary]==3.3.9", "django-ox==1.9.1"), python=(3, 12)),
}


def python_in(folder: Path, venv: str) -> str:
    """The interpreter of an environment; of the benchmark's own without a name."""
    return str(folder / venv / "bin" / "python") if venv else sys.executable


def ensure(folder: Path, venv: str) -> str:
    """Make the environment if it is not there as it should be; why that failed, or ``""``."""
    recipe = RECIPES[venv]
    place = folder / venv
    stamp = place / ".installed"
    wanted = "\n".join(recipe.packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return ""
    interpreter = _interpreter(recipe.python)
    if interpreter is None:
        return f"it needs Python {'.'.join(map(str, recipe.python))}, which was not found"
    print(f"installing {', '.join(recipe.packages)}", flush=True)
    shutil.rmtree(place, ignore_errors=True)
    pip = [python_in(folder, venv), "-m", "pip", "install", "--quiet", *recipe.packages]
    for command in ([interpreter, "-m", "venv", str(place)], pip):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            return f"not installed: {lines[-1][:200] if lines else f'exit {done.returncode}'}"
    stamp.write_text(wanted)
    return ""


def versions(folder: Path, venv: str) -> str:
    """What was installed, named as in the recipe."""
    names = [package.partition("=")[0].partition("<")[0] for package in RECIPES[venv].packages]
    plain = [name.partition("[")[0] for name in names]
    code = (
        "import sys; from importlib.metadata import version;"
        "print(', '.join(f'{n} {version(n)}' for n in sys.argv[1:]))"
    )
    command = [python_in(folder, venv), "-c", code, *plain]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _interpreter(least: tuple[int, int]) -> str | None:
    """This one if it is new enough, else the first one found that is."""
    if sys.version_info >= least:
        return sys.executable
    named = [path for path in os.environ.get("OJS_BENCH_PYTHON", "").split(os.pathsep) if path]
    usual = [f"python3.{minor}" for minor in range(least[1], least[1] + 3)]
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    installed = [
        path
        for minor in range(least[1], least[1] + 3)
        for path in sorted(glob.glob(f"{pyenv}/versions/3.{minor}.*/bin/python"))
    ]
    for candidate in (*named, *usual, *installed):
        if _version(candidate) >= least:
            return candidate
    return None


def _version(interpreter: str) -> tuple[int, ...]:
    code = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return (0,)
    return tuple(map(int, done.stdout.split()))
