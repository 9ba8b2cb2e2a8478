# Resilin's tasks. `make demo` runs the main job, `make test` everything that must pass.
# A virtual environment of its own is made on first use.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SEEDS ?= 200
KILLS ?= 100
OUT ?= out

.PHONY: setup tools demo simulate up test lint type unit sim chaos evaluate bench bench-elastic schemas fmt clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

# Real jobs with deadlines on this machine's CPU: resized live, one worker killed, all on time.
demo: setup
	$(BIN)/python examples/demo.py --home $(OUT)/demo

# A day of jobs with deadlines on 128 GPUs, verified, explained and reported.
simulate: setup
	$(BIN)/resilin simulate --force --out $(OUT)/simulated
	$(BIN)/resilin verify $(OUT)/simulated/log.resilin
	$(BIN)/resilin submit --dry-run --file docs/examples/urgent.yaml --log $(OUT)/simulated/log.resilin --at +18h || test $$? -eq 1
	$(BIN)/resilin explain $(OUT)/simulated/log.resilin job-00012
	@echo "The report: $(OUT)/simulated/report.html"

test: lint type unit sim

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: setup
	$(BIN)/mypy

# What the tests against real servers need; on a developer's machine they skip without it.
tools:
	deploy/local/install.sh

unit: setup $(if $(CI),tools)
	$(BIN)/pytest -n auto --dist loadgroup

# Fault simulation: SEEDS=n runs seeds 0 to n-1, SEED=n reproduces one.
sim: setup
	$(BIN)/python -m resilin.simulation.faults $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

# Services killed and frozen, so often, under a stream of submissions.
chaos: setup
	$(BIN)/python -m tests.integration.chaos --kills $(KILLS) --seed $(or $(SEED),0)

# A live cell on this machine: a Kafka broker and the seven services, until interrupted.
up: setup
	$(BIN)/python -m resilin.runtime.local_cell $(OUT)/live

# Every table beside the papers' figures; goes on where it was interrupted. Needs RESILIN_TRACES.
evaluate: setup
	$(BIN)/resilin evaluate --all --out $(OUT)/evaluation

bench: setup
	$(BIN)/python -m benchmarks

# The elastic worker runtime, beside stop-resume and plain PyTorch: about a quarter of an hour.
bench-elastic: setup
	$(BIN)/python -m benchmarks.elastic

# Schemas, the event table and the topic catalogue's files are generated from the contracts.
schemas: setup
	$(BIN)/python -m resilin.contracts.schemas docs/schemas
	$(BIN)/python -m resilin.runtime.metrics_page docs/metrics.md
	$(BIN)/python deploy/observability/grafana/dashboards.py
	$(BIN)/python -m resilin.contracts.topic_files .

fmt: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(OUT) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
