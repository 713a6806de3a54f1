# Every target sets itself up: a virtual environment, the package, what the target needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= 2
WHAT   ?= all

TESTS  ?=

.PHONY: help demo test slow gpu coverage bench figures docs site lint format oracles wheel environments clean

help:
	@echo "make demo     import, optimise, compile and run the shipped model"
	@echo "make test     the fast tests, in $(JOBS) processes"
	@echo "make slow     the long tests"
	@echo "make gpu      every operator and template on the GPU that is here, against its reference, tensors, compiled functions and decoders there"
	@echo "make coverage which lines of weft a fifth of the generated cases run: an error below 90%"
	@echo "make bench    speed against other runtimes"
	@echo "make figures  every claim with a number, its bound, and the value measured now (WHAT=core|...)"
	@echo "make docs     the pages of docs/ops, of ONNX, of tensor functions and of layers, and type stubs, from what they are about"
	@echo "make site     the pages of docs/ as a web site, in build/site; a broken link is an error"
	@echo "make lint     ruff and the type checker"
	@echo "make oracles  install PyTorch, which half of the tests' answers come from, scikit-learn and TensorBoard"
	@echo "make wheel    build the wheel and try it in an environment of its own"
	@echo "make environments  the same with each Python that is found, and with the oldest dependencies"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "weft needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.package: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.test: $(VENV)/.package
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

$(VENV)/.lint: $(VENV)/.package
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[lint]'
	@touch $@

$(VENV)/.site: $(VENV)/.package
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[site]'
	@touch $@

$(VENV)/.oracles: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[oracles]'
	@touch $@

oracles: $(VENV)/.oracles

demo: $(VENV)/.package
	$(BIN)/python examples/demo.py

test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) -m 'not slow' $(TESTS)

coverage: $(VENV)/.oracles
	$(BIN)/python -m pytest -n $(JOBS) -m 'not slow' --share 5 --cov --cov-report=term:skip-covered --cov-fail-under=90 $(TESTS)

slow: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) -m slow $(TESTS)

gpu: $(VENV)/.oracles
	$(BIN)/python tests/gpu/run_operators.py
	$(BIN)/python tests/gpu/run_templates.py
	$(BIN)/python tests/gpu/run_eager.py
	$(BIN)/python tests/gpu/run_compiled.py
	$(BIN)/python tests/gpu/run_generation.py
	$(BIN)/python tests/gpu/run_open_sizes.py

bench: $(VENV)/.oracles
	$(BIN)/python benchmarks/cpu.py
	$(BIN)/python benchmarks/eager.py
	$(BIN)/python benchmarks/compiled.py

figures: $(VENV)/.test
	$(BIN)/python benchmarks/figures.py $(WHAT)

docs: $(VENV)/.package
	$(BIN)/python -m weft.tools.op_docs docs/ops
	$(BIN)/python -m weft.tools.function_docs .
	$(BIN)/python -m weft.tools.layer_docs docs/layers.md
	$(BIN)/python -m weft.tools.onnx_table docs/onnx.md tests/frontend/onnx_backend_gaps.txt

site: $(VENV)/.site
	$(BIN)/mkdocs build --quiet --strict

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: | $(BIN)/python
	$(BIN)/python tests/try_environments.py

environments: | $(BIN)/python
	$(BIN)/python tests/try_environments.py --all

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
