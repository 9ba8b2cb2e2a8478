# Resilin's tasks. `make demo` runs the main job, `make test` everything that must pass.
# A virtual environment of its own is made on first use.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SEEDS ?= 200
OUT ?= out

.PHONY: setup demo simulate test lint type unit sim bench schemas fmt clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

# A day of jobs with deadlines on 128 GPUs, verified, explained and reported.
demo: simulate

simulate: setup
	$(BIN)/resilin simulate --force --out $(OUT)/demo
	$(BIN)/resilin verify $(OUT)/demo/log.resilin
	$(BIN)/resilin submit --dry-run --file docs/examples/urgent.yaml --log $(OUT)/demo/log.resilin --at +18h || test $$? -eq 1
	$(BIN)/resilin explain $(OUT)/demo/log.resilin job-00012
	@echo "The report: $(OUT)/demo/report.html"

test: lint type unit sim

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: setup
	$(BIN)/mypy

unit: setup
	$(BIN)/pytest -n auto

# Fault simulation: SEEDS=n runs seeds 0 to n-1, SEED=n reproduces one.
sim: setup
	$(BIN)/python -m resilin.simulation.faults $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

bench: setup
	$(BIN)/python -m benchmarks

# Schemas and the event tables of docs/ are generated from the contracts.
schemas: setup
	$(BIN)/python -m resilin.contracts.schemas docs/schemas

fmt: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(OUT) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
