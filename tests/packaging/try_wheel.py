"""``python tests/packaging/try_wheel.py WHEEL DJANGO``: a project with the wheel and nothing else.

Makes an empty environment with the Python that runs this, installs the wheel and a Django (``5.2``),
makes a project with one job, and has ``runworker`` run it as in production: started before there is a
job, and ended by a signal. The job is looked at in the admin. Only the standard library is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

SETTINGS = """
INSTALLED_APPS += ["django_ojs", "shop"]
DATABASES["default"]["OPTIONS"] = {
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL;",
}
"""
JOBS = """\
from django_ojs import job


@job("shop.add")
def add(a: int, b: int) -> int:
    return a + b
"""
LOOK = """
import sys, time, django, django_ojs
from django.contrib.auth import get_user_model
from django.test import Client
from shop.jobs import add

id = add.enqueue(2, 3).id
until = time.monotonic() + 60
while (job := django_ojs.get(id)).state not in ("completed", "discarded"):
    if time.monotonic() > until:
        sys.exit(f"{job.state} after a minute")
    time.sleep(0.1)
browser = Client(SERVER_NAME="localhost")
browser.force_login(get_user_model().objects.create_superuser("ann", "ann@example.com", "secret"))
for page in ("", "job/", f"job/{id}/change/", "worker/", "queue/"):
    answer = browser.get(f"/admin/django_ojs/{page}")
    assert answer.status_code == 200, (page, answer.status_code)
    assert page != "job/" or "shop.add" in answer.text
print("Python", sys.version.split()[0], "Django", django.__version__, job.state, job.result)
"""


def main(wheel: Path, django: str) -> int:
    """Try it; what does not work ends this with the command's exit code."""
    with tempfile.TemporaryDirectory(prefix="ojs-wheel-") as scratch:
        folder = Path(scratch)
        python = folder / "venv/bin/python"
        foreign = ("PYTHONPATH", "DJANGO_SETTINGS_MODULE", "DATABASE_URL", "VIRTUAL_ENV")
        environment = {name: text for name, text in os.environ.items() if name not in foreign}

        def run(*words: str | Path) -> None:
            subprocess.run([python, *words], cwd=folder, env=environment, check=True)

        venv.create(folder / "venv", with_pip=True)
        run("-m", "pip", "install", "-q", "--disable-pip-version-check", wheel, f"Django~={django}.0")
        run("-m", "django", "startproject", "shop", ".")
        with (folder / "shop/settings.py").open("a") as settings:
            settings.write(SETTINGS)
        (folder / "shop/jobs.py").write_text(JOBS)
        run("manage.py", "migrate", "--verbosity", "0")
        run("manage.py", "check")
        worker = subprocess.Popen([python, "manage.py", "runworker"], cwd=folder, env=environment)
        try:
            run("manage.py", "shell", "--verbosity", "0", "-c", LOOK)
        finally:
            worker.terminate()
            code = worker.wait(60)
        return code


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2]))
    except subprocess.CalledProcessError as error:
        sys.exit(str(error))
