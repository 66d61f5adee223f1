# Two commands: `make demo` shows what swapformer does, `make test` checks all of it. Both may be run again at no cost.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# One thread for each process: tests and trials run side by side, and more threads than cores wait for each other.
export OMP_NUM_THREADS = 1
export MKL_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1
# Compiled modules are kept: a hundred processes of the tests import them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install install-dev demo docs test lint types pytest exercises-smoke evidence fresh clean

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "swapformer needs Python 3.11 or newer; try make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) --editable '.[dev]'
	touch $@

demo: install
	$(BIN)/swapformer study 07_position_encodings/copy scale=demo

# The documentation site, into site/index.html; no network.
docs: install-dev
	$(BIN)/python -m docs.site

# `make test ROOM=report` runs only the tests that a change in that room of swapformer can reach, by imports.
test: install-dev lint types pytest

lint: install-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install-dev
	$(BIN)/mypy

pytest: install-dev
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --no-loadscope-reorder $(if $(ROOM),--room $(ROOM))

# Every study of every exercise, at its smallest scale, into a store of its own; `make test` runs three of them.
exercises-smoke: install
	$(BIN)/swapformer study experiments scale=smoke runs_dir=$$(mktemp -d)

# What is slow and rarely wrong: the tests with the mark `evidence` (every study at its smallest scale, every pair of
# options trained, simulated error rates), and a store that is killed, cut, filled and misled about the time. An hour and
# more on two cores; run it before a release, and write what it says into docs/measurements.md.
evidence: install-dev
	$(BIN)/python -m pytest -m evidence --numprocesses auto --maxprocesses 4 --no-loadscope-reorder
	$(BIN)/python -m benchmarks reliability
	$(MAKE) fresh

# A wheel in an empty environment, in a folder of its own: what a user has after `pip install`.
fresh: install-dev
	folder=$$(mktemp -d) && $(BIN)/python -m hatchling build -t wheel -d $$folder >/dev/null 2>&1 && \
	$(PYTHON) -m venv $$folder/env && \
	$$folder/env/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt $$folder/*.whl && \
	cd $$folder && env/bin/swapformer study 07_position_encodings/copy scale=demo

clean:
	rm -rf $(VENV)
