"""Run a DAG in this process, for tests that kill it; its run is that of 2013-01-01, so that it can be run again.

Usage: python -m tests.airflow.running HOME DAG_FILE DAG_ID QUEUE
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.airflow.deployment import Deployment


def run_dag(home: Path, file: Path, dag_id: str, queue: str) -> None:
    """Run the DAG to its end."""
    with Deployment(home).dags([file]) as dags:
        from airflow.sdk import timezone

        day = timezone.parse("2013-01-01")
        dags[dag_id].test(logical_date=day, run_after=day, run_conf={"queue": queue})


if __name__ == "__main__":
    run_dag(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
