#!/bin/sh
# wheel.sh WHEEL [DJANGO]: install the wheel into an empty environment, make a project with a handler, run a job.
set -eu
wheel=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet --disable-pip-version-check "$wheel" "${2:-Django}"
venv/bin/python -m django startproject shop .
cat >>shop/settings.py <<'END'
INSTALLED_APPS += ["django_ojs", "shop"]
DATABASES["default"]["OPTIONS"] = {
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL;",
}
END
cat >shop/jobs.py <<'END'
from django_ojs import job


@job("shop.add")
def add(a: int, b: int) -> int:
    return a + b
END
venv/bin/python manage.py migrate --verbosity 0
venv/bin/python manage.py check
venv/bin/python manage.py ojs enqueue shop.add '[2, 3]'
venv/bin/python manage.py runworker --drain
venv/bin/python manage.py shell --verbosity 0 -c 'import django, sys, django_ojs
(job,) = django_ojs.jobs(type="shop.add")
print("Python", sys.version.split()[0], "Django", django.__version__, job.state, job.result)
sys.exit((job.state, job.result) != ("completed", 5))'
