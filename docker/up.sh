#!/usr/bin/env bash
# Build the images and start everything of compose.yaml, or the services that are named, and wait until all are healthy.
#
# Usage: docker/up.sh [SERVICE ...]
# What differs from machine to machine is in the environment or in docker/.env; docs/containers.md lists it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash secrets.sh
docker compose build --quiet
docker compose up --detach --wait --wait-timeout "${SLUICEGATE_WAIT_SECONDS:-600}" "$@"
docker compose ps --format 'table {{.Service}}\t{{.Status}}\t{{.Ports}}'
