#!/usr/bin/env bash
# Send a year of flights through what docker/up.sh started: Airflow or Dagster publishes and waits at the gate, the Spark
# cluster drains to Parquet files on the shared volume, and every cell is compared. Exit code 0 if all is right.
#
# Usage: docker/demo.sh [airflow|dagster]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

docker compose run --rm --no-TTY demo python /etc/demo/demo.py "${1:-airflow}"
