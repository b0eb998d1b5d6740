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

# One round planned, then the paper's race: six policies, five seeds each. About a minute on two cores.
demo: $(VENV)/.installed
	@mkdir -p out
	$(BIN)/fedcell plan examples/devices.csv --plot out/round.png
	$(BIN)/fedcell race --plot out/race.png
	@echo "Next: $(BIN)/fedcell --help"

test: lint fresh-cache
	$(BIN)/python -m pytest

# Numba looks at a compiled function's own file only: drop its cache when any source is newer.
.PHONY: fresh-cache clean-cache
fresh-cache:
	@oldest=$$(find src -name '*.nbi' -exec ls -tr {} + 2>/dev/null | head -n 1); \
	if [ -n "$$oldest" ] && [ -n "$$(find src -name '*.py' -newer "$$oldest")" ]; then $(MAKE) --no-print-directory clean-cache; fi

clean-cache:
	find src -name '*.nb[ic]' -delete

lint: $(VENV)/.installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache .hypothesis
