# Everything a person needs is `make help`. Each target that runs something first makes sure that .venv is up to date,
# which takes no time when it is.
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-crash demo-dagster demo-ui quickstart test test-all test-matrix mutants check format docs diagrams dist bench bench-long bench-compare bench-peers compose-up compose-demo compose-test compose-down lock clean distclean
SHELL := /bin/bash
PYTHON_IN_VENV := .venv/bin/python

help: ## List the targets
	@echo "Sluicegate: publish into Redis, open the gate on depth or age, drain with Spark, Airflow or Dagster."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make .venv with everything locked in locks/ (first says what the system lacks)
	@bash scripts/setup.sh

demo: setup ## Send 336,776 real flights from a DAG through Redis and Spark to Parquet, and draw the gate
	@$(PYTHON_IN_VENV) -m example_dags.demo $(ARGS)

demo-crash: setup ## The same while a Spark worker is killed in the middle: nothing lost, nothing acked twice
	@$(PYTHON_IN_VENV) -m example_dags.demo --crash $(ARGS)

demo-dagster: setup ## The flights again, from Dagster's assets, daemon and sensor through Redis and Spark to Parquet
	@$(PYTHON_IN_VENV) -m example_dags.demo --orchestrator dagster $(ARGS)

demo-ui: ## Watch jobs that fail, hang and return to the queue in the browser; prints a link; no Java, no Airflow
	@bash scripts/quickstart.sh demo-ui $(ARGS)

quickstart: ## Eight lines of Python against a Redis that starts by itself; no Java, no Airflow, 30 seconds
	@bash scripts/quickstart.sh

test: setup ## Test every behaviour, in ten minutes on two cores (make test ARGS="-k lease tests/unit" for a part)
	@$(PYTHON_IN_VENV) -m scripts.run_tests $(ARGS)

test-all: setup ## Test on every server program, flavour and topology too, with long faults and test-matrix: an hour
	@$(PYTHON_IN_VENV) -m scripts.run_tests --all $(ARGS)

test-matrix: setup ## Test with redis-py 5 to 8, PySpark 4.0 to 4.2, Airflow 3.1 and 3.2, and Dagster 1.12 and 1.13.29 only
	@$(PYTHON_IN_VENV) -m scripts.matrix $(ARGS)

mutants: setup ## Seed faults into copies of the project, one by one, and show that the quick tests catch each
	@$(PYTHON_IN_VENV) -m tests.mutants.run $(ARGS)

check: setup ## Check format, lint, types, layers, Lua and sync, in under a minute (make check ARGS=types for one)
	@$(PYTHON_IN_VENV) scripts/check.py $(ARGS)

format: setup ## Put format, imports, the synchronous shells and the documentation's snippets right
	@.venv/bin/ruff format .
	@$(PYTHON_IN_VENV) scripts/sync.py
	@$(PYTHON_IN_VENV) scripts/options.py
	@$(PYTHON_IN_VENV) scripts/sync.py
	@.venv/bin/ruff check --fix .
	@$(PYTHON_IN_VENV) scripts/snippets.py

docs: setup ## Make the documentation's site in build/site, and check its links
	@NO_MKDOCS_2_WARNING=1 $(PYTHON_IN_VENV) -m mkdocs build --strict --quiet
	@$(PYTHON_IN_VENV) -m scripts.check_site build/site

diagrams: setup ## Draw the diagrams of docs/ anew (needs Chromium and npm)
	@bash scripts/diagrams.sh

dist: setup ## Build what the package index gets into dist/: the source archive and three wheels
	@rm -rf dist
	@$(PYTHON_IN_VENV) -m hatchling build --directory dist
	@for name in packages/*/; do (cd $$name && ../../$(PYTHON_IN_VENV) -m hatchling build --target wheel --directory ../../dist); done

bench: setup ## Measure speed and memory against bare Redis into build/bench/report.json
	@$(PYTHON_IN_VENV) -m benchmarks.run $(ARGS)

bench-long: setup ## Publish ten million deduplicated messages: the time of each, and the largest key of their markers
	@$(PYTHON_IN_VENV) -m benchmarks.long $(ARGS)

bench-compare: setup ## Compare the speed of two commits in turn: make bench-compare ARGS="OLD [NEW]"; NEW is the working tree
	@$(PYTHON_IN_VENV) -m benchmarks.compare $(ARGS)

bench-peers: setup ## Measure beside redis-message-queue 8.3.0 and 11, in environments under build/peers (needs Python 3.12)
	@$(PYTHON_IN_VENV) -m benchmarks.peers.run $(ARGS)

compose-up: ## Build the images and start Airflow, Dagster, Spark, Redis, Prometheus, Grafana and the page in containers
	@bash docker/up.sh $(ARGS)

compose-demo: ## Send the flights through the containers and compare every cell (ARGS=dagster for Dagster)
	@bash docker/demo.sh $(ARGS)

compose-test: ## Build, start and use all containers and print a table (ARGS=--local where no registry can be reached)
	@bash docker/test.sh $(ARGS)

compose-down: ## Stop the containers; ARGS=--volumes deletes their data too
	@docker compose --file docker/compose.yaml --profile demo down $(ARGS)

lock: setup ## Resolve pyproject.toml into locks/ for Python 3.11 to 3.14 (ARGS=--upgrade for the newest)
	@bash scripts/lock.sh $(ARGS)

clean: ## Remove build/ and caches, keep .venv
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log
	@find . -path ./.venv -prune -o -path ./.git -prune -o -type d -name __pycache__ -exec rm -rf {} +

distclean: clean ## Remove .venv as well
	@rm -rf .venv
