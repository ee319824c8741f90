# Everything lives in .venv of this clone. `make` alone lists what there is to do.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test test-fast lint bench repro lock clean

BIN := .venv/bin
INSTALLED := .venv/.installed
WORKERS ?= 2
DATA ?= ../shared/data/openb
export UV_PYTHON_DOWNLOADS := never
export PYTHON

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(INSTALLED) ## Install everything into .venv (the other targets do this themselves)

$(INSTALLED): requirements.txt pyproject.toml
	@sh .ci/venv

demo: $(INSTALLED) ## The four strategies on a two-node cluster
	@$(BIN)/dovetail demo

test: lint ## Lint, types and all tests
	@sh .ci/chromium
	$(BIN)/pytest -n $(WORKERS)

test-fast: lint ## Lint, types and the tests that are not slow
	$(BIN)/pytest -n $(WORKERS) -m "not slow"

lint: $(INSTALLED) ## Style (ruff) and types (mypy --strict)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

bench: $(INSTALLED) ## Decisions per second; the last line is JSON
	@$(BIN)/python bench/decisions.py

repro: $(INSTALLED) ## Hold replays against published curves (DATA=folder); the last line is JSON
	@$(BIN)/python bench/repro.py "$(DATA)"

lock: ## Pin requirements.txt anew from pyproject.toml (needs uv)
	uv pip compile --quiet --generate-hashes --python-version 3.11 --extra dev --no-emit-index-url \
		--custom-compile-command "make lock" --output-file requirements.txt pyproject.toml

clean: ## Remove .venv and everything generated
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
