# Everything starts from nothing: each target first builds the environment it needs.

PYTHON ?= python3
VENV ?= .venv
LOWEST_PYTHON ?= python3.11
DOCS_PINS ?= constraints.txt

# What old matplotlib and typer meet in current pyparsing and click.
LOWEST_WARNINGS := -W ignore::DeprecationWarning:matplotlib._fontconfig_pattern \
	-W ignore::DeprecationWarning:matplotlib._mathtext \
	-W "ignore:'click.utils.get_:DeprecationWarning"

BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp

.DEFAULT_GOAL := help
.PHONY: help demo docs test lowest slow check stats peers format clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP) ## fit, forecast and score the demo data
	$(BIN)/forecaster demo

docs: .venv-docs/.stamp ## build the documentation as a site, site/index.html
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

test: $(STAMP) ## run the fast tests
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

lowest: .venv-lowest/.stamp ## run the fast tests on the oldest releases that pyproject.toml allows
	.venv-lowest/bin/python -m pytest -q -n 2 --dist worksteal $(LOWEST_WARNINGS)

slow: $(STAMP) ## run the slow proofs and the long tests
	$(BIN)/python -m pytest -q -m "slow or long" -n 2 --dist worksteal

check: $(STAMP) ## check format, lint, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

stats: $(STAMP) ## print code and docstring lines, tokens, comments, files, settings and tests per folder
	$(BIN)/python benchmarks/stats.py

peers: .venv-peers/.stamp ## install the packages that benchmarks/league.py stands beside

format: $(STAMP) ## format the code and mend what lint can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove caches and builds; the environment, models and runs stay
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find forecaster tests data -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is the last link of the chain: a failed install leaves none, and the next make tries again.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; found %s: make PYTHON=python3.12" % sys.version.split()[0])'
	@echo "Installing into $(VENV); the first time takes a minute or two."
	@$(PYTHON) -m venv $(VENV) \
		&& $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]" \
		&& touch $@

# The oldest torch has no build without CUDA in the index: some GB are downloaded.
.venv-lowest/.stamp: pyproject.toml constraints-lowest.txt
	@echo "Installing into .venv-lowest; the first time takes five to ten minutes."
	@$(LOWEST_PYTHON) -m venv .venv-lowest \
		&& .venv-lowest/bin/python -m pip install -q --disable-pip-version-check -c constraints-lowest.txt -e ".[dev]" \
		&& touch $@

# Of the package itself nothing is needed: the pages that are made from code lie in docs/.
.venv-docs/.stamp: pyproject.toml $(DOCS_PINS)
	@echo "Installing into .venv-docs; the first time takes half a minute."
	@$(PYTHON) -m venv .venv-docs \
		&& .venv-docs/bin/python -m pip install -q --disable-pip-version-check -c $(DOCS_PINS) mkdocs mkdocs-material \
		&& touch $@

.venv-peers/.stamp: benchmarks/peers.txt
	@echo "Installing into .venv-peers; the first time takes a minute."
	@$(PYTHON) -m venv .venv-peers \
		&& .venv-peers/bin/python -m pip install -q --disable-pip-version-check -r benchmarks/peers.txt \
		&& touch $@
