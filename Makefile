# Commands for a checkout. `make` alone lists them.
#   make PYTHON=python3.12 ...        another interpreter than the newest one found
#   make test PYTEST_ARGS="-k steps"  a part of the tests
#   make test PYTEST_WORKERS=0        all tests in one process
#   make -j2 test-slow lint typecheck  several targets at once
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
# Number of processes that run test files, some of them waiting; PYTEST_WORKERS=0 runs all in one process, for a debugger.
PYTEST_WORKERS ?= $(shell echo $$(($$(nproc) + 1)))
RUN_TESTS = $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --maxprocesses 8 --dist loadfile --no-loadscope-reorder
C_FOLDERS := native tests examples benchmarks
NATIVE_SOURCES := $(shell find native -name '*.[ch]' -o -name 'CMakeLists.txt' -o -name '*.in' -o -name '*.cmake')

# One stamp per requested interpreter, so that PYTHON=... is used even if a .venv exists.
RUNTIME := $(VENV)/.installed$(if $(PYTHON),-$(subst /,_,$(PYTHON)))
TEST := $(RUNTIME)-test

# Nothing imports from the current directory: a top-level `import ingest` fails here as it does for a user.
export PYTHONSAFEPATH := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of tests start Python: each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo docs install test test-slow test-all bench-advice fuzz lint frozen format typecheck wheel sdist lock notice clean clean-venv

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r word what; do printf '%-18s %s\n' "$$word" "$$what"; done

demo: $(RUNTIME) ## a sample run and its report, in demo/; a training recorded here, in demo/recorded/
	@$(BIN)/postrun demo -o demo

docs: $(TEST) ## the documents as a site, in site/index.html, with sample reports made now
	@$(BIN)/python -P docs/site/run_store.py
	@$(BIN)/python docs/site/build.py -o site

install: $(RUNTIME) ## postrun in .venv, as .venv/bin/postrun

test: $(TEST) ## the quick tests, a few minutes; property tests try few examples
	@$(RUN_TESTS) $(PYTEST_ARGS)

test-slow: $(TEST) ## the tests marked slow, and the property tests with all their examples
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-full} $(RUN_TESTS) -m "slow or hypothesis" $(PYTEST_ARGS)

test-all: test test-slow lint typecheck ## everything that CI checks

bench-advice: $(TEST) ## the first findings of labeled runs against the expected ones; writes docs/advice.md
	@$(BIN)/python -P tests/advice/advice_bench.py --write docs/advice.md

FUZZ_SECONDS ?= 1800
FUZZ_CORPUS ?= ../postrun-fuzz
fuzz: $(TEST) ## fuzzes the C code that reads foreign files: FUZZ_SECONDS per target, corpora and failing inputs kept in FUZZ_CORPUS
	@POSTRUN_FUZZ_SECONDS=$(FUZZ_SECONDS) POSTRUN_FUZZ_CORPUS='$(FUZZ_CORPUS)' $(BIN)/python -m pytest -n 2 --dist load -m "" -q -rA tests/native/test_fuzz.py

lint: $(TEST) ## ruff, clang-format, and the check of English; all of them, even if one fails
	@failed=; \
	$(BIN)/ruff check . || failed=1; \
	$(BIN)/ruff format --check . || failed=1; \
	$(BIN)/python tests/plain_english.py || failed=1; \
	find $(C_FOLDERS) -name '*.[ch]' | xargs $(BIN)/clang-format --dry-run -Werror || failed=1; \
	test -z "$$failed"

frozen: $(TEST) ## compares the outputs of whole runs with their frozen digests; FROZEN_ARGS="--keep FOLDER" or --write
	@env -u PYTHONSAFEPATH $(BIN)/python tests/helpers/frozen_outputs.py $(FROZEN_ARGS)

format: $(TEST) ## lets ruff and clang-format lay out the code
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .
	@find $(C_FOLDERS) -name '*.[ch]' | xargs $(BIN)/clang-format -i

typecheck: $(TEST) ## mypy --strict
	@$(BIN)/python tests/helpers/package_links.py && $(BIN)/mypy

wheel: $(RUNTIME) ## a wheel in dist/
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip wheel -q --no-build-isolation --no-deps -w dist . && ls dist/*.whl

sdist: $(RUNTIME) ## a source archive in dist/
	@$(BIN)/python -c 'from scikit_build_core.build import build_sdist; print("dist/" + build_sdist("dist"))'

# Exact versions with hashes, for every platform and every Python that pyproject.toml allows.
LOCK := $(VENV)-lock/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
lock: ## renews the three lock files to the newest versions that pyproject.toml allows
	@test -x $(VENV)-lock/bin/uv || { python3 -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install -q uv; }
	@$(LOCK) --upgrade --no-annotate --group build --extra test pyproject.toml -o requirements-test.lock
	@$(LOCK) --upgrade --no-annotate --group build -c requirements-test.lock pyproject.toml -o requirements.lock
	@$(LOCK) --upgrade --no-annotate --group build --extra dask -c requirements-test.lock pyproject.toml -o requirements-dask.lock
	@for file in requirements.lock requirements-dask.lock requirements-test.lock; do \
		{ echo '# Written by `make lock`; change pyproject.toml instead.'; cat $$file; } > $$file.new && mv $$file.new $$file; done

notice: $(RUNTIME) ## NOTICE and the SBOM (packaging/postrun.cdx.json), from requirements.lock
	@$(BIN)/python packaging/third_party.py

clean: ## removes what was built, not .venv
	rm -rf build dist demo site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

clean-venv: ## removes .venv, for a fresh installation
	rm -rf $(VENV) $(VENV)-lock

$(RUNTIME): pyproject.toml requirements.lock .ci/bootstrap $(NATIVE_SOURCES)
	@PYTHON='$(PYTHON)' sh .ci/bootstrap $(VENV)
	@touch $@

$(TEST): $(RUNTIME) requirements-test.lock
	@$(BIN)/python -m pip install -q --require-hashes -r requirements-test.lock
	@touch $@
