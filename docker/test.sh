#!/usr/bin/env bash
# Build every image, start every service and use it: both pipelines, the pages, metrics, secrets, and a restart of Redis.
# Needs an engine. Takes about ten minutes on two cores, and prints a table; exit code 0 if every step passed.
#
# Usage: docker/test.sh [--local]    with --local, from images made of Debian's packages where no registry can be reached;
#                                    Grafana, which Debian does not have, is left out
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export COMPOSE_FILE=$PWD/docker/compose.yaml COMPOSE_PROJECT_NAME=${COMPOSE_PROJECT_NAME:-sluicegate-test} COMPOSE_MENU=0
services=(airflow-api-server airflow-scheduler airflow-dag-processor airflow-triggerer
  dagster-code dagster-webserver dagster-daemon spark-master spark-worker-1 spark-worker-2
  redis postgres exporter ui prometheus grafana)
table=()
failed=0

# Runs a command and notes how long it took; a failure is shown and does not stop the others.
step() {
  local name=$1 from=$SECONDS log
  shift
  log=$(mktemp)
  # In a job of its own: inside a condition, `set -e` would not count.
  (set -e; "$@") >"$log" 2>&1 &
  if wait $!; then
    table+=("ok      $(printf '%4d' $((SECONDS - from))) s  $name  $(tail -n 1 "$log" | cut -c 1-150)")
  else
    failed=1
    table+=("FAILED  $(printf '%4d' $((SECONDS - from))) s  $name")
    tail -n 40 "$log" >&2
  fi
  echo "${table[-1]}"
  rm -f "$log"
}

# Fails if a command succeeds; `set -e` ignores a plain `!`.
refused() { if "$@"; then return 1; fi; }

# Runs a command in a service, with the secrets that its entry point reads.
inside() { docker compose exec --no-TTY "$1" sluicegate-entrypoint "${@:2}"; }

local_images() {
  docker image inspect sluicegate-base:bookworm >/dev/null 2>&1 || bash docker/local/base.sh
  local target
  for target in redis postgres prometheus; do
    docker build --quiet --network none --target "$target" --tag "sluicegate-$target:local" docker/local
  done
  bash docker/local/wheelhouse.sh "${PYTHON:-.venv/bin/python}"
}

use_local_images() {
  export SLUICEGATE_BASE=sluicegate-base:bookworm SLUICEGATE_BUILD_NETWORK=none
  export REDIS_IMAGE=sluicegate-redis:local POSTGRES_IMAGE=sluicegate-postgres:local
  export PROMETHEUS_IMAGE=sluicegate-prometheus:local
  services=("${services[@]/grafana/}")
}

build() {
  docker compose build --quiet
  docker image ls --format '{{.Repository}}:{{.Tag}} {{.Size}}' | grep -E '^sluicegate(-airflow|-dagster|-spark)?:' | xargs
}

up() {
  # shellcheck disable=SC2068  # an empty name is none
  docker compose up --detach --wait --wait-timeout 900 ${services[@]}
  echo "$(docker compose ps --quiet | wc -l) containers are healthy"
}

# No process of any service is root's.
without_root() {
  local id users
  users=$(for id in $(docker compose ps --quiet); do docker top "$id" -eo pid,uid | awk 'NR > 1 { print $2 }'; done | sort -u | xargs)
  [[ " $users " != *" 0 "* ]]
  echo "user ids of all processes: $users"
}

read_only() {
  local service
  for service in redis exporter airflow-scheduler dagster-code spark-worker-1; do
    refused docker compose exec --no-TTY "$service" sh -c 'echo x >/x'
    refused docker compose exec --no-TTY "$service" sh -c 'echo x >/usr/x'
  done
  echo "no file could be written beside the volumes"
}

