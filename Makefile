# `make demo` and `make test` work on a fresh machine: both create .venv with plain pip.
PYTHON ?= python3
BIN := .venv/bin
UNITS := $(addprefix tests/,acquisition batching bias core ensembles gp prediction problems tables)

.PHONY: demo check test bench lint clean

.venv/.done: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "aicau needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps batchbald_redux toma
	touch $@

demo: .venv/.done
	$(BIN)/python examples/laboratory.py demo

# Before each commit, about a minute: lint, types, unit tests and contracts without what is marked `slow`.
check: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow' $(UNITS) tests/contracts tests/test_*.py

test: .venv/.done
	$(BIN)/python -m pytest -n 2 --dist worksteal

# A short comparison on the toy; `.venv/bin/python -m bench --help` has all of it.
bench: .venv/.done
	$(BIN)/python -m bench --suite toy --panel type2-10 --strategy random --strategy farthest \
	  --strategy pemse:quadratic:eigen --strategy br:posterior:gain --strategy lcmd:grad --runs 3 --jobs 2

lint: .venv/.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv demo
