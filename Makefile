# Each target sets up what it needs: a virtual environment in .venv, the packages that requirements.lock pins
# and, where pages are opened, a browser. Stamps make the second call quick.
#
#   PYTHON       the Python to make the environment with (3.11 or later)
#   PYTEST_ARGS  more arguments for pytest, such as PYTEST_ARGS="-k gate"

VENV := .venv
BIN := $(VENV)/bin
PACKAGES := $(VENV)/packages.stamp
BROWSER := $(VENV)/browser.stamp
PYTHON ?=
PYTEST_ARGS ?=
UV ?= uv

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-live bench check docs lock clean

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

setup: $(PACKAGES) $(BROWSER) ## Make .venv, install the pinned packages, see to a browser

demo: setup ## Publish once, lose an answer, refuse a difference: with receipts
	@$(BIN)/interlock demo

test: setup ## Run the tests, but for those that need a real product
	@$(BIN)/python -m pytest tests --ignore=tests/live $(PYTEST_ARGS)

test-long: setup ## Run the tests with their long cases (full products; takes hours)
	@$(BIN)/python -m pytest tests --ignore=tests/live --long --timeout 900 $(PYTEST_ARGS)

test-live: setup ## Run the tests against a real WordPress on loopback
	@$(BIN)/python -m pytest tests/live $(PYTEST_ARGS)

bench: setup ## Measure what the gate costs: on loopback, and against a site 50 ms away
	@$(BIN)/python -m bench.gate
	@$(BIN)/python -m bench.gate --distance-ms 50 --contexts 0

check: $(PACKAGES) ## Format, lint, types, import contracts, freshness of docs and lock
	@$(BIN)/ruff format --check --quiet . || { echo "Run: $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy --package tools --package bench
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/docs.py --check
	@$(BIN)/python tools/lock.py

docs: $(PACKAGES) ## Renew the parts of docs/ that are made from the code
	@$(BIN)/python tools/docs.py

lock: ## Renew requirements.lock from pyproject.toml (needs uv)
	@command -v $(UV) >/dev/null || { echo "uv is missing; the one command: pipx install uv" >&2; exit 1; }
	@$(UV) pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate --quiet --output-file requirements.lock

clean: ## Remove what these targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist demo-output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PACKAGES): requirements.lock pyproject.toml tools/setup.sh
	@sh tools/setup.sh $(VENV) $(PYTHON)
	@touch $@

$(BROWSER): $(PACKAGES)
	@$(BIN)/python tools/browser.py
	@touch $@
