"""The official SDKs, unmodified, from the checkouts that ``OJS_SDK_PYTHON``, ``OJS_SDK_JS`` and
``OJS_SDK_GO`` name.
"""

from __future__ import annotations

import shutil
import subprocess
import venv
from pathlib import Path
from typing import Any

from tests.http.test_sdk_workflows import checkout, go, told

__all__ = ["checkout", "go", "javascript", "python", "told"]


def python(folder: Path) -> Path:
    """An interpreter that has the SDK for Python."""
    source = checkout("OJS_SDK_PYTHON")
    venv.create(folder / "sdk", with_pip=True)
    found = folder / "sdk" / "bin" / "python"
    pip: list[str | Path] = [found, "-m", "pip", "install", "-q", source, "cryptography"]
    subprocess.run(pip, check=True, timeout=300)
    return found


def javascript(folder: Path, script: str) -> list[str | Path]:
    """The command that runs a script, in which the word SDK stands for that for JavaScript."""
    source = checkout("OJS_SDK_JS")
    copy = folder / "sdk"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git", "node_modules", "dist"))
    quiet: dict[str, Any] = {"check": True, "timeout": 300, "stdout": subprocess.DEVNULL, "cwd": copy}
    install = ["npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(install, **quiet)
    # It emits in spite of types that it does not find: those of serverless platforms.
    subprocess.run(["npx", "tsc", "-p", "tsconfig.json"], **{**quiet, "check": False})
    file = folder / "client.mjs"
    file.write_text(script.replace("SDK", str(copy / "dist" / "esm" / "index.js")))
    return ["node", file]
