# Every way to build, check and run Backstay; `make` alone lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LOWEST := build/lowest
SEEDS  ?= 200
TYPED  := backstay tests $(sort $(dir $(wildcard examples/*.py bench/*.py)))

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
# Hundreds of processes start in the tests; without compiled files each process would compile every library.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help install run test test-all compiled-tests lint format schema docs picture simulate bench storm lowest clean lock
.DELETE_ON_ERROR:

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Make .venv with the locked dependencies and Backstay itself
	@:

run: install ## Send a file of requests to a provider that fails, kill the run, resume it, and show the bill
	@$(BIN)/python examples/rehearsal.py

test: install ## Lint, then run the tests for every change
	@$(MAKE) -j2 lint compiled-tests
	@$(BIN)/python -m pytest -n 5 -m "not slow and not storm"

test-all: install ## Run the tests that `make test` leaves out: the other database, fuzzers, long stories
	@$(BIN)/python -m pytest -n 6 -m "slow and not storm"

# Without compiled files each process of the tests would compile every test and every library: a minute on a new machine.
compiled-tests: install
	@$(BIN)/python -m pytest --collect-only -qq -m "not slow and not storm" >/dev/null

lint: install ## Check format, rules, types and layers
	@$(BIN)/ruff format --check --quiet . || { echo "Unformatted files; run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary $(TYPED)
	@$(BIN)/lint-imports --no-logo >$(VENV)/layers.txt 2>&1 || { cat $(VENV)/layers.txt; exit 1; }
	@echo "lint: format, rules, types and layers are fine"

format: install ## Format the code and fix the findings that ruff can fix
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

schema: install ## After a migration was added: rewrite the script for new SQLite databases, keep data of this revision
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && $(BIN)/python -c 'import sys; from backstay.store.databases import schema; \
	  schema.upgrade_sqlite(sys.argv[1]); sys.stdout.write(schema.sqlite_script(sys.argv[1]))' "$$folder/new.db" \
	  > backstay/store/migrations/head.sqlite.sql
	@$(BIN)/python -m tests.upgrades.freeze

picture: install ## Retake the screenshot of the dashboard in the README
	@$(BIN)/python -m docs.make_picture

docs: install ## Rewrite the reference pages from the code, and build the site into build/site
	@$(BIN)/python docs/make_reference.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1 | { grep -v ^INFO || true; }
	@echo "docs: look at them with $(BIN)/python -m http.server --directory build/site"

simulate: install ## Run the engine on a virtual clock under faults: make simulate SEEDS=1000
	@$(BIN)/python -m tests.simulation $(SEEDS)

bench: install ## Measure throughput
	@bash bench/run

storm: install ## Run the long storms: thousands of items, real processes, kill -9
	@$(BIN)/python -m pytest -n 3 -m storm

lowest: install ## Test the main parts with the oldest libraries that pyproject.toml allows, in a separate environment
	@rm -rf $(LOWEST) && $(BIN)/uv venv --quiet --python $(BIN)/python $(LOWEST)
	@$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --only-binary :all: --no-binary backstay \
	  -e '.[postgres,service,rabbitmq,celery,otel]'
	@$(LOWEST)/bin/python -m tests.lowest

clean: ## Remove .venv, caches and build output
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find backstay tests examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

lock: install ## Write requirements.lock after a change of dependencies; with UPGRADE=--upgrade, use the newest versions
	@$(BIN)/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate --extra postgres --extra service --extra rabbitmq --extra celery --extra google --extra azure --extra bedrock --extra pandas --extra polars --extra parquet --extra datasets --extra jinja --extra schema --extra langchain --extra pydantic-ai --extra otel --extra docs --extra dev pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile --quiet $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate \
	  --constraint requirements.lock --extra postgres --extra service --extra rabbitmq --extra otel pyproject.toml -o deploy/requirements.lock
	@if grep -nE '://|^-' requirements.lock deploy/requirements.lock; then echo "a lock file names a host or an index"; exit 1; fi
	@echo "requirements.lock: $$(grep -c == requirements.lock) packages"

# The stamp is written last, so that an interrupted install is done again.
$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Backstay needs Python 3.11 or newer; try: make PYTHON=python3.12 install"; exit 1; }
	@if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "install: python3-venv is missing, installing it"; \
	    export DEBIAN_FRONTEND=noninteractive; \
	    { apt-get -qq update && apt-get -qq install -y --no-install-recommends python3-venv; } </dev/null >/dev/null; \
	  else \
	    echo "Python's venv module is missing; install it first, on Debian: sudo apt-get install python3-venv"; exit 1; \
	  fi; fi
	@echo "install: making $(VENV) with the locked dependencies"
	@$(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock >$(VENV)/uv.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --require-hashes -r $(VENV)/uv.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock \
	  || $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --no-compile --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --no-deps --no-build-isolation -e .
	@touch $(STAMP)
