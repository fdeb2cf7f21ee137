# Every target sets up .venv by itself. `make PYTHON=python3.12 test` picks the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint examples docs-check model clean

help:  ## show the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

demo: model  ## fetch the default model and decode with it, next to plain decoding
	@echo "==> demo"
	@$(BIN)/foredraft demo

test: model  ## run the tests but the slow ones (ARGS='-k cache' narrows them)
	@echo "==> tests"
	@$(BIN)/python -m pytest -n auto --dist loadgroup -m "not slow" $(ARGS)

test-slow: model  ## run the slow tests: whole matrices, 100,000 draws from models
	@echo "==> slow tests"
	@$(BIN)/python -m pytest -n auto -m slow $(ARGS)

lint: $(STAMP)  ## ruff check, ruff format --check, mypy
	@echo "==> ruff check"
	@$(BIN)/ruff check .
	@echo "==> ruff format"
	@$(BIN)/ruff format --check .
	@echo "==> mypy"
	@$(BIN)/mypy

examples: $(STAMP)  ## mypy on the example packages (make lint has seen the rest)
	@for name in retrieval steady; do \
	  echo "==> mypy, examples/foredraft-$$name"; \
	  $(BIN)/mypy "examples/foredraft-$$name/foredraft_$$name" "examples/foredraft-$$name/tests" || exit 1; \
	done

docs-check:  ## every relative link in a Markdown file leads to a file
	@echo "==> links"
	@find . -name '*.md' -not -path './.*/*' | sort | { bad=0; while read -r page; do \
	  for link in $$(grep -oE '\]\([^)#: ]+[)# ]' "$$page" | sed -E 's/^..|.$$//g'); do \
	    [ -e "$$(dirname "$$page")/$$link" ] || { echo "$$page: no such file: $$link"; bad=1; }; \
	  done; done; exit $$bad; }

clean:  ## remove the environment, builds and caches
	@rm -rf $(VENV) build dist outputs multirun .pytest_cache .mypy_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

model: $(STAMP)
	@echo "==> default model (kept in the user's cache folder)"
	@$(BIN)/foredraft fetch smollm2

# torch first and by its exact pin: see constraints.txt.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "constraints.txt needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	@echo "==> environment in $(VENV) (once, a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "==> torch"
	@$(PIP) install -q -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	@echo "==> foredraft, editable, with its extras"
	@$(PIP) install -q -c constraints.txt -e '.[dev,smollm2]'
	@touch $@
