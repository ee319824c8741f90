# Everything lives in .venv of this clone. `make` alone lists what there is to do.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test test-fast chaos fuzz soak soak-properties test-matrix controlplane conformance cluster lint bench bench-live repro dist chart sbom audit lock clean

BIN := .venv/bin
INSTALLED := .venv/.installed
WORKERS ?= 2
DATA ?= ../shared/data/openb
SEED := $(or $(SEED),$(shell date +%s))
# Where there is Go, or a control plane that was built elsewhere, tests against it may not be skipped.
LIVE := $(if $(shell command -v go 2>/dev/null)$(KUBEBUILDER_ASSETS),1,0)
export UV_PYTHON_DOWNLOADS := never
export PYTHON

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(INSTALLED) ## Install everything into .venv (the other targets do this themselves)

$(INSTALLED): requirements.txt pyproject.toml
	@sh .ci/venv

demo: $(INSTALLED) ## The four strategies on a two-node cluster
	@$(BIN)/dovetail demo

test: lint ## Lint, types and all tests
	@sh .ci/chromium
	@sh .ci/prometheus
	@$(BIN)/python -m tools.build --if-go --kwok --helm
	DOVETAIL_REQUIRE_LIVE=$(LIVE) $(BIN)/pytest -n $(WORKERS) --dist worksteal

test-fast: lint ## Lint, types and the tests that are not slow
	$(BIN)/pytest -n $(WORKERS) -m "not slow"

chaos: controlplane ## Random faults on a real control plane (SEED=7 MINUTES=3 FAMILIES="node_recreated burst")
	@$(BIN)/python -m tests.live.chaos --seed $(SEED) --minutes $(or $(MINUTES),3) --families "$(FAMILIES)"

fuzz: controlplane ## Attacks with a tenant's and with a node's rights on a real control plane (SEED=7 SECONDS=60 WHO=tenant)
	@$(BIN)/python -m tests.live.fuzz --seed $(SEED) --seconds $(or $(SECONDS),60) --who "$(WHO)"

soak: $(INSTALLED) ## The live scheduler under faults: more kills, more pods, an hour of random faults, attacks, an hour of churn; then new examples of properties
	DOVETAIL_SOAK=1 DOVETAIL_REQUIRE_LIVE=1 $(BIN)/pytest tests/live -k faults
	@echo "Property tests with new examples; to repeat them: make soak-properties SEED=$(SEED)"
	@$(MAKE) --no-print-directory soak-properties SEED=$(SEED)

soak-properties: $(INSTALLED) ## Property tests with 20 times as many examples, drawn anew (SEED=7 repeats a run)
	DOVETAIL_SOAK=1 $(BIN)/pytest -n $(WORKERS) --hypothesis-seed=$(SEED) $$(grep -rlE '@given|RuleBasedStateMachine' tests)

test-matrix: $(INSTALLED) ## The tests against a real control plane, on each version of Kubernetes
	@for series in 1.36 1.32; do \
		$(BIN)/python -m tools.build $$series || exit; \
		DOVETAIL_KUBERNETES=$$series DOVETAIL_REQUIRE_LIVE=1 $(BIN)/pytest tests/live || exit; \
	done

controlplane: $(INSTALLED) ## Build etcd and Kubernetes from source, once, into the user's cache (needs Go; minutes)
	@$(BIN)/python -m tools.build

# $(call option,NODES,nodes) is `--nodes 4` where `make … NODES=4` was typed; the environment does not count.
option = $(if $(filter command,$(firstword $(origin $(1)))),--$(2) '$($(1))')

conformance: controlplane ## Kubernetes' own specs with kube-scheduler and with Dovetail as the default scheduler (about 45 minutes)
	@$(BIN)/python -m tools.build --e2e
	@$(BIN)/python -m tools.conformance

cluster: controlplane ## A cluster on this machine until Ctrl-C: NODES=4 GPUS=8 REPLICAS=2 CONFIG=file API_PORT=6443
	@$(BIN)/python -m tools.cluster $(call option,NODES,nodes) $(call option,GPUS,gpus) \
		$(call option,REPLICAS,replicas) $(call option,CONFIG,config) $(call option,API_PORT,port) \
		$(call option,CLUSTER_HOME,home)

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

dist: $(INSTALLED) ## Build the wheel and the sdist into dist/
	@rm -rf dist && $(BIN)/hatchling build

chart: $(INSTALLED) ## Pack the Helm chart into dist/
	@"$$($(BIN)/python -c 'from tools.controlplane import building, recipes; print(building.build(recipes.HELM))')/helm" \
		package deploy --destination dist

sbom: $(INSTALLED) ## What the image holds: dist/dovetail.cdx.json (CycloneDX 1.6) and dist/licences.txt
	@$(BIN)/python -m tools.sbom

audit: $(INSTALLED) ## Known vulnerabilities of what the image holds (ADVISORIES=folder of OSV files, or pip-audit); 3 = no database
	@$(BIN)/python -m tools.audit $(ADVISORIES)

COMPILE := uv pip compile --quiet --generate-hashes --python-version 3.11 --no-emit-index-url \
	--custom-compile-command "make lock"
lock: ## Pin requirements.txt, and what the image installs, anew from pyproject.toml (needs uv)
	$(COMPILE) --extra dev --output-file requirements.txt pyproject.toml
	$(COMPILE) --extra live --constraint requirements.txt --output-file deploy/requirements-live.txt pyproject.toml
	echo hatchling | $(COMPILE) --constraint requirements.txt --output-file deploy/requirements-build.txt -

clean: ## Remove .venv and everything generated
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
