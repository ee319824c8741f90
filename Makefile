# Everything lives in .venv of this clone. `make` alone lists what there is to do.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test test-fast soak test-matrix controlplane cluster lint bench bench-live repro lock clean

BIN := .venv/bin
INSTALLED := .venv/.installed
WORKERS ?= 2
DATA ?= ../shared/data/openb
# Where there is Go, or a control plane that was built elsewhere, tests against it may not be skipped.
LIVE := $(if $(shell command -v go 2>/dev/null)$(KUBEBUILDER_ASSETS),1,0)
export UV_PYTHON_DOWNLOADS := never
export PYTHON

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(INSTALLED) ## Install everything into .venv (the other targets do this themselves)

$(INSTALLED): requirements.txt pyproject.toml
	@sh .ci/venv

demo: $(INSTALLED) ## The four strategies on a two-node cluster
	@$(BIN)/dovetail demo

test: lint ## Lint, types and all tests
	@sh .ci/chromium
	@$(BIN)/python -m tools.build --if-go
	DOVETAIL_REQUIRE_LIVE=$(LIVE) $(BIN)/pytest -n $(WORKERS)

test-fast: lint ## Lint, types and the tests that are not slow
	$(BIN)/pytest -n $(WORKERS) -m "not slow"

soak: $(INSTALLED) ## The live scheduler under faults for about an hour: more kills, more pods
	DOVETAIL_SOAK=1 DOVETAIL_REQUIRE_LIVE=1 $(BIN)/pytest tests/live -k faults

test-matrix: $(INSTALLED) ## The tests against a real control plane, on each version of Kubernetes
	@for series in 1.36 1.32; do \
		$(BIN)/python -m tools.build $$series || exit; \
		DOVETAIL_KUBERNETES=$$series DOVETAIL_REQUIRE_LIVE=1 $(BIN)/pytest tests/live || exit; \
	done

controlplane: $(INSTALLED) ## Build etcd and Kubernetes from source, once, into the user's cache (needs Go; minutes)
	@$(BIN)/python -m tools.build

cluster: controlplane ## A control plane with two demo nodes and dovetail on this machine, until Ctrl-C
	@$(BIN)/python -m tools.cluster

lint: $(INSTALLED) ## Style (ruff) and types (mypy --strict)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

bench: $(INSTALLED) ## Decisions per second; the last line is JSON
	@$(BIN)/python bench/decisions.py

bench-live: controlplane ## Pods bound per second on a real control plane, beside kube-scheduler; the last line is JSON
	@$(BIN)/python -m bench.live

repro: $(INSTALLED) ## Hold replays against published curves (DATA=folder); the last line is JSON
	@$(BIN)/python bench/repro.py "$(DATA)"

lock: ## Pin requirements.txt anew from pyproject.toml (needs uv)
	uv pip compile --quiet --generate-hashes --python-version 3.11 --extra dev --no-emit-index-url \
		--custom-compile-command "make lock" --output-file requirements.txt pyproject.toml

clean: ## Remove .venv and everything generated
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
