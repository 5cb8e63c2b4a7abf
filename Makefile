# Paddock: everything runs in .venv, which the first target that needs it sets up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help quickstart test test-all test-elsewhere test-harness test-objects test-trackers fuzz chaos chaos-local audit lint bench docs docs-serve pins clean
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s '	'

# The stamp is as new as the files it was made from: a second `make` installs nothing.
$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Paddock needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

quickstart: $(VENV)/installed ## The same loss in four layouts; then train a small GPT-2 and let it write (3 minutes)
	@rm -rf runs/quickstart
	$(BIN)/paddock check parity gpt2/tiny --layouts dp2 tp2 pp2 --steps 3
	$(BIN)/paddock train gpt2/tiny --nproc-per-node 2 --run-dir runs/quickstart
	$(BIN)/paddock evaluate runs/quickstart
	$(BIN)/paddock generate runs/quickstart --prompt "If a class" --max-new-tokens 60 --temperature 0.4

test: $(VENV)/installed-dev ## Run the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-all: $(VENV)/installed-dev ## Run the tests, the slow ones too
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m ''

test-elsewhere: $(VENV)/installed-dev ## Run the tests as on another machine: an older processor, two busy processes beside
	$(BIN)/python tests/elsewhere.py -n 2 --dist loadfile --no-loadscope-reorder

test-harness: $(VENV)/installed-dev ## Install EleutherAI's harness (lm-eval, half a gigabyte) and run the tests beside it
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[lm-eval]' 'lm-eval[hf]'
	$(BIN)/python -m pytest tests/evaluation/test_harness.py tests/documentation/test_measuring_guide.py

test-objects: $(VENV)/installed-dev ## Install moto, an S3 that others wrote (0.1 gigabyte), and run the tests of storage with it
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt moto flask flask-cors
	$(BIN)/python -m pytest tests/objects

# They lie in a folder of their own: trackio wants an older Pillow than the one that is pinned.
test-trackers: $(VENV)/installed-dev ## Install four experiment trackers (not into .venv) and run their tests, offline
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade --target build/trackers \
	  trackio wandb swanlab mlflow-skinny
	PYTHONPATH=build/trackers $(BIN)/python -m pytest tests/telemetry/test_telemetry_trackers.py

SECONDS ?= 60
fuzz: $(VENV)/installed-dev ## Damaged inputs for every reader: make fuzz [READER=recipe] [SECONDS=600] [SEED=1]
	$(BIN)/python tests/fuzz $(if $(READER),--reader $(READER)) --seconds $(SECONDS) --seed $(or $(SEED),0) \
	  $(if $(READER),,--csv benchmarks/results/fuzz.csv)

FAULTS ?= 32
chaos: $(VENV)/installed-dev ## Faults against jobs of two machines: make chaos [FAULTS=200] [FIRST=100] [SEED=1] [KINDS="kill_rank elastic"]
	$(BIN)/python tests/chaos/cluster.py --faults $(FAULTS) --first $(or $(FIRST),0) --seed $(or $(SEED),0) \
	  $(if $(KINDS),--kinds $(KINDS),--csv benchmarks/results/chaos-cluster.csv)

chaos-local: $(VENV)/installed-dev ## Faults against small runs: make chaos-local [FAULTS=300] [FIRST=100] [SEED=1] [KINDS="kill full_disk"]
	$(BIN)/python tests/chaos --faults $(FAULTS) --first $(or $(FIRST),0) --seed $(or $(SEED),0) \
	  $(if $(KINDS),--kinds $(KINDS),--csv benchmarks/results/chaos.csv)

$(VENV)-audit/bin/pip-audit:
	$(PYTHON) -m venv $(VENV)-audit
	-$(VENV)-audit/bin/pip install --quiet --disable-pip-version-check pip-audit

audit: $(VENV)/installed-dev $(VENV)-audit/bin/pip-audit ## Pins against known advisories, security rules, no pickles, no open sockets
	$(BIN)/python tests/audit.py $(VENV)-audit/bin/pip-audit

lint: $(VENV)/installed-dev ## Check format, lint, types and the borders between rooms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Material's word to whoever builds, that mkdocs has a successor, is for us and not for every build.
export NO_MKDOCS_2_WARNING := 1

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(VENV)/installed-docs ## Build the site of the documentation into build/docs; a link that leads nowhere fails
	$(BIN)/mkdocs build --strict --quiet
	@echo build/docs/index.html

docs-serve: $(VENV)/installed-docs ## Show the site on this machine, and again whenever a page changes
	$(BIN)/mkdocs serve --strict

pins: ## Write constraints.txt anew: the newest versions that go together, within the ranges of pyproject.toml
	@mkdir -p build
	$(PYTHON) -m venv build/resolver
	build/resolver/bin/pip install --quiet --disable-pip-version-check --upgrade --dry-run --ignore-installed \
	  --report build/resolved.json -e '.[dev,docs]'
	build/resolver/bin/python .ci/pins.py build/resolved.json > build/constraints.txt
	@mv build/constraints.txt constraints.txt
	@git diff --stat -- constraints.txt

bench: $(VENV)/installed-dev ## Measure against the peers; results go to benchmarks/results
	$(BIN)/python benchmarks/beside_peers.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/data_reading.py

clean: ## Remove what make made
	rm -rf $(VENV) $(VENV)-audit build runs .pytest_cache .mypy_cache .ruff_cache
