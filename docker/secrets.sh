#!/usr/bin/env bash
# Make the passwords of compose.yaml as files in docker/secrets/: random, once, read by nobody but their services.
#
# The folder is closed to other users of this machine. The files in it are readable, since services run as other users.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly FOLDER=secrets
install -d -m 700 "$FOLDER"

# Writes the output of a command to a file of the folder, unless it is there.
keep() {
  local file=$FOLDER/$1
  shift
  [[ ! -s $file ]] || return 0
  (umask 022; "$@" >"$file.new")
  mv "$file.new" "$file"
}

# Letters and digits only, so that a password may stand in a URL, a command line or JSON.
random() { head -c 128 /dev/urandom | base64 --wrap=0 | tr -dc 'A-Za-z0-9' | cut -c "1-${1:-32}" | tr -d '\n'; }
fernet_key() { head -c 32 /dev/urandom | base64 --wrap=0 | tr '+/' '-_'; }
database_url() { printf 'postgresql+psycopg2://airflow:%s@postgres:5432/airflow' "$(<"$FOLDER/postgres_password")"; }
# Redis gets the hash of the password, and a file without comments.
redis_users() {
  local hash
  hash=$(printf %s "$(<"$FOLDER/redis_password")" | sha256sum | cut -d' ' -f1)
  sed "s/PASSWORD_HASH/$hash/; /^ *#/d; /^$/d" redis/users.acl
}

for name in airflow_admin_password airflow_secret_key grafana_admin_password postgres_password redis_password ui_token; do
  keep "$name" random
done
keep airflow_jwt_secret random 64
keep airflow_fernet_key fernet_key
keep airflow_database_url database_url
keep redis_users redis_users
