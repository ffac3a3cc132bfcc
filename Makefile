# Each target sets up .venv by itself; nothing needs to be installed before.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.ready
TEST_READY := $(VENV)/.ready-test

.PHONY: demo test lint bench bench-quality clean

demo: $(RUN_READY)
	$(BIN)/geosprint demo -o out/demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(TEST_READY)
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy

bench: $(TEST_READY)
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.scheduler_step
	$(BIN)/python -m benchmarks.memory extract
	$(BIN)/python -m benchmarks.fuzz

bench-quality: $(TEST_READY)
	$(BIN)/python -m benchmarks.quality

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(RUN_READY): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(TEST_READY): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $@ $(RUN_READY)

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis
