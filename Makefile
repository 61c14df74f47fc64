# gemmlab's front door. `make help` lists the targets.
VENV ?= .venv
PYTHON ?= python3
CORES ?= all
ARGS ?=
# Absolute without $(abspath), which takes a folder with a space in its name for two.
BIN = $(if $(filter /%,$(VENV)),$(VENV),$(CURDIR)/$(VENV))/bin
INSTALLED = $(VENV)/.gemmlab-installed
HAS_GPU = command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1

# An environment named by hand is the caller's own: nothing is installed into it.
ifneq ($(filter command% environment%,$(origin VENV)),)
SETUP =
RUN = PYTHONPATH="$(CURDIR)/workflow" PATH="$(BIN):$$PATH"
else
SETUP = $(INSTALLED)
RUN = PATH="$(BIN):$$PATH"
endif

.DEFAULT_GOAL := help
.PHONY: help setup reproduce resume report test lint format lock clean

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1\t/' | expand -t 20

setup: $(SETUP) ## make .venv from the lock (and the GPU's packages where nvidia-smi answers)

$(INSTALLED): requirements.lock requirements-gpu-cu12.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gemmlab needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version). Try: make setup PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	if $(HAS_GPU); then $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-gpu-cu12.lock; fi
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

reproduce: $(SETUP) ## run everything this machine can, then show the headline table and the report's path
	@$(RUN) snakemake --cores $(CORES) $(ARGS); status=$$?; $(RUN) python3 -m gemmlab headline; exit $$status

resume: $(SETUP) ## go on after a killed run (with the same ARGS)
	@$(RUN) snakemake --unlock --quiet all; $(MAKE) --no-print-directory reproduce

report: $(SETUP) ## show the last run's headline table and the report's path
	@$(RUN) python3 -m gemmlab headline

test: $(SETUP) ## the tests, then lint
	@$(RUN) python3 -m pytest -n auto
	@$(MAKE) --no-print-directory lint

lint: $(SETUP) ## ruff, snakefmt and snakemake --lint
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) snakefmt --check Snakefile workflow/rules
	@$(RUN) snakemake --lint

format: $(SETUP) ## what lint would change
	@$(RUN) ruff check --fix .
	@$(RUN) ruff format .
	@$(RUN) snakefmt Snakefile workflow/rules

LOCK = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header
lock: $(SETUP) ## renew the lock files from pyproject.toml
	$(RUN) $(LOCK) --group development pyproject.toml -o requirements.lock
	$(RUN) $(LOCK) --group gpu -c requirements.lock -o requirements-gpu-cu12.lock

clean: ## remove results (results/published stays)
	find results -mindepth 1 -maxdepth 1 ! -name published -exec rm -rf {} +
	rm -rf .snakemake
