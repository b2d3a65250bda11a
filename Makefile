# Everything a newcomer or CI runs. `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null || echo $(BIN)/uv)
# Thousands of Pythons begin in a run, each of which would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20
PYTEST := $(BIN)/python -m pytest
# Four workers on two cores: those with an embedded AWS often wait. Which test is whose: tests/conftest.py.
LANES = -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=10
WORKERS := 4
# Three, where each has a Spark and a server that are busy for minutes.
test-slow: WORKERS := 3

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  \033[1m%-16s\033[0m %s\n", $$1, $$2}'

.PHONY: setup
setup: $(VENV)/.stamp ## Make the virtual environment .venv from uv.lock
$(VENV)/.stamp: uv.lock pyproject.toml devkit/pyproject.toml
	@command -v uv >/dev/null 2>&1 || { test -x $(BIN)/uv || { python3 -m venv $(VENV) && $(BIN)/pip install -q 'uv>=0.13,<0.14'; }; }
	$(UV) sync -q --frozen --all-extras --python 3.11
	@touch $@

.PHONY: demo
demo: setup ## Deploy to the embedded AWS, tier real segment files, read every byte back (LIVE=1: of a living broker)
	$(if $(LIVE),$(BIN)/python -m coldstream_devkit.demo.live --publish $(or $(PUBLISH),60) \
	  --release $(or $(RELEASE),system),$(BIN)/python -m coldstream_devkit.demo)

.PHONY: down
down: setup ## Stop the embedded AWS and forget what it holds
	$(BIN)/coldstream local down --wipe

.PHONY: lint
lint: setup ## Formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(TYPES)
	$(BIN)/lint-imports

# Without a cache the CDK's types take a core for a minute: those of infra/ wait for `make test-slow`.
WITHOUT_INFRA := -p coldstream -p coldstream_devkit -p functions -p glue_jobs

.PHONY: rooms
rooms: setup ## Lines and modules of each package, circles of imports, long functions
	$(BIN)/python -m coldstream_devkit.rooms

.PHONY: test
test: setup ## All checks but the types of infra/, and all tests but the full matrices
	@mkdir -p build
	@$(MAKE) --no-print-directory lint TYPES="$(WITHOUT_INFRA)" >build/lint.txt 2>&1 & lint=$$!; failed=0; \
	$(PYTEST) $(LANES) -m "not slow and not broker" tests || failed=1; \
	wait $$lint || failed=1; cat build/lint.txt; exit $$failed

.PHONY: test-slow
test-slow: setup ## What `make test` does in part, in full, and Spark 3.5 (CI runs both; ALL=1 for what takes longest)
	@mkdir -p build
	@$(BIN)/mypy >build/types.txt 2>&1 & types=$$!; failed=0; \
	$(PYTEST) $(LANES) --hypothesis-profile=slow -m "(slow or hypothesis) and not broker$(if $(ALL),, and not long)" tests || failed=1; \
	wait $$types || failed=1; cat build/types.txt; exit $$failed

.PHONY: test-broker
test-broker: setup ## The agent beside real RabbitMQ nodes (apt-get install rabbitmq-server; make brokers; ALL=1 for all)
	$(PYTEST) -m "$(if $(ALL),broker,broker and not slow)" --durations=10 tests/broker

.PHONY: brokers
brokers: setup ## As root: RabbitMQ 4.x of a newer Debian below ~/.cache/coldstream/brokers (SUITES="forky trixie")
	$(BIN)/python -m coldstream_devkit.broker_release $(SUITES)

.PHONY: broker-campaign
broker-campaign: setup ## Kill nodes and agents of a real cluster, compare each message (FAILOVERS=50 KILLS=500 MINUTES=60)
	$(BIN)/python -m coldstream_devkit.campaign --failovers $(or $(FAILOVERS),50) --kills $(or $(KILLS),500) \
	  --minutes $(or $(MINUTES),60) --release $(or $(RELEASE),forky) $(if $(SEED),--seed $(SEED))

.PHONY: test-fast
test-fast: setup ## Tests that need no embedded AWS
	$(PYTEST) $(LANES) -m "not emulator and not slow and not broker" tests

.PHONY: simulate
simulate: setup ## Histories of the whole system, each from one seed (SEEDS=2000 FIRST=0 ACTIONS=40)
	$(BIN)/python -m coldstream_devkit.simulation.run --seeds $(or $(SEEDS),2000) --first $(or $(FIRST),0) --actions $(or $(ACTIONS),40)

.PHONY: mutants
mutants: setup ## Take each guard out: after how many seeds the simulator catches it (RECORD=1: notes them)
	$(BIN)/python -m coldstream_devkit.simulation.run --mutants --first $(or $(FIRST),0) $(if $(RECORD),--record)

KERNEL_FUZZ := build/kernel/fuzz.so
FUZZ_SECONDS ?= 60

.PHONY: kernel-wheels
kernel-wheels: setup ## Build the wheels of the C kernel for x86-64 and arm64
	@rm -rf build/kernel/*.whl
	COLDSTREAM_KERNEL_ARCH=x86_64 $(UV) build -q --wheel kernel -o build/kernel
	COLDSTREAM_KERNEL_ARCH=aarch64 $(UV) build -q --wheel kernel -o build/kernel
	@ls build/kernel/*.whl

.PHONY: deb
deb: setup kernel-wheels ## Build the Debian packages of agent and command line, amd64 and arm64 (DEB_PYTHON=3.11)
	$(BIN)/python packaging/build_deb.py --uv $(UV) --python $(or $(DEB_PYTHON),3.11)

.PHONY: try-deb
try-deb: deb ## Install, run and purge the package on a bare Debian 12 (root; apt-get install debootstrap)
	packaging/try_deb.sh build/coldstream_*_amd64.deb build/debian12

.PHONY: fuzz-kernel
fuzz-kernel: setup ## Random chunks through the C kernel under AddressSanitizer (FUZZ_SECONDS=60)
	@mkdir -p build/kernel
	$(CC) -g -O1 -std=c11 -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all \
	  -fno-omit-frame-pointer -fPIC -shared -o $(KERNEL_FUZZ) kernel/kernel.c
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc COLDSTREAM_KERNEL=$(KERNEL_FUZZ) \
	  $(BIN)/python -m coldstream_devkit.fuzz_columns --seconds $(FUZZ_SECONDS)

.PHONY: js-client
js-client: ## The stock JavaScript client, for tests/gateway/test_js_client.py (npm)
	npm install --silent --no-audit --no-fund --no-package-lock --prefix tests/gateway/js

.PHONY: fuzz-gateway
fuzz-gateway: setup ## Hostile frames of clients through the gateway's decoding and decisions (INPUTS=1000000)
	$(BIN)/python -m coldstream_devkit.fuzz_gateway --inputs $(or $(INPUTS),1000000) $(if $(SEED),--seed $(SEED))

# All benchmarks; `make bench-read BENCH=--quick` runs one of them small and once.
BENCHES := decode upload agent fleet read readers seek gateway scrub import scale spark materialise compact cost
.PHONY: bench-quick
bench-quick: $(BENCHES:%=bench-%) ## Every benchmark, small and once: shows that each still runs
bench-quick: BENCH := --quick

.PHONY: bench-decode
bench-decode: setup ## Decoding on one core against memcpy and CRC of the same bytes
	$(BIN)/python -m bench.decode $(BENCH)

.PHONY: bench-upload
bench-upload: setup ## Agent upload against plain parallel PUTs of the same bytes
	$(BIN)/python -m bench.upload $(BENCH)

.PHONY: bench-agent
bench-agent: setup ## The agent beside RabbitMQ: uploads, CPU, rate lost, time to durable (apt-get install rabbitmq-server)
	$(BIN)/python -m bench.agent $(BENCH)

.PHONY: bench-fleet
bench-fleet: setup ## Ten thousand stream directories: time to durable, idle passes, a restart, memory (25 minutes)
	$(BIN)/python -m bench.fleet $(BENCH)

.PHONY: bench-read
bench-read: setup ## Sequential read against plain range GETs of the same objects
	$(BIN)/python -m bench.read $(BENCH)

.PHONY: bench-readers
bench-readers: setup ## A hundred readers of one stream at once: bytes that leave the bucket for each delivered
	$(BIN)/python -m bench.readers $(BENCH)

.PHONY: bench-seek
bench-seek: setup ## A cold seek in a petabyte: requests to the first chunk, and its time against one GET
	$(BIN)/python -m bench.seek $(BENCH)

.PHONY: bench-gateway
bench-gateway: setup ## The gateway to a raw reader against range GETs and the broker (apt-get install rabbitmq-server)
	$(BIN)/python -m bench.gateway $(BENCH)

.PHONY: bench-scrub
bench-scrub: setup ## Scrub in a worker against plain range GETs of the same objects
	$(BIN)/python -m bench.scrub $(BENCH)

.PHONY: bench-import
bench-import: setup ## Cold import of the Lambda handler
	$(BIN)/python -m bench.cold_import $(BENCH)

.PHONY: bench-scale
bench-scale: setup ## Manifest of a petabyte and an exbibyte: build, look up, retain, rebuild
	$(BIN)/python -m bench.scale $(BENCH)

.PHONY: bench-spark
bench-spark: setup ## The Spark source against Parquet and against binaryFile with a Python UDF
	$(BIN)/python -m bench.spark $(BENCH)

.PHONY: bench-cost
bench-cost: setup ## Dollars a month without storage, from counted requests and a table of prices
	$(BIN)/python -m bench.cost $(BENCH)

.PHONY: bench-materialise
bench-materialise: setup ## Materialise against Spark writing the same rows
	$(BIN)/python -m bench.materialise $(BENCH)

.PHONY: bench-latest
bench-latest: setup ## A bucket of a table of the latest brought up to date, beside a plain copy
	$(BIN)/python -m bench.latest $(BENCH)

.PHONY: bench-compact
bench-compact: setup ## Files of many streams merged in their order, beside a plain copy of the rows
	$(BIN)/python -m bench.compact $(BENCH)

.PHONY: soak-jobs
soak-jobs: setup ## A stream of several GB through every Glue job, rows exact (GB=3)
	$(BIN)/python -m bench.soak_jobs $(or $(GB),3)

.PHONY: spark35
spark35: .spark35/.stamp ## A virtual environment with Spark 3.5, as on Glue 5
.spark35/.stamp: pyproject.toml kernel/pyproject.toml kernel/kernel.c
	$(UV) venv -q --clear --python 3.11 .spark35
	$(UV) pip install -q --python .spark35/bin/python ./kernel -e '.[spark]' 'pyspark==3.5.6' 'pandas<3' \
	  'snowpark-connect-deps-iceberg==1.0.2' # the Iceberg of Glue 5.1 for Spark 3.5, as a jar
	@touch $@

# dbt-core 1.12 brings a part of it from outside the package index.
.PHONY: dbt
dbt: .dbt/.stamp ## A virtual environment with dbt, its adapters for Athena and Spark, and Spark 3.5
.dbt/.stamp: Makefile
	$(UV) venv -q --clear --python 3.11 .dbt
	$(UV) pip install -q --python .dbt/bin/python 'dbt-core==1.11.16' 'dbt-athena==1.11.1' 'dbt-spark==1.11.0' \
	  'pyspark==3.5.6' 'pandas<3' 'snowpark-connect-deps-iceberg==1.0.2'
	@touch $@

.PHONY: synth
synth: setup ## Write the CloudFormation templates to cdk.out
	CDK_OUTDIR=cdk.out $(BIN)/python app.py

# The CDK's command line in the version of package.json; `latest` may not read this app.
node_modules/.stamp: package.json
	npm install --silent --no-audit --no-fund
	@touch $@

# Settings and the stack's name, for one command: make deploy CDK="-c coldstream:stack-name=prod"
.PHONY: bootstrap
bootstrap: setup node_modules/.stamp ## Once for an account and region: what every CDK app needs there
	npx cdk bootstrap $(CDK)

.PHONY: deploy
deploy: setup node_modules/.stamp ## Deploy to AWS, with AWS_REGION and your credentials (CDK="-c ...")
	$(BIN)/python -m infra.deploy $(CDK)

.PHONY: diff
diff: setup node_modules/.stamp ## What `make deploy` would change (CDK="-c ...")
	npx cdk diff $(CDK)

.PHONY: clean
clean: ## Remove everything that the other targets made
	rm -rf $(VENV) node_modules .spark35 .dbt .localaws .local build cdk.out .mypy_cache .pytest_cache .ruff_cache .hypothesis
