# Everything starts here; every target sets up what it needs. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
RUN := $(VENV)/bin/
PYTEST := $(RUN)pytest
STAMP := $(VENV)/.ready

.PHONY: help setup demo test test-fast test-db test-flink test-browser test-litellm test-prometheus bench ci lint types imports fmt clean browser litellm-env prometheus focus-validator-env

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): pyproject.toml uv.lock guard/pyproject.toml scripts/bootstrap.sh
	@bash scripts/bootstrap.sh
	@touch $(STAMP)

setup: $(STAMP) ## install everything into .venv (Python packages, Java, PostgreSQL)

browser: $(STAMP) ## install Chromium for the browser tests
	@bash scripts/browser.sh

litellm-env: $(STAMP) ## build the separate environment of the LiteLLM the tests start
	@bash scripts/litellm_env.sh

focus-validator-env: $(STAMP) ## build the separate environment of the FOCUS validator (Python 3.12, where there is one)
	@bash scripts/focus_validator_env.sh

prometheus: $(STAMP) ## unpack the Prometheus the tests start
	@bash scripts/prometheus.sh

demo: $(STAMP) ## start everything on sample data and print the URLs (Ctrl-C stops it)
	@$(RUN)tokenfuse demo

test: $(STAMP) browser litellm-env prometheus focus-validator-env ## run every test
	@$(PYTEST) tests guard/tests

test-fast: $(STAMP) ## the pure and contract tests
	@$(PYTEST) tests/unit tests/contract tests/guard guard/tests

test-db: $(STAMP) ## tests on a real PostgreSQL
	@$(PYTEST) tests/db tests/api tests/aws

test-flink: $(STAMP) ## tests that start a Flink MiniCluster
	@$(PYTEST) tests/flink

test-browser: $(STAMP) browser ## the UI in real Chromium
	@$(PYTEST) tests/ui

test-litellm: $(STAMP) litellm-env ## the guard inside a real LiteLLM
	@$(PYTEST) tests/litellm

test-prometheus: $(STAMP) prometheus ## the Prometheus source on a real server
	@$(PYTEST) tests/prometheus

bench: $(STAMP) ## measure every bar of the design, with ratios against a peer
	@$(PY) -m bench

lint: $(STAMP) ## ruff
	@$(RUN)ruff check . && $(RUN)ruff format --check .

types: $(STAMP) ## mypy, strict
	@$(RUN)mypy

imports: $(STAMP) ## one-way imports
	@$(RUN)lint-imports

fmt: $(STAMP) ## format and fix
	@$(RUN)ruff format . && $(RUN)ruff check --fix .

ci: lint types imports test ## what .ci/run calls

clean: ## remove the environment and caches (never the data folder)
	rm -rf $(VENV) .local .mypy_cache .ruff_cache .pytest_cache .hypothesis
