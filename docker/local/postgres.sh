#!/bin/sh
# Start PostgreSQL, and create its database first: what the entry point of the official image does with these variables.
set -eu

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --pgdata="$PGDATA" --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth=scram-sha-256 --encoding=UTF8
  echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
  PGPASSWORD=$(cat "$POSTGRES_PASSWORD_FILE")
  export PGPASSWORD
  pg_ctl --pgdata="$PGDATA" --options="-c listen_addresses=''" --wait start
  createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
  pg_ctl --pgdata="$PGDATA" --wait stop
  unset PGPASSWORD
fi
exec postgres -c listen_addresses='*'
