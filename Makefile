# The standard commands. Everything runs in a virtual environment of its own, .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PORT   ?= 8000

.PHONY: demo test test-all check lint types contracts serve setup clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python manage.py migrate --verbosity 0
	$(BIN)/python manage.py demo

test: $(STAMP)
	$(BIN)/python tests/run.py

test-all: $(STAMP)
	$(BIN)/python tests/run.py --long
	$(BIN)/python -m tox

check: $(STAMP) lint types contracts
	$(BIN)/python manage.py makemigrations --check --dry-run --verbosity 1
	$(BIN)/python tests/run.py --quick

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports --no-logo || $(BIN)/lint-imports

serve: $(STAMP)
	$(BIN)/python manage.py migrate --verbosity 0
	$(BIN)/python manage.py serve --port $(PORT)

clean:
	rm -rf $(VENV) db.sqlite3* var build dist