# What `docker inspect` and `docker history` show holds none of the passwords.
secrets_stay_secret() {
  local file shown
  shown=$(mktemp)
  docker compose ps --quiet | xargs docker inspect >"$shown"
  docker compose images --quiet | sort -u | xargs -n 1 docker history --no-trunc >>"$shown"
  for file in docker/secrets/*_password docker/secrets/*_token docker/secrets/*_secret docker/secrets/*_key; do
    refused grep -qF -e "$(<"$file")" "$shown"
  done
  rm "$shown"
  echo "none in the containers' settings or the images' layers"
}

status() { curl --silent --output /dev/null --write-out '%{http_code}' --max-time 10 "$@"; }

pages() {
  local token
  token=$(<docker/secrets/ui_token)
  [[ $(status "localhost:${AIRFLOW_PORT:-8080}/api/v2/monitor/health") == 200 ]]
  [[ $(status "localhost:${AIRFLOW_PORT:-8080}/api/v2/dags") == 401 ]]
  [[ $(status "localhost:${DAGSTER_PORT:-3001}/server_info") == 200 ]]
  [[ $(status "localhost:${SPARK_PORT:-8082}/json/") == 200 ]]
  [[ $(status "localhost:${UI_PORT:-8000}/api/overview") == 401 ]]
  [[ $(status --header "Authorization: Bearer $token" "localhost:${UI_PORT:-8000}/api/overview") == 200 ]]
  [[ $(status "localhost:${UI_PORT:-8000}/readyz") == 200 ]]
  echo "Airflow, Dagster, Spark and the queues' page answer; Airflow and the page refuse a stranger"
}

metrics() {
  local answer
  # Prometheus has scraped after a moment.
  for _ in $(seq 60); do
    answer=$(curl --silent --get "localhost:${PROMETHEUS_PORT:-9090}/api/v1/query" \
      --data-urlencode 'query=sluicegate_acked_messages_total{queue="flights"}')
    [[ $answer != *'"value":['* ]] || break
    sleep 1
  done
  [[ $answer == *'"336776"'* ]]
  answer=$(curl --silent "localhost:${PROMETHEUS_PORT:-9090}/api/v1/rules")
  [[ $(grep -o '"health":"ok"' <<<"$answer" | wc -l) -gt 3 && $answer != *'"health":"err"'* ]]
  echo "Prometheus has 336,776 acked flights, and $(grep -o '"health":"ok"' <<<"$answer" | wc -l) rules that it can evaluate"
}

# The append-only file keeps what was published when the server is killed.
durability() {
  local before after
  inside exporter python -c 'if 1:
    import os, sluicegate
    queue = sluicegate.RedisMessageQueue("durability", url="redis://sluicegate@redis:6379/0?password_env=REDIS_PASSWORD")
    queue.publish_many({"number": number} for number in range(1000))'
  before=$(inside exporter sluicegate depth durability --json)
  sleep 2 # appendfsync everysec
  docker compose kill --signal KILL redis
  docker compose up --detach --wait redis
  after=$(inside exporter sluicegate depth durability --json)
  [[ $before == *1000* && $after == *1000* ]]
  echo "1,000 messages are there after the server was killed"
}

health() { inside exporter sluicegate health && echo "sluicegate health: exit code 0"; }

stop() {
  docker compose stop --timeout 60
  local codes
  codes=$(docker compose ps --all --format '{{.Service}} {{.ExitCode}}' | awk '$2 != 0 && $2 != 143' | xargs)
  [[ -z $codes ]]
  echo "every service ended in good order"
}

docker version --format 'engine {{.Server.Version}}' || exit 1
docker compose version
if [[ ${1:-} == --local ]]; then
  step "local images and wheels" local_images
  use_local_images
fi
step "secrets" bash docker/secrets.sh
step "build" build
step "up" up
step "no root" without_root
step "read-only" read_only
step "secrets stay secret" secrets_stay_secret
step "pages" pages
step "flights in Airflow" bash docker/demo.sh airflow
step "flights in Dagster" bash docker/demo.sh dagster
step "health" health
step "metrics" metrics
step "durability" durability
step "stop" stop
docker compose --profile demo down --volumes --timeout 10 >/dev/null 2>&1 || true

printf '\n== %s after %d s\n' "$([[ $failed -eq 0 ]] && echo passed || echo FAILED)" "$SECONDS"
printf '  %s\n' "${table[@]}"
exit "$failed"
