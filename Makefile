# Everything from a fresh clone: `make demo` and `make test` make their own environment in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-full check format gallery bench clean

demo: $(VENV)/.installed
	$(BIN)/vitral demo

test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile

# The counts of a night: thousands of kills, 200,000 flipped bits, every safeguard taken away once.
test-full: $(VENV)/.installed-dev
	VITRAL_FULL=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile tests/reliability

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

gallery: $(VENV)/.installed
	$(BIN)/python docs/make_gallery.py

# BENCH names rows and options: make bench BENCH="step throughput --threads 2"
bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks $(BENCH)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("vitral needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; say make PYTHON=python3.12 …") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) build dist
