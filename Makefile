# Every target bootstraps what it needs. `make demo` and `make test` are enough to begin with.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Simulated histories only compute: as many processes as cores.
WORKERS ?= 2
# A quarter of the time of tests is waiting, for servers, for the disk and for commands that they start: one more.
TEST_WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak sim check quick lint bench bench-scale docs picture sbom dist serve clean

help:  ## Show what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

setup: $(VENV)/.installed  ## Make .venv with lakesweep and its pinned dependencies
	@.ci/need java >/dev/null

COMPILED := $(shell find service/lakesweep -name "*.pyx" -o -name "*.pxi")

$(VENV)/.installed: requirements.lock build.lock pyproject.toml $(COMPILED)
	@.ci/need python
	@.ci/need compiler
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r build.lock -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.test-installed: $(VENV)/.installed tests/requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r tests/requirements.lock
	@touch $@

demo: setup  ## Build a small lake, plan it, clean it, and show that nothing was lost
	$(BIN)/lakesweep demo

lint: $(VENV)/.test-installed  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What needs no Java, no Maven and no server, in under three minutes on two cores.
QUICK := tests/unit tests/flow -m "not soak and not slow and not spark and not server"

check: $(VENV)/.test-installed  ## Before a commit: lint, types and the quick tests; no Java, no Maven, no servers
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint quick

quick: $(VENV)/.test-installed
	$(BIN)/pytest -q -n $(TEST_WORKERS) --dist loadgroup $(QUICK)

test: setup lint  ## Everything: lint, unit, contract, flow, law, interop and end-to-end tests on real servers
	@.ci/need maven
	-@.ci/need debootstrap
	-@.ci/need browser
	$(BIN)/pytest -q -n $(TEST_WORKERS) --dist loadgroup -m "not soak"

soak: setup $(VENV)/.test-installed  ## The same laws with many more examples, and the long fault campaigns
	@.ci/need maven
	-@.ci/need debootstrap
	-@.ci/need browser
	SOAK=1 $(BIN)/pytest -q -n $(TEST_WORKERS) --dist loadgroup
	$(BIN)/python -m tests.sim --service --stories 1000 --workers $(WORKERS)
	$(BIN)/python -m tests.sim --mutants --workers $(WORKERS)

# With fixed seeds. What failed once is in tests/sim/seeds.txt and is always run.
STORIES ?= 75000
# With a trash, restored runs, and cycles that list nothing.
OTHER_STORIES ?= 10000
# In a wider world, each about one subject.
WIDER_STORIES ?= 15000

sim: setup $(VENV)/.test-installed  ## A hundred thousand simulated histories of each format: 40 to 60 minutes on two cores
	$(BIN)/python -m tests.sim --stories $(STORIES) --workers $(WORKERS) --out build/sim.json
	$(BIN)/python -m tests.sim --first 10000000 --stories $(OTHER_STORIES) --workers $(WORKERS) --out build/sim-ways.json
	$(BIN)/python -m tests.sim --first 20000000 --stories $(WIDER_STORIES) --workers $(WORKERS) --out build/sim-later.json
	$(BIN)/python -m tests.sim --service --stories 300 --workers $(WORKERS) --out build/sim-service.json
	$(BIN)/python -m tests.sim --service --first 20000000 --stories 320 --workers $(WORKERS) --out build/sim-subjects.json

bench: setup $(VENV)/.test-installed  ## Compare with the tools people use today
	@.ci/need maven
	$(BIN)/python -m tests.bench

bench-scale: setup $(VENV)/.test-installed  ## Both engines from 1 M to 100 M files: 66 GB of disk, about 25 minutes
	$(BIN)/python -m tests.bench.bench_scale

docs: setup $(VENV)/.test-installed  ## Write docs/settings.md anew from the schema
	$(BIN)/python -m tests.docs settings

picture: setup $(VENV)/.test-installed  ## Draw the picture of a plan in the README anew
	$(BIN)/python -m tests.docs picture

sbom: setup  ## Write build/sbom.cdx.json, the bill of materials of the Python packages (CycloneDX)
	@mkdir -p build
	$(BIN)/python deploy/sbom.py > build/sbom.cdx.json

dist:  ## Build the sdist, a manylinux wheel and one in plain Python into dist/; the same commit gives the same bytes
	@.ci/need python
	@.ci/need compiler
	$(PYTHON) -m venv build/dist-tools
	build/dist-tools/bin/pip install --quiet --disable-pip-version-check --require-hashes -r build.lock -r dist.lock
	build/dist-tools/bin/python .ci/dist

serve: setup  ## Run the service on a demo lake with something to clean, with config/local-demo.toml
	@test -d /tmp/lakesweep-demo || $(BIN)/lakesweep demo --keep /tmp/lakesweep-demo --build-only
	$(BIN)/lakesweep ghosts --config config/local-demo.toml
	$(BIN)/lakesweep serve --config config/local-demo.toml

clean:  ## Remove what the targets above made
	rm -rf $(VENV) .cache build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
