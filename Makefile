# The standard commands. Python 3.11 or later and make are all that is needed: everything runs in a
# virtual environment of its own, .venv, made by the first command.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
STAMP  := $(VENV)/.installed
QUEUES := $(VENV)/.other-queues
PORT   ?= 8000
# Where pyenv is, let the matrix see every interpreter that it has.
MATRIX := $(shell pyenv versions --bare 2>/dev/null | grep -E '^3\.1[1-9]\.[0-9]+$$' | paste -sd:)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check lint types contracts fast serve conformance bench faults failover soak docs package lock clean

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

setup: $(STAMP) ## make the virtual environment

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed: make PYTHON=python3.13 ..." if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install 'pip>=25.1'
	$(PIP) install -e . --group dev
	@touch $(STAMP)

# Only the pages about moving from another queue need these, and only `make test-all` runs them.
$(QUEUES): $(STAMP)
	$(PIP) install --group other-queues
	@touch $(QUEUES)

demo: $(STAMP) ## real jobs and the five timeouts, in under a minute
	$(BIN)/python manage.py migrate --verbosity 0
	$(BIN)/python manage.py demo

test: $(STAMP) ## the fast tests, on every database that answers: make test [DB=pg|mariadb|sqlite] [ARGS=...]
	$(BIN)/python -m tests.run $(if $(DB),--db $(DB)) $(ARGS)

test-all: $(STAMP) $(QUEUES) ## all tests, then the matrix of Python and Django, then the soak
	$(BIN)/python -m tests.run --all $(if $(DB),--db $(DB)) $(ARGS)
	$(if $(MATRIX),PYENV_VERSION=$(MATRIX) )$(BIN)/python -m tox run
	$(MAKE) soak SOAK_DB=pg SOAK_SECONDS=60 LIMITS_SECONDS=30
	$(MAKE) soak SOAK_DB=mariadb SOAK_SECONDS=60 LIMITS_SECONDS=30
	$(MAKE) soak SOAK_DB=sqlite SOAK_SECONDS=60 LIMITS_SECONDS=30

check: lint types contracts fast ## lint, types, contracts, missing migrations, fast tests on SQLite

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python manage.py makemigrations --check --dry-run

fast: $(STAMP)
	$(BIN)/python -m tests.run --db sqlite

serve: $(STAMP) ## the example project: web server, worker and reaper
	$(BIN)/python manage.py migrate --verbosity 0
	$(BIN)/python manage.py serve --port $(PORT)

conformance: $(STAMP) ## the OJS suites: make conformance SUITES=folder [URL=http://...] [ARGS=...]
	@test -n "$(SUITES)" || { echo "make conformance SUITES=<folder of the OJS suites> [URL=...]" >&2; exit 2; }
	$(BIN)/python tests/conformance/run.py --suites "$(SUITES)" $(if $(URL),--url "$(URL)") $(ARGS)

bench: $(STAMP) ## ours beside other systems: make bench [JSON=file] [ARGS=...]
	@$(PIP) install -e '.[mysql]' >/dev/null 2>&1 \
		|| echo "mysqlclient cannot be built here: MariaDB is measured through PyMySQL, which is slower"
	$(BIN)/python -m benchmarks $(if $(JSON),--json "$(JSON)") $(ARGS)

faults: $(STAMP) ## one harm at a time, judged by itself: make faults [DB=pg|mariadb|sqlite] [ARGS="--rounds 1 --only held"]
	$(BIN)/python -m tests.lab $(if $(DB),--db $(DB)) $(ARGS)

failover: $(STAMP) ## the primary is killed, suspended, cut off under load: make failover [ARGS="--only suspended --list"]
	$(BIN)/python -m tests.failover $(ARGS)

soak: $(STAMP) ## chaos for SOAK_SECONDS=90 on SOAK_DB=pg, mariadb or sqlite; SOAK_SEED, SOAK_MUTANT=no-fence, LIMITS_SECONDS=300
	$(BIN)/python -m tests.soak --seconds $(or $(SOAK_SECONDS),90) --db $(or $(SOAK_DB),pg) \
		$(if $(SOAK_SEED),--seed $(SOAK_SEED)) $(if $(SOAK_MUTANT),--mutant $(SOAK_MUTANT)) \
		$(if $(SOAK_JSON),--json "$(SOAK_JSON)") $(ARGS)
	$(BIN)/python -m tests.soak.limits --seconds $(or $(LIMITS_SECONDS),300) --db $(or $(SOAK_DB),pg) \
		$(if $(SOAK_SEED),--seed $(SOAK_SEED))

docs: $(STAMP) ## the pages as a site, in build/docs: make docs [LINKS=1 asks every address]
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs
	$(if $(LINKS),$(BIN)/sphinx-build -W --keep-going -q -b linkcheck docs build/links)
	@echo "build/docs/index.html"

package: $(STAMP) ## sdist and wheel: what is in them, a job with the wheel alone; the workflow files
	$(BIN)/python -m pytest -q tests/packaging

lock: $(STAMP) $(QUEUES) ## write requirements-dev.lock from what is installed
	$(BIN)/python -m tests.lock

clean: ## remove what the commands made
	rm -rf $(VENV) .tox db.sqlite3* var build dist benchmarks/.venvs benchmarks/.scratch
