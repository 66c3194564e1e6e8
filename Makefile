# make demo: install everything and see it work.   make test: run every check.   make help: all targets.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test install lint types unit fuzz chaos sanitize mutants integrations docs bench gpu clean

help:
	@echo "make demo          install into .venv, repeat both experiments of the paper on a small scale, write a page about them"
	@echo "make test          install into .venv, then lint, types, unit, fuzz for 30 seconds, mutants"
	@echo "make lint          check style and format with ruff"
	@echo "make types         check the types of src with mypy"
	@echo "make unit          run the tests, the examples, and the code of docstrings and documents"
	@echo "make fuzz          try to break every door of the package for SECONDS=120; SEED=0 decides the cases"
	@echo "make chaos         kill commands, fill their disk, kill their cluster, compare the results: KILLS=200, 20 to 40 minutes"
	@echo "make sanitize      run the C files under gcc's sanitizers, and the CUDA programs under the emulator's checks, on Linux: about 15 minutes"
	@echo "make mutants       break the code on purpose; every break must make a test fail"
	@echo "make integrations  install Lightning, Accelerate, skorch and aeon; fit with each, with FSDP2, and with the defaults of the estimators"
	@echo "make docs          build the documentation into out/docs"
	@echo "make bench         time the layer against torch's layers"
	@echo "make gpu           run the GPU tests from source; PYTHON=python3 must have torch, pytest and hypothesis"
	@echo "make clean         remove .venv and everything that was built"

install: .venv/installed

KERNEL := cmake/CMakeLists.txt $(wildcard src/cwrnn/kernels/cpu/*.[ch])

.venv/installed: pyproject.toml constraints.txt $(KERNEL)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv: some minutes, about 1.4 GB"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: install
	$(BIN)/cwrnn reproduce --out out/demo --resume

test: SECONDS := 30
test: PASSED := --passed
test: lint types unit fuzz mutants

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

unit: install
	$(BIN)/python -m pytest -q -n 2 -r s -m 'not integrations'

SECONDS := 120
SEED := 0

fuzz: install
	PYTHONPATH=tests $(BIN)/python -m fuzz --seconds $(SECONDS) --seed $(SEED)

KILLS := 200

chaos: install
	PYTHONPATH=tests $(BIN)/python -m chaos --kills $(KILLS)

sanitize: install
	$(BIN)/python tests/sanitize/run.py

PASSED :=

mutants: install
	$(BIN)/python tests/mutants.py $(PASSED)

.venv/integrations: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,integrations]'
	touch $@

# aeon needs an older numpy, which lies before that of .venv
.venv/aeon/installed: .venv/installed
	$(BIN)/python -m venv .venv/aeon
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $$(echo .venv/aeon/lib/python*/site-packages)/base.pth
	.venv/aeon/bin/python -m pip install --quiet --constraint constraints.txt 'aeon>=1'
	touch $@

integrations: .venv/integrations .venv/aeon/installed
	$(BIN)/python -m pytest -q -m integrations tests/integrations
	PYTHONPATH=src .venv/aeon/bin/python -m pytest -q -m integrations tests/integrations/test_aeon.py

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open out/docs/index.html"

bench: install
	$(BIN)/python -m cwrnn.bench

gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -q -m gpu tests/kernels/test_gpu.py tests/kernels/test_gpu_stepping.py \
		tests/kernels/test_cudnn_gpu.py tests/core/test_battery.py tests/experiments/evaluation/test_gpu.py

clean:
	rm -rf .venv out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis src/cwrnn/kernels/cpu/*.so
	git clean -dfXq cmake
