PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test lint bench bench-schedule bench-training bench-dashboard bench-flower clean
.DEFAULT_GOAL := demo

# Installs into .venv what the package needs, once.
$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("fedcell needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -e .
	@touch $@

# Without bytecode, which Python writes for what is imported: most of it never is.
$(VENV)/.installed-test: pyproject.toml constraints.txt $(VENV)/.installed
	$(PIP) install --no-compile -c constraints.txt torch
	$(PIP) install --no-compile -c constraints.txt -e ".[test]"
	$(PIP) install --no-compile --no-warn-conflicts --upgrade --target $(VENV)/newest typer rich pydantic
	@touch $@

# One round planned, then the paper's race: eight policies, five seeds each. About a minute on two cores.
demo: fresh-cache $(VENV)/.installed
	@mkdir -p out
	$(BIN)/fedcell plan examples/devices.csv --plot out/round.png
	$(BIN)/fedcell race --plot out/race.png
	@echo "Next: $(BIN)/fedcell --help"

# Every figure and table of the paper, five trials each: pictures, tables and index.html in out/paper. It resumes.
.PHONY: paper
paper: $(VENV)/.installed
	$(BIN)/fedcell reproduce all --out out/paper

# The documentation as a site in out/docs: open out/docs/index.html.
.PHONY: docs
docs: $(VENV)/.installed-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Open out/docs/index.html"

$(VENV)/.installed-docs: pyproject.toml constraints.txt $(VENV)/.installed
	$(PIP) install -c constraints.txt -e ".[docs,flower,gym]"
	@touch $@

# What the cells of the notebooks show, written into them again; the site has it from there.
.PHONY: notebooks
notebooks: $(VENV)/.installed-test
	@here=$$(pwd); for name in examples/notebooks/*.ipynb; do \
	  folder=$$(mktemp -d) && (cd $$folder && $$here/$(BIN)/python $$here/tests/notebooks.py $$here/$$name) && rm -r $$folder || exit 1; \
	done

# The tree of docs/architecture.md, from the modules' docstrings; and how large the package is, beside what it may be.
.PHONY: tree fields size
tree:
	@$(PYTHON) tools/tree.py
fields:
	@$(BIN)/python tools/fields.py

size: $(VENV)/.installed
	@$(BIN)/python tools/size.py

# 200 small changes of the code's meaning, and whether the tests notice; half an hour of one core.
.PHONY: mutants
mutants: $(VENV)/.installed-test
	@$(BIN)/python tools/mutants.py

# The wheel and the source distribution, in dist: make dist ADDRESS=https://... (of the repository), and SITE=https://...
# where the documentation site is served, if it is.
.PHONY: dist
dist: export FEDCELL_ADDRESS := $(ADDRESS)
dist: export FEDCELL_SITE := $(SITE)
dist: $(VENV)/.installed
	@test -n "$$FEDCELL_ADDRESS" || echo "make dist: no ADDRESS=https://..., so the package names no address, and README's pictures will not show on a package index" >&2
	@$(PIP) install "hatchling>=1.27"
	@rm -rf dist
	@$(BIN)/python -m hatchling build -d dist

# Half of the tests wait most of the time, for processes, browsers and links: five workers keep two cores busy.
# Bytecode is kept, also where the environment says otherwise: the next run and every process of a test would compile
# it again.
WORKERS ?= 5
test: export PYTHONDONTWRITEBYTECODE :=
test:
	@$(MAKE) --no-print-directory -j3 lint tested

# Numba compiles while pip installs, and the tests run while mypy does.
.PHONY: tested
tested: system-packages compiled $(VENV)/.installed-test
	@$(BIN)/python -m pytest --workers $(WORKERS)

# What needs real processes, browsers or links, 20 times in a row on a busy machine; two hours.
.PHONY: test-stress
test-stress: system-packages compiled $(VENV)/.installed-test
	@BIN=$(BIN) tests/stress.sh

# The package installed by pip, with all that it needs, and used, on every Python from 3.11 on that this machine has.
.PHONY: test-package
test-package: $(VENV)/.installed-test
	@FEDCELL_PYTHONS=all $(BIN)/python -m pytest tests/test_package.py

# A federation of 20 real nodes that are killed, paused, slow and lie; 15 to 30 minutes.
.PHONY: soak
soak: $(VENV)/.installed-test
	@$(BIN)/python tests/flower/soak.py

# Compile once: every worker and every process of a test would do it for itself otherwise.
.PHONY: compiled
compiled: fresh-cache $(VENV)/.installed
	@$(BIN)/python tests/compile.py

# The browser tests want Chromium, the testbed's tests ip and tc. Root installs what is missing; else those tests are
# skipped, and say why.
.PHONY: system-packages
system-packages:
	@wanted=""; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || wanted="chromium"; \
	command -v tc >/dev/null || wanted="$$wanted iproute2"; \
	if [ -n "$$wanted" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install $$wanted; } >/dev/null 2>&1 \
	      || echo "could not install $$wanted: the tests that need them will be skipped"; \
	  else echo "not installed: $$wanted; the tests that need them will be skipped"; fi; \
	fi

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

# The peers that benchmarks/training.py compares with get an environment of their own. One that cannot be installed
# is a row without a number.
BENCH := .bench-venv
PEERS := benchmarks/peers/requirements.txt
BENCH_PIP := $(BENCH)/bin/python -m pip --disable-pip-version-check --quiet install -c $(PEERS)

$(BENCH)/.installed: $(PEERS)
	@test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH_PIP) torch numpy
	-$(BENCH_PIP) "flwr[simulation]"
	-$(BENCH_PIP) "pfl[pytorch]"
	-$(BENCH_PIP) jax fedjax
	-$(BENCH_PIP) munch pandas pillow pynvml scikit-learn tqdm && $(BENCH_PIP) --no-deps fedlab
	@touch $@

$(VENV)/.installed-bench: pyproject.toml $(VENV)/.installed
	$(PIP) install -e ".[bench]"
	@touch $@

bench: bench-schedule bench-training

bench-schedule: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/schedule.py $(if $(QUICK),--quick)

# The own cost of a simulated round, beside that of version 0.2, both in one run.
.PHONY: bench-loop
bench-loop: $(VENV)/.installed
	$(BIN)/python benchmarks/loop.py

# A run of 1,000 short rounds, and a round with a million devices, each beside an older commit.
.PHONY: bench-rounds bench-large
bench-rounds: $(VENV)/.installed
	$(BIN)/python benchmarks/short_rounds.py

bench-large: $(VENV)/.installed
	$(BIN)/python benchmarks/large_cells.py

# What a round with compressed uploads costs beside one without, both in one run.
.PHONY: bench-compression
bench-compression: $(VENV)/.installed
	$(BIN)/python benchmarks/compression.py $(if $(QUICK),--quick)

bench-training: $(VENV)/.installed $(BENCH)/.installed
	$(BIN)/python benchmarks/training.py $(if $(QUICK),--quick)

# How quickly the dashboard answers, and what Scheduled adds to a round of Flower; both want an idle machine.
bench-dashboard: $(VENV)/.installed-test
	$(BIN)/python benchmarks/dashboard.py $(if $(QUICK),--quick)

bench-flower: $(VENV)/.installed-test
	$(BIN)/python benchmarks/flower.py
	$(BIN)/python benchmarks/dedicated.py

clean:
	rm -rf $(VENV) $(BENCH) out .mypy_cache .ruff_cache .pytest_cache .hypothesis
