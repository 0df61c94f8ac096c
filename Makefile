# Two commands do everything from a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STANDARD := $(VENV)/.standard
INSTALLED := $(VENV)/.installed
DEVICE ?= cpu

.PHONY: help demo test lint types coverage fuzz lowest bench paper paper-small docs clean explorer web

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | \
		awk -F'|' '{ printf "  make %-12s %s\n", $$1, $$2 }'

demo: $(STANDARD) ## 1000 images, a page to look at: demo/index.html
	$(BIN)/credibly demo --out demo

test: lint types web ## everything that is checked
	$(BIN)/pytest -n 2

lint: $(INSTALLED) ## ruff, format included
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED) ## mypy, strict
	$(BIN)/mypy

coverage: $(INSTALLED) ## the tests with branch coverage, printed by file
	$(BIN)/pytest -n 2 -q --cov --cov-report=term

docs: $(INSTALLED) ## the site, strict: site/index.html
	$(BIN)/python -m docs.build

explorer: ## build the page of `credibly explore` from web/ into the package (npm, node 20)
	cd web && npm ci --silent && npm run --silent build

# What tests of the explorer need: they build it again. Without npm or a registry they say so.
web:
	@if command -v npm >/dev/null && ! (cd web && npm ls >/dev/null 2>&1); then \
		(cd web && npm ci --silent) || echo "web/: npm ci failed; some tests will say so"; fi

# make fuzz [SECONDS=60] [SEED=0]
fuzz: $(INSTALLED) ## look for what breaks the package: SECONDS=60 SEED=0, see docs/how-to/fuzzing.md
	$(BIN)/python -m fuzz --seconds $(or $(SECONDS),60) --seed $(or $(SEED),0)

lowest: $(INSTALLED) ## install the lowest supported versions beside, and test with them
	$(BIN)/python -m tests.lowest

bench: $(INSTALLED) ## passes and time of the solvers on the embedded network
	$(BIN)/python -m benchmarks.solvers

# make paper CHECKPOINTS=FOLDER CIFAR10=FOLDER FASHION_MNIST=FOLDER [DEVICE=cuda] [OUT=FOLDER]
paper: $(INSTALLED) ## the paper's figures at full scale (needs the data and the networks)
	$(BIN)/python -m experiments.paper --device $(DEVICE) \
		$(if $(CHECKPOINTS),--checkpoints $(CHECKPOINTS)) $(if $(CIFAR10),--cifar10 $(CIFAR10)) \
		$(if $(FASHION_MNIST),--fashion-mnist $(FASHION_MNIST)) $(if $(OUT),--out $(OUT))

paper-small: $(INSTALLED) ## the same at a small scale, on the embedded network
	$(BIN)/python -m experiments.paper --small --out .cache/paper-small

# What the demo needs; tests need three times as much beside.
$(STANDARD): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[standard]'
	touch $(STANDARD)

# onnx2torch comes without torchvision, which must match torch to the digit; tests stand in for it.
# Python compiles what it imports; compiling all that is installed would take another minute.
$(INSTALLED): $(STANDARD)
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	$(BIN)/pip install --quiet --no-compile --no-deps onnx2torch
	touch $(INSTALLED)

clean: ## remove the environment and what runs leave behind
	rm -rf $(VENV) demo site build .pytest_cache .mypy_cache .ruff_cache .coverage .coverage.*
