# make demo   train, unlearn, compare with retraining, and write a report (3 to 5 minutes, after the install)
# make test   install what the tests need and run them all
# make lint   style, types, layers
PYTHON ?= python3
VENV ?= .venv
OUT ?= demo
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
# Where the CPU build of torch comes from when the configured package index does not carry it.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH := $(PIP) install -q -c constraints.txt torch

.PHONY: demo test test-light lint format docs clean

demo: $(VENV)/.train
	$(BIN)/vestige demo --out $(OUT)

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

# The comparison in an environment that has no torch at all.
test-light: $(VENV)-light/.done
	$(VENV)-light/bin/python -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is not None)"
	$(VENV)-light/bin/python -m pytest -q tests/unit/cli tests/unit/decision tests/unit/statistics tests/unit/metrics tests/unit/report

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Rewrites the tables of docs/results.md from the stored records.
docs: $(VENV)/.dev
	$(BIN)/python docs/build.py

clean:
	rm -rf $(VENV) $(VENV)-light build src/*.egg-info

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.train: $(BIN)/python constraints.txt pyproject.toml
	$(TORCH) || $(TORCH) --extra-index-url $(TORCH_INDEX)
	$(PIP) install -q -c constraints.txt -e '.[train,offline]'
	touch $@

$(VENV)/.dev: $(VENV)/.train
	$(PIP) install -q -c constraints.txt -e '.[train,offline,test,browser,lint]'
	touch $@

$(VENV)-light/.done: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)-light
	$(VENV)-light/bin/pip --disable-pip-version-check install -q -e . 'pytest>=8.3' 'hypothesis>=6.120'
	touch $@
