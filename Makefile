# make demo: set everything up and see it work.   make test: everything that guards the project.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test install lint types unit mutants bench gpu clean

help:
	@echo "make demo     install into .venv, repeat both experiments of the paper in small, make a page of them"
	@echo "make test     install into .venv, then lint, types, unit, mutants"
	@echo "make lint     ruff: style and format"
	@echo "make types    mypy on src"
	@echo "make unit     the tests, the docstring examples, the examples, the README"
	@echo "make mutants  break the code on purpose; the tests must notice every break"
	@echo "make bench    time the layer against torch.nn.RNN"
	@echo "make gpu      the GPU tests, from source; PYTHON=python3 must have torch, pytest and hypothesis"
	@echo "make clean    remove .venv and all that was built"

install: .venv/installed

KERNEL := cmake/CMakeLists.txt $(wildcard src/cwrnn/kernels/cpu/*.[ch])

.venv/installed: pyproject.toml constraints.txt $(KERNEL)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv: some minutes, about 1.4 GB"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: install
	$(BIN)/cwrnn reproduce --out out/demo --resume

test: lint types unit mutants

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

unit: install
	$(BIN)/python -m pytest -q -n 2 -r s

mutants: install
	$(BIN)/python tests/mutants.py

bench: install
	$(BIN)/python -m cwrnn.bench

gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -q -m gpu tests/kernels/test_gpu.py tests/core/test_battery.py

clean:
	rm -rf .venv out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis src/cwrnn/kernels/cpu/*.so
	git clean -dfXq cmake
