PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test lint bench clean
.DEFAULT_GOAL := demo

# Installs into .venv what the package needs, once.
$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("fedcell needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt $(VENV)/.installed
	$(PIP) install -c constraints.txt torch
	$(PIP) install -c constraints.txt -e ".[test]"
	@touch $@

demo: $(VENV)/.installed
	@mkdir -p out
	$(BIN)/fedcell plan examples/devices.csv --plot out/round.png
	$(BIN)/fedcell plan examples/devices.csv --compare
	@echo "out/round.png shows the round; try: $(BIN)/fedcell plan --help"

test: lint
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache .hypothesis
