"""Run the DAG once by `dag.test()`, as Airflow's own tests do: no scheduler, no server; exit code 1 when it failed."""

from __future__ import annotations

import sys

from example_dags.flights import dag

if __name__ == "__main__":
    sys.exit(0 if dag.test().state == "success" else 1)
