# Two commands do everything from a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint types bench clean

demo: $(INSTALLED)
	$(BIN)/credibly demo --out demo

test: lint types
	$(BIN)/pytest -n 2

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.solvers

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(INSTALLED)

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache
