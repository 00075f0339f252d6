# `make demo` and `make test` need only python3 (3.11 or newer, with venv), make and git: they set up .venv themselves.

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -q -c constraints.txt

# Real copies of the benchmark sets, where a checkout has them beside it.
ifneq ($(wildcard ../shared/data),)
export METRICFIT_DATA ?= $(realpath ../shared/data)
endif

# Options of the benchmark suite, e.g. make bench-suite SUITE="--budget 30m --splits 3 --methods portfolio catboost".
SUITE ?=
SUITE_RUN := METRICFIT_AUTOGLUON=$(abspath $(VENV))/autogluon/bin/python OMP_NUM_THREADS=1 $(VENV)/bench/bin/python -m benchmarks.suite

# Options of the campaign of random cases, e.g. make fuzz FUZZ="--minutes 60 --only folders".
FUZZ ?=

# Options of the papers' experiments, e.g. make bench-papers PAPERS="--budget 2h --jobs 2".
PAPERS ?=
PAPERS_BTG := $(addprefix btg-table,1 3 4 5 6 7 9 11)
PAPERS_EAST := east-table1 east-table3 multiclass-fbeta-table2

# The report is tested in a real browser where there is one, or where it may be installed.
define CHROMIUM
for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
  echo "==> Installing Chromium for the tests of the report"; \
  get="apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core"; \
  { $$get || { apt-get update -qq && $$get; }; } >/dev/null 2>&1 && exit 0; \
fi; \
echo "    No Chromium here: the tests of the report in a browser will be skipped (apt-get install chromium)"
endef

.DEFAULT_GOAL := help
.PHONY: help demo docs test test-slow fuzz lint format clean bench-suite bench-suite-smoke bench-papers bench-papers-smoke \
  bench-speed bench-scale
.DELETE_ON_ERROR:

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed  ## Train on a metric and write the result to demo-report/
	@echo "==> Running the demo"
	@$(BIN)/metricfit demo --out demo-report --overwrite

docs: $(VENV)/.installed-dev  ## Write the guides' notebooks, build the documentation into build/docs
	@echo "==> Building the documentation"
	@$(BIN)/python docs/site/notebooks.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open build/docs/index.html"

test: $(VENV)/.installed-dev  ## Lint, types, doctests and tests with the coverage floor
	@export OMP_NUM_THREADS=1; $(BIN)/python -W ignore tests/compile_kernels.py single & \
	  $(MAKE) --no-print-directory lint; lint=$$?; $(BIN)/python -W ignore tests/compile_kernels.py double; wait; exit $$lint
	@echo "==> Tests and doctests ($(WORKERS) workers)"
	@OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow" --cov=metricfit

test-slow: $(VENV)/.installed-integrations  ## The tests marked slow, and those of the integrations with their libraries
	@echo "==> Integrations"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not slow" tests/integrations tests/test_docs.py src/metricfit/integrations
	@echo "==> Slow tests"
	@$(BIN)/python -m pytest -q -m slow

fuzz: $(VENV)/.installed-dev  ## Random losses, searches, promises, model folders and tables: make fuzz FUZZ="--minutes 60"
	@OMP_NUM_THREADS=1 $(BIN)/python -W ignore -m tests.fuzz $(FUZZ)

bench-speed: $(VENV)/.installed-rivals  ## Time of the loss against cross-entropy, and how it grows (about 15 min)
	@$(BIN)/python benchmarks/speed/loss.py ratios --seconds 15
	@$(BIN)/python benchmarks/speed/loss.py options --seconds 8
	@$(VENV)/rivals/bin/python benchmarks/speed/loss.py growth --threads 1 --clock cpu --seconds 5
	@$(BIN)/python benchmarks/speed/compiling.py
	@$(BIN)/python benchmarks/speed/loss.py plots
	@$(BIN)/python benchmarks/speed/loss.py tables

bench-scale: $(VENV)/.installed-dev  ## Training on 1 to 50 million rows, a search over 10^8 scores (about an hour)
	@$(BIN)/python benchmarks/speed/streaming.py run --rows 1 5 20 50
	@$(BIN)/python benchmarks/speed/streaming.py search
	@$(BIN)/python benchmarks/speed/streaming.py ranks --rows 1
	@$(BIN)/python benchmarks/speed/streaming.py plots
	@$(BIN)/python benchmarks/speed/communication.py

lint: $(VENV)/.installed-dev  ## ruff (lint and format) and mypy, changing nothing
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "==> mypy"
	@$(BIN)/mypy --strict src

format: $(VENV)/.installed-dev  ## Fix what ruff can fix and format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench-suite: $(VENV)/.installed-bench $(VENV)/.installed-autogluon  ## Compare with strong rivals on 20 tables (days; resumes)
	@echo "==> Benchmark suite; what is in benchmarks/suite/results is kept"
	@$(SUITE_RUN) run $(SUITE)
	@$(SUITE_RUN) table

bench-suite-smoke: $(VENV)/.installed-bench  ## The same on two tiny tables, into a temporary folder
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	$(SUITE_RUN) run --tables iris breast_cancer --splits 1 --results $$folder/results --cache $$folder/cache \
	  --methods portfolio network network_ce forest extra_trees boosting logistic catboost lightgbm xgboost xgb_td && \
	$(SUITE_RUN) table --results $$folder/results --docs $$folder/docs

bench-papers: $(VENV)/.installed-dev  ## The papers' experiments beside their published numbers (days; resumes)
	@echo "==> Tables at full size, images at reduced size; what is in benchmarks/papers/results is kept"
	@$(BIN)/python -m benchmarks.papers run $(PAPERS_BTG) anyloss-tabular $(PAPERS)
	@$(BIN)/python -m benchmarks.papers run $(PAPERS_EAST) --grid small \
	  --datasets cocktail_party mammography adult creditcard $(PAPERS)
	@$(BIN)/python -m benchmarks.papers run --reduced --grid small $(PAPERS)
	@$(BIN)/python -m benchmarks.papers table --all

bench-papers-smoke: $(VENV)/.installed-dev  ## Every one of them end to end at toy size, into a temporary folder
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && export OMP_NUM_THREADS=1 && \
	$(BIN)/python -m benchmarks.papers run --size toy --results $$folder/results && \
	$(BIN)/python -m benchmarks.papers table --all --results $$folder/results --images $$folder/images

clean:  ## Remove everything generated except .venv
	rm -rf build dist demo-report htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

$(BIN)/python:
	@echo "==> Creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "metricfit needs Python 3.11 or newer; name one with make PYTHON=python3.x")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --upgrade pip

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> Installing metricfit (the first time takes a few minutes)"
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> Installing metricfit with the development tools (the first time takes a few minutes)"
	@$(INSTALL) -e '.[dev]'
	@$(CHROMIUM)
	@touch $(VENV)/.installed $@

# Other libraries' losses in an environment of their own, which sees this one's packages but adds nothing to it.
$(VENV)/.installed-rivals: $(VENV)/.installed-dev
	@$(BIN)/python -m venv $(VENV)/rivals
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $(VENV)/rivals.pth
	@echo $(CURDIR)/src >> $(VENV)/rivals.pth
	@cp $(VENV)/rivals.pth "$$($(VENV)/rivals/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/"
	@$(VENV)/rivals/bin/python -m pip install -q --no-deps -c constraints.txt segmentation-models-pytorch monai libauc ap_perf tqdm
	@touch $@

$(VENV)/.installed-integrations: $(VENV)/.installed-dev
	@$(INSTALL) -e '.[dev,dask,boost,lightning,huggingface,shap,skorch,torchmetrics,ray,spark]' tensorboard mlflow-skinny wandb fastapi uvicorn
	@touch $@

# The suite's rivals likewise, and the packages that carry its tables; AutoGluon needs other versions, and all of its own.
$(VENV)/.installed-bench: $(VENV)/.installed-dev
	@$(BIN)/python -m venv $(VENV)/bench
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $(VENV)/bench.pth
	@echo $(CURDIR)/src >> $(VENV)/bench.pth
	@cp $(VENV)/bench.pth "$$($(VENV)/bench/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/"
	@$(VENV)/bench/bin/python -m pip install -q -c constraints.txt lightgbm xgboost-cpu catboost pytabkit
	@$(VENV)/bench/bin/python -m benchmarks.suite tables
	@touch $@

$(VENV)/.installed-autogluon: | $(BIN)/python
	@$(BIN)/python -m venv $(VENV)/autogluon
	@$(VENV)/autogluon/bin/python -m pip install -q -c constraints.txt 'autogluon.tabular[lightgbm,catboost,xgboost,fastai]'
	@touch $@
