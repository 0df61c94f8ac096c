# Two commands do everything from a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint types bench paper paper-small clean

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

# make paper CHECKPOINTS=FOLDER CIFAR10=FOLDER FASHION_MNIST=FOLDER [DEVICE=cuda] [OUT=FOLDER]
DEVICE ?= cpu
paper: $(INSTALLED)
	$(BIN)/python -m experiments.paper --device $(DEVICE) \
		$(if $(CHECKPOINTS),--checkpoints $(CHECKPOINTS)) $(if $(CIFAR10),--cifar10 $(CIFAR10)) \
		$(if $(FASHION_MNIST),--fashion-mnist $(FASHION_MNIST)) $(if $(OUT),--out $(OUT))

paper-small: $(INSTALLED)
	$(BIN)/python -m experiments.paper --small --out .cache/paper-small

# Python compiles what it imports; compiling all that is installed would take another minute.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $(INSTALLED)

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache
