# Everything a person runs. Each target sets up what it needs; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := src/nearsight tests
SCALE := table6.4 fig6.4 fig6.5 fig6.6 fig6.7 fig6.8 fig6.9 fig6.10 fig6.11 fig6.12 fig6.13 fig6.14
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-system check format bench figures falconn protos clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## create .venv with everything needed (no compiler required)

$(STAMP): setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "nearsight needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
		|| { echo "this Python cannot create virtual environments; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP)  ## generate a museum, run cloud, edge and devices, compare; results in results/demo/
	$(BIN)/nearsight demo

# All workers and every daemon of a test import the same modules: compiled once, also where Docker says otherwise.
test test-system: export PYTHONDONTWRITEBYTECODE :=

# Tests of daemons wait for much of their time: four workers keep two cores busy. Where one crashes, the others go on;
# with a replacement for it, the run would not end.
test: $(STAMP)  ## run the tests
	$(BIN)/pytest -m "not system" --numprocesses 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(TEST_ARGS)

# Some take a minute by nature, and several on a machine that is busy or slow.
test-system: $(STAMP)  ## run the tests of namespaces, SSH, browsers, long faults, whole demos and studies, builds (some need root)
	$(BIN)/pytest -m system --timeout 600 --numprocesses 2 --dist loadfile --max-worker-restart 0 $(TEST_ARGS)

check: $(STAMP)  ## formatting, lint, types, generated code in sync, import directions, names in documents
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python protos/generate.py --check
	$(BIN)/pytest -q tests/test_architecture.py tests/test_documents.py

format: $(STAMP)  ## format the code and sort the imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## benchmarks against peers, written to results/bench/
	$(BIN)/nearsight bench all --out results/bench

figures: $(STAMP)  ## chapter 6 of the dissertation on the twin, and the report; FRESH=1 replaces what is there
	$(if $(FRESH),rm -rf $(foreach name,$(SCALE) map,results/experiments/$(name) results/experiments/$(name)-paper))
	@for costs in measured paper; do for name in $(SCALE); do \
		$(BIN)/nearsight experiment run $$name --costs $$costs || exit; done; done
	@$(BIN)/nearsight experiment run map
	@$(BIN)/nearsight experiment report

falconn: $(STAMP)  ## build the optional FALCONN backend (needs g++; about two minutes)
	@$(BIN)/python -c 'import falconn' 2>/dev/null && echo "falconn is installed" || { \
		command -v g++ >/dev/null || { echo "falconn needs a C++ compiler; on Debian: apt-get install g++"; exit 1; }; \
		$(BIN)/pip install --quiet --disable-pip-version-check pybind11 setuptools wheel && \
		inc=$$($(BIN)/python -c 'import pybind11; print(pybind11.get_include())') && \
		CC="g++ -include cstdint -I$$inc" CXX="g++ -include cstdint -I$$inc" $(BIN)/pip install --disable-pip-version-check --no-build-isolation falconn; }

protos: $(STAMP)  ## generate the Python code of protos/*.proto
	$(BIN)/python protos/generate.py

clean:  ## remove what the targets created, except results
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache src/*.egg-info
